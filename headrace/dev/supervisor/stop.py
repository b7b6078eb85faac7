"""Ends a running supervisor from outside, and waits until it is gone."""

import contextlib
import os
import signal
import time
from pathlib import Path

from headrace.dev.supervisor.layout import lock_file, state_file
from headrace.dev.supervisor.lock import holder
from headrace.dev.supervisor.workload_objects import STOP_GRACE_S

_PATIENCE_S = STOP_GRACE_S + 30.0
"""More than the supervisor's own patience with its children."""
_SUCCESSION_S = 5.0
"""How long a successor may take to be there."""
_POLL_S = 0.02


def stop_supervisor(home: Path) -> bool:
    """Whether there was one. SIGTERM, and SIGKILL (which its children do not survive) when that does not help."""
    pid = holder(lock_file(home))
    if pid is None and state_file(home).exists():
        pid = _successor(lock_file(home))
    if pid is None:
        return False
    while pid is not None:
        pid = _end(pid, lock_file(home))
    return True


def _successor(lock: Path) -> int | None:
    """Of a supervisor that was killed just now: else it would come back behind the back of whoever wants it stopped."""
    deadline = time.monotonic() + _SUCCESSION_S
    while (pid := holder(lock)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return pid


def _end(pid: int, lock: Path) -> int | None:
    """Stop this supervisor; the pid of one that has taken over from it, where it had to be killed."""
    _signal(pid, signal.SIGTERM)
    deadline, successor_by = time.monotonic() + _PATIENCE_S, 0.0
    while (now := holder(lock)) == pid or time.monotonic() < successor_by:
        if now not in (None, pid):
            return now
        if now == pid and time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
            successor_by = time.monotonic() + _SUCCESSION_S
        time.sleep(_POLL_S)
    return None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
