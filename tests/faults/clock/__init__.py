"""A wall clock that is wrong, for processes that load it (LD_PRELOAD); monotonic clocks stay right.

`environment(offset_s)` is what a process must find beside its own environment.
"""

from pathlib import Path
from typing import Final

from tests.faults.preloaded import preloaded

_SOURCE: Final = Path(__file__).with_name("wrong_clock.c")


def environment(offset_s: int) -> dict[str, str]:
    return {"LD_PRELOAD": str(preloaded(_SOURCE)), "HEADRACE_CLOCK_OFFSET_S": str(offset_s)}
