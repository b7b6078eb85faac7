"""An API server on a bad day: what stands between some processes and the real one, and answers as it is told.

Everything passes through unchanged, watches too, unless a rule says otherwise about a request:

    Answer(status)     an error of the API server's own, and nothing happens behind it
    Lost(after_s)      it is carried out after so long, and the answer is lost: whoever asked has given up by then
    Cut                the connection ends in the middle: of a watch, after its first lines

Runs on a loop of its own in a thread. Rules are asked in that thread: they must be quick, and pure but for a counter.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from tests.support.patience import patient

_BODY_BYTES_MAX: Final = 8 << 20
_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "host", "content-encoding"})
_REASONS: Final = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int


@dataclass(frozen=True, slots=True)
class Lost:
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    pass


Behaviour: TypeAlias = Answer | Lost | Cut | None
Rule: TypeAlias = Callable[[str, str, str], Behaviour]
"""Of method, path and query; None lets it pass."""


def let_pass(method: str, path: str, query: str) -> Behaviour:
    """The rule of a good day."""
    return None


class UnrulyApi:
    """`rule` may be set at any time; `counts` has how often it spoke."""

    def __init__(self, target: str) -> None:
        self.rule: Rule = let_pass
        self.counts: dict[str, int] = {}
        self.port = 0
        self._target = target
        self._late: set[asyncio.Task[None]] = set()

    async def serve(self, started: threading.Event, stopped: asyncio.Event) -> None:
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "0.0.0.0", 0)
        async with ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False) as session:
            self._session = session
            await site.start()
            self.port = runner.addresses[0][1]
            started.set()
            await stopped.wait()
            for task in self._late:
                task.cancel()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        behaviour = self.rule(request.method, request.path, request.query_string)
        if behaviour is not None:
            name = type(behaviour).__name__
            self.counts[name] = self.counts.get(name, 0) + 1
        match behaviour:
            case Answer(status):
                return web.json_response(_status(status), status=status)
            case Lost(after_s):
                late = asyncio.create_task(self._carry_out_late(request, body, after_s))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
                await asyncio.get_running_loop().create_future()  # until whoever asked has given up
        return await self._pass_on(request, body, cut=isinstance(behaviour, Cut))

    async def _carry_out_late(self, request: web.Request, body: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with suppress(ClientError, OSError):
            async with self._asked(request, body) as answer:
                await answer.read()

    async def _pass_on(self, request: web.Request, body: bytes, *, cut: bool) -> web.StreamResponse:
        try:
            async with self._asked(request, body) as answer:
                headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
                response = web.StreamResponse(status=answer.status, headers=headers)
                if coding := answer.headers.get("Content-Encoding"):
                    response.headers["Content-Encoding"] = coding
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                    if cut:
                        break
                if cut and request.transport is not None:
                    request.transport.abort()
                await response.write_eof()
                return response
        except (ClientError, OSError) as error:
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPBadGateway(text=str(error)) from error

    def _asked(self, request: web.Request, body: bytes) -> Any:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        return self._session.request(request.method, self._target + request.path_qs, headers=headers, data=body or None)


def _status(code: int) -> dict[str, Any]:
    reason = _REASONS.get(code, "Unknown")
    message = f"{reason}: the harness said so"
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


def is_watch(query: str) -> bool:
    return "watch=" in query and "watch=false" not in query and "watch=0" not in query


@contextmanager
def unruly(target: str) -> Iterator[UnrulyApi]:
    api, loop = UnrulyApi(target), asyncio.new_event_loop()
    started, stopped = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(api.serve(started, stopped)), daemon=True)
    thread.start()
    assert started.wait(patient(60))
    try:
        yield api
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(patient(60))
        loop.close()
