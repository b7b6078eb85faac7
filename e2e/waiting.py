"""Waiting for what a cluster does in its own time: conditions with deadlines."""

import time
from collections.abc import Callable
from typing import TypeVar

from e2e.lab.errors import LabError

T = TypeVar("T")
_POLL_S = 0.25


def wait_for(ask: Callable[[], T], what: str, timeout_s: float = 60) -> T:
    """The first answer that counts as true. A command that fails is asked again. Raises AssertionError, saying why."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer, why = None, ""
        try:
            answer = ask()
        except (LabError, OSError) as error:
            why = f": {error}"
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}{why}{'' if answer is None else f' ({answer})'}")
        time.sleep(_POLL_S)
