"""The brokers as a blocking client sees them: `Brokers.run` carries out `errands`, several threads at a time.

`Brokers` owns the transport and the directory of topics and URLs, for the lifetime of one producer or consumer. The
thread of a connection tells what happens in the streams of its sessions.

`Workers` are threads that wait for answers: one per request in flight, started when needed, up to a limit. Unlike
those of `concurrent.futures` they are daemon threads, so a program that forgets to close its consumer still ends, and
one that forgets to close its producer can still send what it has at its exit.

Commands load this module without arrays: it imports neither NumPy nor pyarrow, and no sessions.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from headrace.client.transport import calls
from headrace.client.transport.calls import Call
from headrace.client.transport.errands import BrokerErrands, Course, Errand, Listener, SessionPort, T
from headrace.core.limits import OFFSET_REQUESTS_MAX
from headrace.http2.blocking_transport import BlockingStream, BlockingTransport
from headrace.http2.exchange import Response
from headrace.http2.interrupts import HeldInterrupts


class Workers:
    def __init__(self, name: str, limit: int) -> None:
        self._name, self._limit = name, limit
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        """The number of tasks that run or wait to be run."""

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task`, which never raises, on some thread; it waits while `limit` others run.

        Where no thread can be started (Python 3.12 starts none while it ends), the caller runs the task.
        """
        with HeldInterrupts():  # The count of threads must match the threads that run.
            with self._lock:
                self._busy += 1
                start = self._busy > self._threads and self._threads < self._limit
                self._threads += start
            self._tasks.put(task)
            is_worked_on = not start or self._start()
        if not is_worked_on:
            with suppress(Empty):  # Another thread may have taken it.
                self._run(self._tasks.get_nowait())

    def _start(self) -> bool:
        """Start a thread. False: none can be started."""
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
            return False
        return True

    def stop(self) -> None:
        """Let every thread end after the task that it runs."""
        with HeldInterrupts():
            for _ in range(self._threads):
                self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._run(task)
            del task  # An idle thread keeps no batch alive.

    def _run(self, task: Callable[[], None] | None) -> None:
        assert task is not None, "nothing is submitted after stop"
        task()
        with self._lock:
            self._busy -= 1


class Brokers(BrokerErrands):
    def _open(self) -> None:
        self._closed = threading.Event()
        self._transport = BlockingTransport(self.directory.servers.ssl_context)

    def close(self) -> None:
        self._closed.set()
        self._transport.close()

    def new_lock(self) -> threading.Lock:
        return threading.Lock()

    def new_turns(self, limit: int) -> threading.Semaphore:
        return threading.Semaphore(limit)

    def new_guard(self) -> threading.Lock:
        return threading.Lock()

    def run(self, errand: Errand[T]) -> T:
        """Carry the errand out and return its result. Raises what it raises."""
        course = Course(errand)
        while course.step is not None:
            try:
                done = course.step.by(self)
            except BaseException as error:
                course.failed(error)
            else:
                course.done(done)
        return course.result

    def exchange(self, url: str, call: Call) -> Response:
        return self._transport.request(
            call.method,
            url + call.path,
            headers=self.directory.headers_of(call),
            body=call.body,
            timeout_s=call.timeout_s,
        )

    def pause(self, seconds: float) -> bool:
        return self._closed.wait(seconds)

    def alone(self, lock: AbstractContextManager[Any], errand: Errand[T]) -> T:
        with lock:
            return self.run(errand)

    def each(self, errands: Sequence[Errand[Any]]) -> list[Any]:
        answers: SimpleQueue[tuple[int, Any, Exception | None]] = SimpleQueue()
        # An executor would make Ctrl-C wait until every look-up has given up.
        workers = Workers("headrace-offsets", OFFSET_REQUESTS_MAX)
        with HeldInterrupts() as interrupts:
            try:
                for number, errand in enumerate(errands):
                    interrupts.allowing(workers.submit, partial(self._answer, number, errand, answers.put))
            finally:  # No thread is left, after an interrupt too.
                workers.stop()
        found: dict[int, Any] = {}
        while len(found) < len(errands):
            number, result, failure = answers.get()
            if failure is not None:
                raise failure
            found[number] = result
        return [found[number] for number in range(len(errands))]

    def _answer(
        self, number: int, errand: Errand[Any], tell: Callable[[tuple[int, Any, Exception | None]], None]
    ) -> None:
        try:
            tell((number, self.run(errand), None))
        except Exception as error:
            tell((number, None, error))

    def connect(self, session: SessionPort, listener: Listener) -> BlockingStream:
        return self._transport.open(
            "POST",
            session.url + calls.SESSIONS_PATH,
            headers=self.session_headers,
            listener=partial(_happened, listener, session),
            decode=session.decode,
        )


def _happened(listener: Listener, session: SessionPort, stream: BlockingStream) -> None:
    """Tell the listener what came, or that the stream is over. The connection's thread calls it."""
    is_over = stream.is_over
    chunks = stream.take()
    if chunks:
        listener.arrived(session, stream, chunks)
    if is_over:
        listener.ended(session, stream, stream.error)
