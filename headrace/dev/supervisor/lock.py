"""One supervisor at a time: an advisory lock on a file that names its holder.

The kernel drops the lock with the process, however it dies, so a lock that is held means a supervisor that lives: the
only truth about "is it running". The pid inside is for people and for `headrace dev stop`.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.dev.supervisor.errors import AlreadyRunningError

_ATTEMPTS, _ATTEMPT_INTERVAL_S = 5, 0.02
"""`holder` takes the lock for an instant to see whether it is free: a start must not mistake that for a supervisor."""
_PATIENT_ATTEMPTS = 250
"""Of one that follows a killed supervisor, whose end may take the kernel a while."""


@contextmanager
def held(path: Path, what: str, *, patient: bool = False) -> Iterator[None]:
    """Hold the lock while the block runs. Raises AlreadyRunningError, which names the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _taken(descriptor, _PATIENT_ATTEMPTS if patient else _ATTEMPTS):
            pid = _pid_inside(descriptor)
            raise AlreadyRunningError(
                f"headrace dev already runs with this {what} ({path.parent}), as process {pid};"
                " see it with: headrace dev status, stop it with: headrace dev stop",
                pid=pid,
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)  # The next holder must not be taken for us before it has written its pid.
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """The pid of the supervisor that holds the lock; None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_inside(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _taken(descriptor: int, attempts: int) -> bool:
    for _ in range(attempts):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_ATTEMPT_INTERVAL_S)
        else:
            return True
    return False


def _pid_inside(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else None
