"""The running supervisor of a home: the lock that it holds, and the file with the processes that run just now.

One supervisor at a time: it holds an advisory lock on a file that names it. The kernel drops the lock with the process,
however it dies, so a lock that is held means a supervisor that lives: nothing else decides whether it runs. The pid
inside is for people and for `headrace dev stop`.

Clients and `headrace dev status` read the state, which is rewritten in one step (rename) whenever a process changes,
and removed by a clean stop. After a kill -9 of the supervisor it is stale until the next one is there: so `read_state`
checks the lock first.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.dev.supervisor.errors import AlreadyRunningError, NotRunningError
from headrace.dev.supervisor.layout import lock_file, state_file

_ATTEMPTS, _ATTEMPT_INTERVAL_S = 5, 0.02
"""The attempts to take the lock: `lock_holder` takes it for an instant to see if it is free, and a start must not
mistake that for a supervisor."""
_PATIENT_ATTEMPTS = 250
"""The attempts of a start that follows a killed supervisor, whose end may take the kernel a while."""


@contextmanager
def hold_lock(path: Path, what: str, *, patient: bool = False) -> Iterator[None]:
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


def lock_holder(path: Path) -> int | None:
    """Return the pid of the supervisor that holds the lock; None when none does."""
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


@dataclass(frozen=True, slots=True)
class BrokerProcessState:
    id: int
    pid: int | None
    """The pid; None between two lives of the process."""
    url: str
    data: str


@dataclass(frozen=True, slots=True)
class DevState:
    kubeconfig: str
    api_url: str
    api_pid: int | None
    operator_pid: int | None
    brokers: tuple[BrokerProcessState, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `headrace dev status -o json` prints."""
        return {
            "kubeconfig": self.kubeconfig,
            "api": {"url": self.api_url, "pid": self.api_pid},
            "operator": {"pid": self.operator_pid},
            "brokers": [{"id": b.id, "pid": b.pid, "url": b.url, "data": b.data} for b in self.brokers],
        }

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> "DevState":
        return cls(
            kubeconfig=raw["kubeconfig"],
            api_url=raw["api"]["url"],
            api_pid=raw["api"]["pid"],
            operator_pid=raw["operator"]["pid"],
            brokers=tuple(BrokerProcessState(b["id"], b["pid"], b["url"], b["data"]) for b in raw["brokers"]),
        )


def write_state(home: Path, state: DevState) -> None:
    path = state_file(home)
    draft = path.with_suffix(".json.new")
    draft.write_text(json.dumps(state.to_json(), indent=2) + "\n")
    os.replace(draft, path)


def remove_state(home: Path) -> None:
    state_file(home).unlink(missing_ok=True)


def supervisor_pid(home: Path) -> int:
    """Return the pid. Raises NotRunningError."""
    pid = lock_holder(lock_file(home))
    if pid is not None:
        return pid
    if state_file(home).exists():
        raise NotRunningError(
            "headrace dev was killed, and its processes with it; if it ran with --detach, it is coming back by itself"
            " just now; else bring it back, with all its data, with: headrace dev --detach"
        )
    raise NotRunningError("headrace dev is not running; start it with: headrace dev --detach")


def read_state(home: Path) -> DevState:
    """Return the state of this home. Raises NotRunningError, also while the first processes are still being started."""
    pid = supervisor_pid(home)
    try:
        return DevState.parse(json.loads(state_file(home).read_text()))
    except FileNotFoundError:
        raise NotRunningError(f"headrace dev is just starting or stopping, as process {pid}; try again") from None
