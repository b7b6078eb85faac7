"""The brokers as an asyncio client sees them: `AsyncBrokers.run` carries out `errands` on one event loop.

`AsyncBrokers` owns the transport and the directory of topics and URLs, for the lifetime of one producer or consumer.
Every await may be cancelled: the request is reset, and the directory stays as it was. One task reads each
session's stream; nothing is awaited between a step of the session and the news of it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from headrace.client.transport import calls
from headrace.client.transport.calls import Call
from headrace.client.transport.errands import BrokerErrands, Course, Errand, Listener, SessionPort, T
from headrace.core.errors import BrokerUnreachableError, HeadraceError, LocalError
from headrace.core.limits import OFFSET_REQUESTS_MAX
from headrace.http2.async_transport import AsyncStream, AsyncTransport
from headrace.http2.exchange import Response


class AsyncBrokers(BrokerErrands):
    def _open(self) -> None:
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
        """Raise LocalError on another loop than the first, and RuntimeError without a loop."""
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

    async def run(self, errand: Errand[T]) -> T:
        """Carry the errand out and return its result. Raises what it raises."""
        course = Course(errand)
        while course.step is not None:
            try:
                done = await course.step.by(self)
            except BaseException as error:
                course.failed(error)
            else:
                course.done(done)
        return course.result

    async def pause(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        return self._closed.is_set()

    async def alone(self, lock: asyncio.Lock | asyncio.Semaphore, errand: Errand[T]) -> T:
        async with lock:
            return await self.run(errand)

    async def exchange(self, url: str, call: Call) -> Response:
        """Send the call, and return the whole response within the call's time limit."""
        url_of_call, headers = url + call.path, self.directory.headers_of(call)
        try:
            async with asyncio.timeout(call.timeout_s):
                head = await self._transport.request(
                    call.method, url_of_call, headers=headers, body=call.body, timeout_s=call.timeout_s
                )
                return Response(head.status, head.headers, await head.read())
        except TimeoutError:
            raise BrokerUnreachableError(f"{url} did not answer within {call.timeout_s:g} s") from None

    async def each(self, errands: Sequence[Errand[Any]]) -> list[Any]:
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

    async def connect(self, session: SessionPort, listener: Listener) -> AsyncStream:
        url = session.url + calls.SESSIONS_PATH
        stream = await self._transport.open("POST", url, headers=self.session_headers, decode=session.decode)
        task = asyncio.get_running_loop().create_task(_read(listener, session, stream), name="headrace-session")
        self._readers.add(task)
        task.add_done_callback(partial(self._done, listener, session))
        return stream

    def _done(self, listener: Listener, session: SessionPort, task: asyncio.Task[None]) -> None:
        """Note that the task has ended. A task that is cancelled before it has begun reports nothing itself."""
        self._readers.discard(task)
        if task.cancelled():
            listener.cancelled(session)


async def _read(listener: Listener, session: SessionPort, stream: AsyncStream) -> None:
    try:
        while chunks := await stream.receive(None):
            listener.arrived(session, stream, chunks)
    except HeadraceError as error:
        listener.ended(session, stream, error)
    else:
        listener.ended(session, stream)
