"""The requests to other brokers: those of clients, passed on to the partition's leader, and this broker's own.

Any broker takes any request. One hop only: a request that was passed on already is refused with the leader that this
broker knows, so that two brokers with different views never bounce it. One pooled HTTP/2 connection per leader, for the
life of the process.

A request that is passed on says for which address, and brings the key of this broker's Lease: other brokers believe the
address for the key's sake (`callers.Callers`), and count the request for that client and not for this broker.

`produce_there`, `fetch_there`, `edge_there` and `delete_there` ask the leader of a partition that this broker does not
lead. They raise what the leader answers with, as the client of that leader would get it, and NotLeaderError if it
cannot be reached.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from aiohttp import web

from headrace.core.errors import BrokerUnreachableError, HeadraceError, ThrottledError, from_problem
from headrace.core.limits import DELETE_TIMEOUT_MS, PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.log.epochs import Fence
from headrace.core.types import Offset
from headrace.http2.async_transport import AsyncResponse, AsyncTransport
from headrace.http2.bridge import break_off
from headrace_broker.admission import BudgetShare
from headrace_broker.cluster.locator import Elsewhere
from headrace_broker.http.callers import PEER_KEY_HEADER, PROXIED_HEADER
from headrace_broker.http.record_bodies import BodyFormat
from headrace_broker.partition.queries import Edge, ProduceQuery

PROXY_MARGIN_MS = 5_000
"""The time that a leader gets beyond what the request itself may take."""


_log = logging.getLogger(__name__)

NO_CLIENT = "1"
"""The value in place of an address, where a broker asks for itself."""
_FORWARDED = ("content-type", "accept", "accept-encoding")
"""The headers that are passed on; the body's coding is not, because the body is decoded before."""
_RETURNED = ("content-type", "content-encoding", "vary", "retry-after", "allow", "accept-encoding")
_BATCHES = BodyFormat.BATCHES.value


class Target(Protocol):
    """Another broker that a request is for."""

    @property
    def url(self) -> str:
        """Return the broker's URL; empty where it is not known."""

    def error(self, why: str) -> HeadraceError:
        """Make the error for the client where the broker's answer cannot be had; `why` goes on from a sentence."""


class Proxy:
    def __init__(self, transport: AsyncTransport, peer_key: str = "") -> None:
        """Use `transport`; `peer_key` is in this broker's Lease: without it others take the broker for a client."""
        self._transport = transport
        self._peer_key = peer_key
        self._streams: set[AsyncResponse] = set()
        """The answers that are passed on while they come."""
        self._draining = False

    async def forward(
        self,
        request: web.Request,
        elsewhere: Target,
        body: Sequence[bytes | memoryview],
        timeout_ms: int,
        share: BudgetShare | None = None,
    ) -> web.Response:
        """Return the other broker's answer, counted in `share`. Raises the target's error where it cannot be had."""
        headers = _forwarded(request, elsewhere)
        with _reaching(elsewhere):
            headers[PROXIED_HEADER.lower()] = request.remote or NO_CLIENT
            answer = await self._ask(
                elsewhere, request.method, request.path_qs, headers=headers, body=body, timeout_ms=timeout_ms
            )
            if share is not None:
                _count(answer, share)
            return await _whole(answer)

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
        with _reaching(elsewhere):
            answer = await self._ask(elsewhere, method, path, headers=headers, body=body, timeout_ms=timeout_ms)
            return await _whole(answer)

    async def _ask(
        self,
        elsewhere: Target,
        method: str,
        path: str,
        *,
        headers: dict[str, str],
        body: Sequence[bytes | memoryview],
        timeout_ms: int,
    ) -> AsyncResponse:
        return await self._transport.request(
            method,
            elsewhere.url.rstrip("/") + path,
            headers={PROXIED_HEADER.lower(): NO_CLIENT, **self._signed(), **headers},
            body=body,
            timeout_s=(timeout_ms + PROXY_MARGIN_MS) / 1000,
        )

    async def relay(self, request: web.Request, elsewhere: Target, silence_ms: int) -> web.StreamResponse:
        """Pass on a stream of another broker's as it comes; break it off where it breaks off or falls silent.

        Raises the target's error where it cannot be had. A refusal by the other broker is its answer.
        """
        headers = _forwarded(request, elsewhere)
        headers |= {PROXIED_HEADER.lower(): request.remote or NO_CLIENT, **self._signed()}
        url = elsewhere.url.rstrip("/") + request.path_qs
        with _reaching(elsewhere):
            answer = await self._transport.request(
                request.method, url, headers=headers, timeout_s=(silence_ms + PROXY_MARGIN_MS) / 1000
            )
            if answer.status != 200 or request.method == "HEAD":
                return await _whole(answer)
        self._streams.add(answer)
        try:
            return await self._pass_on(request, answer)
        finally:
            self._streams.discard(answer)
            answer.cancel()

    async def _pass_on(self, request: web.Request, answer: AsyncResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers=_returned(answer))
        await response.prepare(request)
        if self._draining:
            answer.cancel()
        try:
            async for chunk in answer.chunks():
                await response.write(chunk)
        except BrokerUnreachableError as error:
            _log.info("%s: broken off: %s", request.path, error)
            break_off(request)
        else:
            await response.write_eof()
        return response

    def _signed(self) -> dict[str, str]:
        return {PEER_KEY_HEADER.lower(): self._peer_key} if self._peer_key else {}

    def drain(self) -> None:
        """Break off the streams that are passed on: their clients ask another broker."""
        self._draining = True
        for answer in self._streams:
            answer.cancel()


