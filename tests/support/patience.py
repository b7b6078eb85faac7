"""The time that tests wait for what must happen: a deadline finds what hangs, and judges no machine.

The machine is measured once, where a run starts: how long a fixed piece of work takes beside all that runs there, and
how many processes wait for a processor. All deadlines of tests are given to `patient`, which makes them longer by
that factor. Processes that a test starts, workers of pytest among them, inherit it in HEADRACE_TEST_PATIENCE; whoever
sets that variable says it in place of the measurement. Load may come later than the start: no factor is below
FACTOR_MIN. A limit that belongs to the product (`timeout_ms=300` of a call that must give up) is none of these.
"""

import os
import time
from typing import Final

FACTOR_MIN: Final = 2.0
FACTOR_MAX: Final = 12.0
_NAME: Final = "HEADRACE_TEST_PATIENCE"
_ROUNDS: Final = 1_500
_CALM_S: Final = 0.12
"""The time of the work on an ordinary processor that does nothing else."""


def patient(seconds: float) -> float:
    """Return the deadline that this machine gets where an idle, ordinary one would have to do it in `seconds`."""
    return seconds * factor()


def factor(workers: int = 1) -> float:
    """Return by how much deadlines are longer here.

    The first call of a run measures it, for so many `workers`, and tells its children.
    """
    if _NAME not in os.environ:
        os.environ[_NAME] = f"{factor_of(_work_s(), os.getloadavg()[0] + workers, os.cpu_count() or 1):.2f}"
    return float(os.environ[_NAME])


def factor_of(work_s: float, load: float, processors: int) -> float:
    """Return the factor of a machine that takes `work_s` for the work, and on which `load` processes want to run."""
    return min(FACTOR_MIN * max(1.0, work_s / _CALM_S, load / processors), FACTOR_MAX)


def _work_s() -> float:
    """Do a fixed piece of work, and return how long it took, the waiting for a processor included."""
    started = time.perf_counter()
    for _ in range(_ROUNDS):
        sorted(str(number) for number in range(1_000))
    return time.perf_counter() - started
