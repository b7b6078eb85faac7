"""Child processes that cannot outlive their parent: a supervisor that is killed -9 leaves nothing running unnoticed.

Linux only (prctl's PR_SET_PDEATHSIG), as Headrace is. The signal is SIGKILL, so that the ports are free for the next
start at once; what the children hold must survive that anyway.
"""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> Callable[[], None]:
    """A `preexec_fn` for a child of `parent` (the caller's own pid). The kernel watches the thread that starts it."""

    def ask_the_kernel() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between fork and prctl, and no signal will come
            os._exit(1)

    return ask_the_kernel