def _forwarded(request: web.Request, elsewhere: Target) -> dict[str, str]:
    """Return the headers for the other broker. Raises the target's error where the request was passed on already."""
    if PROXIED_HEADER in request.headers:
        raise elsewhere.error("; the request was passed on once already")
    return {name: request.headers[name] for name in _FORWARDED if name in request.headers}


@contextmanager
def _reaching(elsewhere: Target) -> Iterator[None]:
    if not elsewhere.url:
        raise elsewhere.error(", but its URL is not known")
    try:
        yield
    except BrokerUnreachableError as error:
        raise elsewhere.error(f", but it cannot be reached from here: {error.message}") from error


def _count(answer: AsyncResponse, share: BudgetShare) -> None:
    """Count the answer before it is read. Raises ThrottledError."""
    try:
        share.take(int(answer.headers.get("content-length", 0)))
    except ThrottledError:
        answer.cancel()
        raise


async def _whole(answer: AsyncResponse) -> web.Response:
    return web.Response(status=answer.status, body=await answer.read(), headers=_returned(answer))


def _returned(answer: AsyncResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name in _RETURNED or name.startswith("headrace-")}


async def produce_there(
    proxy: Proxy, target: Elsewhere, query: ProduceQuery, body: Sequence[bytes | memoryview], client: str = NO_CLIENT
) -> Offset:
    """Return the offset of the first record of these batches; `client` is the address of their sender."""
    asked = {"acks": query.acks.value, "timeoutMs": query.timeout_ms, **_fenced(query.fence)}
    if query.is_committed:
        asked["committed"] = "true"
    headers = {"content-type": _BATCHES, PROXIED_HEADER.lower(): client}
    path = _partition_path(target, "records", asked)
    answer = await proxy.send(target, "POST", path, headers=headers, body=body, timeout_ms=query.timeout_ms)
    return Offset(_document(answer).get("baseOffset", 0))


async def fetch_there(proxy: Proxy, target: Elsewhere, offset: Offset, max_bytes: int, fence: Fence) -> memoryview:
    """Return whole batches, from the one that holds `offset`."""
    path = _partition_path(target, "records", {"offset": offset, "maxBytes": max_bytes, **_fenced(fence)})
    headers = {"accept": _BATCHES}
    answer = await proxy.send(target, "GET", path, headers=headers, body=(), timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT)
    if answer.status >= 300:
        _document(answer)
    assert isinstance(answer.body, bytes), "it was read whole"
    return memoryview(answer.body)


async def edge_there(proxy: Proxy, target: Elsewhere, edge: Edge, fence: Fence) -> Offset:
    """Return the offset where what can be read begins, or ends."""
    path = _partition_path(target, "offsets", {"timestamp": edge.value, **_fenced(fence)})
    answer = await proxy.send(target, "GET", path, headers={}, body=(), timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT)
    return Offset(_document(answer)["offset"])


async def delete_there(proxy: Proxy, target: Elsewhere, before: Offset, fence: Fence) -> None:
    path = _partition_path(target, "records", {"beforeOffset": before, **_fenced(fence)})
    _document(await proxy.send(target, "DELETE", path, headers={}, body=(), timeout_ms=DELETE_TIMEOUT_MS))


def _fenced(fence: Fence) -> dict[str, str]:
    return {} if fence.topic_uid is None else {"topicUid": fence.topic_uid}


def _partition_path(target: Elsewhere, resource: str, query: Mapping[str, str | int]) -> str:
    namespace, topic = (quote(part, safe="") for part in target.place.topic)
    base = f"/v1/namespaces/{namespace}/topics/{topic}/partitions/{target.place.partition}"
    return f"{base}/{resource}?{urlencode(query)}"


def _document(answer: web.Response) -> dict[str, Any]:
    """Return the document of an answer. Raises the error that a problem document names."""
    document: dict[str, Any] = json.loads(answer.text or "{}")
    if answer.status >= 300:
        raise from_problem(document, answer.status)
    return document
