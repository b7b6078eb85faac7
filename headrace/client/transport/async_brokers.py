"""The brokers as an asyncio client sees them: `AsyncBrokers.run` carries out `errands` on one event loop.

`AsyncBrokers` owns the transport and what is known of topics and URLs, for the lifetime of one producer or consumer.
Every await may be cancelled: the request is reset, and nothing is known that was not known before. One task reads each
session's stream; nothing is awaited between a step of the session and the news of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar, assert_never

from headrace.client.clock import now_ms
from headrace.client.transport import calls
from headrace.client.transport.calls import Call
from headrace.client.transport.discovery import Servers
from headrace.client.transport.errands import (
    Alone,
    BrokerErrands,
    Connect,
    Each,
    Errand,
    Exchange,
    Listener,
    Pause,
    Session,
    Step,
)
from headrace.core.errors import BrokerUnreachableError, HeadraceError, LocalError
from headrace.core.limits import OFFSET_REQUESTS_MAX
from headrace.http2.async_transport import AsyncStream, AsyncTransport
from headrace.http2.exchange import Response

T = TypeVar("T")


class AsyncBrokers(BrokerErrands):
    def __init__(
        self,
        server: str | Servers | None,
        namespace: str | None,
        *,
        ca_file: str | None = None,
        timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        super().__init__(
            server, namespace, ca_file=ca_file, timeout_ms=timeout_ms, request_timeout_ms=request_timeout_ms
        )
        self._closed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: set[asyncio.Task[None]] = set()
        """The tasks that read the streams of sessions."""
        self._transport = AsyncTransport(self.directory.servers.ssl_context)

    async def close(self) -> None:
        """End the reading of sessions, and the connections."""
        self._closed.set()
        readers = list(self._readers)
        for task in readers:
            task.cancel()
        try:
            await asyncio.gather(*readers, return_exceptions=True)
        finally:
            await self._transport.close()

    def check_loop(self) -> None:
        """Raises LocalError on another loop than the first, and where there is none RuntimeError."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            raise LocalError("this client belongs to another event loop: make one for each loop")

    def new_lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    def new_turns(self, limit: int) -> asyncio.Semaphore:
        return asyncio.Semaphore(limit)

    def new_guard(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def run(self, errand: Errand[T], do: Callable[[Any], Awaitable[Any]] | None = None) -> T:
        """Carry it out and return what it gives. Raises what it raises. `do` is for whoever has steps of his own."""
        carry_out = do or self.do
        try:
            step = next(errand)
            while True:
                try:
                    done = await carry_out(step)
                except BaseException as error:
                    step = errand.throw(error)
                else:
                    step = errand.send(done)
        except StopIteration as ended:
            result: T = ended.value
            return result

    async def do(self, step: Step) -> Any:
        """Carry out one step of an errand."""
        match step:
            case Exchange(url, call):
                return await self._exchange(url, call)
            case Pause(until_ms):
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0, until_ms - now_ms()) / 1000):
                        await self._closed.wait()
                return self._closed.is_set()
            case Alone(lock, errand):
                async with lock:
                    return await self.run(errand)
            case Each(errands):
                return await self._each(errands)
            case Connect(session, listener):
                return await self._connect(session, listener)
            case _:
                assert_never(step)

    async def _exchange(self, url: str, call: Call) -> Response:
        """The whole response within the call's time limit."""
        headers = self.directory.headers_of(call)
        try:
            async with asyncio.timeout(call.timeout_s):
                head = await self._transport.request(
                    call.method, url + call.path, headers=headers, body=call.body, timeout_s=call.timeout_s
                )
                return Response(head.status, head.headers, await head.read())
        except TimeoutError:
            raise BrokerUnreachableError(f"{url} did not answer within {call.timeout_s:g} s") from None

    async def _each(self, errands: Sequence[Errand[Any]]) -> list[Any]:
        turn = asyncio.Semaphore(OFFSET_REQUESTS_MAX)

        async def run_in_turn(errand: Errand[Any]) -> Any:
            async with turn:
                return await self.run(errand)

        tasks = [asyncio.create_task(run_in_turn(errand)) for errand in errands]
        try:
            return await asyncio.gather(*tasks)
        finally:  # The first failure ends the others, as a cancellation does.
            for task in tasks:
                task.cancel()

    async def _connect(self, session: Session, listener: Listener) -> AsyncStream:
        url = session.url + calls.SESSIONS_PATH
        stream = await self._transport.open("POST", url, headers=self.session_headers, decode=session.decode)
        task = asyncio.get_running_loop().create_task(_read(listener, session, stream), name="headrace-session")
        self._readers.add(task)
        task.add_done_callback(partial(self._done, listener, session))
        return stream

    def _done(self, listener: Listener, session: Session, task: asyncio.Task[None]) -> None:
        """A task may be cancelled before it has begun: it says nothing then."""
        self._readers.discard(task)
        if task.cancelled():
            listener.cancelled(session)


async def _read(listener: Listener, session: Session, stream: AsyncStream) -> None:
    refusal: list[bytes] = []
    try:
        while chunks := await stream.receive(None):
            if stream.status >= 400:
                refusal += chunks
            else:
                listener.arrived(session, chunks)
    except HeadraceError as error:
        listener.ended(session, stream, refusal, error)
    else:
        listener.ended(session, stream, refusal)
