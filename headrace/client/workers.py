"""Threads that wait for answers: one per request in flight, started when they are needed, up to a limit.

Unlike `concurrent.futures` these are daemon threads, so a program that forgets to close its consumer still ends, and
one that forgets to close its producer can still send what it has at its exit. Owned by one producer or consumer.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from headrace.http2.interrupts import HeldInterrupts


class Workers:
    def __init__(self, name: str, limit: int) -> None:
        self._name, self._limit = name, limit
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        """Tasks that run or wait to be run."""

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task`, which never raises, on some thread; it waits while `limit` others run.

        Where no thread is to be had (Python 3.12 starts none while it ends), the caller works.
        """
        with HeldInterrupts():  # The threads that are counted are those that are there.
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
        """False: no thread is to be had."""
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
