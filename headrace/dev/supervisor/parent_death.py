"""Child processes that cannot outlive their parent: a supervisor that is killed -9 leaves no process behind.

Linux only (prctl's PR_SET_PDEATHSIG), as Headrace is. The signal is SIGKILL, so that the ports are free for the next
start at once; what the children hold must survive that anyway. This file is also the program that does it: it asks
the kernel and then becomes the child (exec, same pid). Doing that in `preexec_fn` would mean Python code between fork
and exec of a process that has threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def dying_with_parent(arguments: list[str]) -> list[str]:
    """The command line that runs `arguments` as a child of this process, for as long as this process lives.

    The kernel watches the thread that starts the child: start the child from one that stays.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def die_with(parent: int) -> bool:
    """Let the kernel kill this process when its parent ends. Return False where that is not `parent`, which has ended
    then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent  # Otherwise the parent died before the kernel was asked, and no signal will come.


def _become(parent: int, arguments: list[str]) -> None:
    if die_with(parent):
        os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
