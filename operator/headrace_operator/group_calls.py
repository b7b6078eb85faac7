"""Sends the requests of errands to brokers: any of them passes a request on to whoever it is for. Decides nothing.

One per process; a broker that cannot be reached is passed over. Used in one event loop.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from headrace.core.control.group_errands import Answer, Errand, Verdict
from headrace.core.errors import BrokerUnreachableError, HeadraceError, RemoteError, from_problem
from headrace.core.groups.requests import Call
from headrace.core.limits import GROUP_ERRAND_REQUESTS_MAX, GROUP_ERRAND_TIMEOUT_MS
from headrace.http2.async_transport import AsyncTransport
from headrace_operator.reporter import content_of

_TIMEOUT_S = GROUP_ERRAND_TIMEOUT_MS / 1000
_HEADERS = {"content-type": "application/json", "accept": "application/json"}


class GroupCalls:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def carry_out(self, errand: Errand, urls: Sequence[str]) -> Verdict:
        """`urls` of the brokers, the one that will know most likely first."""
        places = asyncio.Semaphore(GROUP_ERRAND_REQUESTS_MAX)
        try:
            calls = next(errand)
            while True:
                calls = errand.send(await asyncio.gather(*(self._answer(call, urls, places) for call in calls)))
        except StopIteration as end:
            verdict: Verdict = end.value
            return verdict

    async def _answer(self, call: Call, urls: Sequence[str], places: asyncio.Semaphore) -> Answer:
        async with places:
            error: HeadraceError = BrokerUnreachableError("no broker is ready")
            for url in urls:
                try:
                    return await self._call(call, url)
                except BrokerUnreachableError as unreachable:
                    error = unreachable
                except HeadraceError as answered:
                    return answered
            return error

    async def _call(self, call: Call, url: str) -> Any:
        """Raises what the broker answers."""
        body = b"" if call.body is None else json.dumps(call.body).encode()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await self._transport.request(
                    call.method, url + call.path, headers=_HEADERS, body=body, timeout_s=_TIMEOUT_S
                )
                content = await content_of(response)
        except (TimeoutError, OSError) as error:
            raise BrokerUnreachableError(f"{url}: {str(error) or repr(error)}") from error
        answer = _parsed(content)
        if response.status >= 300:
            raise from_problem(answer, response.status)
        return answer


def _parsed(content: bytes) -> dict[str, Any]:
    """Raises RemoteError."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RemoteError(f"a broker answers what is no JSON object: {content[:200].decode(errors='replace')}")
    return answer
