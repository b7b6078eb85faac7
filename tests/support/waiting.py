"""Waiting for a condition with a deadline, for tests that watch other processes: the only place that sleeps.

Deadlines are said as an idle machine would need them, and are longer where the machine is slow:
`tests.support.patience`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.patience import patient

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
    """The first answer that is not None or False. Fails, saying `what` was waited for, when the time is over."""
    wait = _Wait(timeout_s)
    while True:
        answer = condition()
        if answer is not None and answer is not False:
            return answer
        time.sleep(wait.pause_s(what))


async def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """The same beside other tasks."""
    wait = _Wait(timeout_s)
    while True:
        if condition():
            return
        await asyncio.sleep(wait.pause_s(what))


async def observed(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], what: str, timeout_s: float = 60.0
) -> T:
    """What `look` sees once that `holds`, for conditions that must be asked for. A failure shows what was seen last."""
    wait = _Wait(timeout_s)
    while True:
        seen = await look()
        if holds(seen):
            return seen
        await asyncio.sleep(wait.pause_s(what, f", but {seen}"))


class _Wait:
    """Says how long to wait until the next look: a look may cost many processes something.

    That is a tenth of the time that was waited, within bounds, and no less than the last look took.
    """

    _SHORTEST_S, _LONGEST_S = 0.02, 0.1

    def __init__(self, timeout_s: float) -> None:
        self._limit_s = patient(timeout_s)
        self._began = self._looking_since = time.monotonic()

    def pause_s(self, what: str, seen: str = "") -> float:
        """Fails when the time is over."""
        now = time.monotonic()
        waited_s, looked_s = now - self._began, now - self._looking_since
        assert waited_s < self._limit_s, f"{what}: not within {self._limit_s:g} s{seen}"
        pause_s = max(self._SHORTEST_S, min(self._LONGEST_S, waited_s / 10), looked_s)
        self._looking_since = now + pause_s
        return pause_s
