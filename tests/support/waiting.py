"""Waiting for a condition with a deadline, for tests that watch other processes: the only place that sleeps.

Deadlines are said as an idle machine would need them, and are longer where the machine is slow:
`tests.support.patience`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.patience import patient

_INTERVAL_S = 0.02
T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
    """The first answer that is not None or False. Fails, saying `what` was waited for, when the time is over."""
    limit_s = patient(timeout_s)
    deadline = time.monotonic() + limit_s
    while True:
        answer = condition()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(_INTERVAL_S)


async def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """The same beside other tasks."""
    limit_s = patient(timeout_s)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        await asyncio.sleep(_INTERVAL_S)


async def observed(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], what: str, timeout_s: float = 60.0
) -> T:
    """What `look` sees once that `holds`, for conditions that must be asked for. A failure shows what was seen last."""
    limit_s = patient(timeout_s)
    deadline = time.monotonic() + limit_s
    while not holds(seen := await look()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s, but {seen}"
        await asyncio.sleep(_INTERVAL_S)
    return seen
