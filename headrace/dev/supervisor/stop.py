"""Ends a running supervisor from outside, and waits until it is gone."""

import contextlib
import os
import signal
import time
from pathlib import Path

from headrace.dev.supervisor.layout import lock_file
from headrace.dev.supervisor.lock import holder

_PATIENCE_S = 60.0
"""More than the supervisor's own patience with its children."""
_POLL_S = 0.02


def stop_supervisor(home: Path) -> bool:
    """Whether there was one. SIGTERM, and SIGKILL (which its children do not survive) when that does not help."""
    pid = holder(lock_file(home))
    if pid is None:
        return False
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while holder(lock_file(home)) == pid:
        if time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
