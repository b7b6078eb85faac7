"""Answers for another broker: any broker takes any request, and this one passes it on to the partition's leader.

One hop only: a request that was passed on already is refused with the leader that this broker knows, so that two
brokers with different views never bounce it. One pooled HTTP/2 connection per leader, for the life of the process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from headrace.core.errors import BrokerUnreachableError, HeadraceError, NotLeaderError
from headrace.core.types import BrokerId
from headrace.http2.client import AsyncTransport
from headrace_broker.requests import Place

PROXIED_HEADER = "Headrace-Proxied"
_FORWARDED = ("content-type", "accept")
_RETURNED = ("content-type", "retry-after", "allow")
_MARGIN_S = 5.0
"""What a leader gets beyond the time that the request itself may take."""


class Target(Protocol):
    """Another broker that a request is for."""

    @property
    def url(self) -> str:
        """Empty where it is not known."""

    def error(self, why: str) -> HeadraceError:
        """What the client is told where the broker's answer cannot be had; `why` goes on from a sentence."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The leader of a partition that this broker does not lead."""

    place: Place
    leader: BrokerId
    url: str
    """Empty where it is not known."""

    def error(self, why: str) -> NotLeaderError:
        return NotLeaderError(
            f"this broker does not lead {self.place}; broker {self.leader} does{why}", leader=self.leader, url=self.url
        )


class Proxy:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def forward(
        self, request: web.Request, elsewhere: Target, body: Sequence[bytes | memoryview], timeout_ms: int
    ) -> web.Response:
        """The other broker's answer. Raises the target's error where it cannot be had."""
        if PROXIED_HEADER in request.headers:
            raise elsewhere.error("; the request was passed on once already")
        headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        return await self.send(
            elsewhere, request.method, request.path_qs, headers=headers, body=body, timeout_ms=timeout_ms
        )

    async def send(
        self,
        elsewhere: Target,
        method: str,
        path: str,
        *,
        headers: dict[str, str],
        body: Sequence[bytes | memoryview],
        timeout_ms: int,
    ) -> web.Response:
        """Ask the other broker. Raises the target's error where it cannot be reached."""
        if not elsewhere.url:
            raise elsewhere.error(", but its URL is not known")
        try:
            answer = await self._transport.request(
                method,
                elsewhere.url.rstrip("/") + path,
                headers={**headers, PROXIED_HEADER.lower(): "1"},
                body=body,
                timeout_s=timeout_ms / 1000 + _MARGIN_S,
            )
            content = await answer.read()
        except BrokerUnreachableError as error:
            raise elsewhere.error(f", but it cannot be reached from here: {error.message}") from error
        returned = {
            name: value for name, value in answer.headers.items() if name in _RETURNED or name.startswith("headrace-")
        }
        return web.Response(status=answer.status, body=content, headers=returned)
