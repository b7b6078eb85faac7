"""A broker in a bad hour, for clients that are to get over it: a server in front of a real one.

Of each kind of request (write, read, watch) it refuses the first, with a problem that may pass. The next watch it
breaks off after the first record.
"""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from headrace.core.errors import PROBLEM_CONTENT_TYPE, PartitionOfflineError, to_problem
from headrace.http2.async_transport import AsyncResponse, AsyncTransport
from headrace.http2.bridge import break_off
from headrace.http2.server import serve
from tests.support.patience import patient

_PASSED_ON = ("content-type", "accept")
_RETURNED = ("content-type", "headrace-next-offset")


@contextmanager
def unsteady(upstream: str, ssl_context: ssl.SSLContext | None) -> Iterator[int]:
    """The port that it listens on."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    front = _Front(upstream)
    try:
        yield asyncio.run_coroutine_threadsafe(front.start(ssl_context), loop).result(patient(30))
    finally:
        asyncio.run_coroutine_threadsafe(front.close(), loop).result(patient(30))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Front:
    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._requests: Counter[str] = Counter()

    async def start(self, ssl_context: ssl.SSLContext | None) -> int:
        self._transport = AsyncTransport()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._server = await serve(application, host="127.0.0.1", port=0, ssl_context=ssl_context)
        return self._server.port

    async def close(self) -> None:
        await self._server.close(1.0)
        await self._transport.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = "watch" if request.query.get("watch") == "true" else request.method
        self._requests[kind] += 1
        if self._requests[kind] == 1:
            return _refusal()
        answer = await self._transport.request(
            request.method,
            self._upstream + request.path_qs,
            headers={name: request.headers[name] for name in _PASSED_ON if name in request.headers},
            body=await request.read(),
        )
        return await _passed_on(request, answer, breaks_off=(kind, self._requests[kind]) == ("watch", 2))


def _refusal() -> web.Response:
    problem = to_problem(PartitionOfflineError("default/flights/0 has no leader just now; try again"))
    return web.json_response(problem, status=503, content_type=PROBLEM_CONTENT_TYPE, headers={"Retry-After": "1"})


async def _passed_on(request: web.Request, answer: AsyncResponse, *, breaks_off: bool) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async for chunk in answer.chunks():
        line, end, _ = chunk.partition(b"\n")
        if breaks_off and line:
            await response.write(line + end)
            answer.cancel()
            break_off(request)
            return response
        await response.write(chunk)
    await response.write_eof()
    return response
