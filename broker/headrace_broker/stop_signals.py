"""SIGTERM and SIGINT, from the first moment of a process to its last: the way to ask a broker to stop.

The kernel drops signals to the first process of a container for which it has no handler. A Pod that is deleted while
its broker loads modules, opens its disk, or is between two lives would be there until its grace is over. So these
handlers come before everything else and stay; a life that begins gets the signals that came before.

There is one per process, of its main thread. Handlers run between any two instructions: they only take note.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

Told = Callable[[signal.Signals], None]


class StopSignals:
    def __init__(self) -> None:
        self.asked: list[signal.Signals] = []
        """The first two signals that came: a third one adds nothing."""
        self._told = 0
        """The number of them that the present life has got."""
        self._tell: Told | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    @contextmanager
    def noted(cls) -> Iterator[Self]:
        signals = cls()
        before = {number: signal.signal(number, signals._note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield signals
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def passed_to(self, tell: Told) -> Iterator[None]:
        """Pass signals to `tell` on the running event loop; earlier ones are passed at once."""
        self._told, self._tell, self._loop = 0, tell, asyncio.get_running_loop()
        self._tell_all()
        try:
            yield
        finally:
            self._tell = self._loop = None

    def _note(self, number: int, _: FrameType | None) -> None:
        if len(self.asked) < 2:
            self.asked.append(signal.Signals(number))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell_all)

    def _tell_all(self) -> None:
        while self._tell is not None and self._told < len(self.asked):
            self._told += 1
            self._tell(self.asked[self._told - 1])
