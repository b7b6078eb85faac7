"""The lab's processes, found by what they are in: its network namespace, or a root filesystem of its containerd.

There are no pid files, so nothing can be stale, and a start that broke off anywhere leaves nothing that is not found.
"""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.errors import LabError
from e2e.lab.home import lab_home
from e2e.lab.network import NAMESPACE_FILE, inside
from e2e.lab.packages import SYSTEM_PATH

_POLL_S = 0.05
_KILL_TIMEOUT_S = 15
_CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    program: str
    """The name of its file."""

    def signal(self, number: signal.Signals) -> None:
        """Fine where it has ended already."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def start(name: str, command: list[str | Path], run: Path) -> None:
    """Run `command` in the lab's namespace, as no child of this process; what it says is in `run`/`name`.log."""
    with (run / f"{name}.log").open("wb") as output:
        subprocess.run(
            ["setsid", "--fork", *inside(*command)],
            cwd=run,
            env={
                "PATH": f"{Path(command[0]).parent}:{SYSTEM_PATH}",
                "HOME": str(run),
                "LAB_HOME": str(lab_home()),
                "PYTHONPATH": str(_CHECKOUT),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
        )


def daemons() -> list[Process]:
    """All that run in the lab's namespace: what `start` started, and the shims of containers."""
    try:
        namespace = NAMESPACE_FILE.stat()
    except FileNotFoundError:
        return []
    return [process for process in _all() if _is_in(process, namespace)]


def daemon(program: str) -> Process:
    """The one of this name. Raises LabError when it does not run."""
    for process in daemons():
        if process.program == program:
            return process
    raise LabError(f"{program} of the lab does not run; see make lab-up")


def of_containers(containerd_root: Path) -> list[Process]:
    """All that have an overlay of this containerd as their root filesystem."""
    mark = f"upperdir={containerd_root}/"
    return [process for process in _all() if mark in _root_mount(process)]


def kill_all(containerd_root: Path) -> None:
    """End all of them; kubelet first, which would start others. Raises LabError when some stay."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while ours := [*daemons(), *of_containers(containerd_root)]:
        for process in sorted(ours, key=lambda process: process.program != "kubelet"):
            process.signal(signal.SIGKILL)
        if time.monotonic() > deadline:
            raise LabError(f"processes of the lab do not end: {', '.join(str(process.pid) for process in ours)}")
        time.sleep(_POLL_S)


def _all() -> list[Process]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                target = (entry / "exe").readlink()
            except OSError:  # It has ended, or it is a thread of the kernel.
                continue
            found.append(Process(int(entry.name), target.name.removesuffix(" (deleted)")))
    return found


def _is_in(process: Process, namespace: os.stat_result) -> bool:
    try:
        own = Path(f"/proc/{process.pid}/ns/net").stat()
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (namespace.st_dev, namespace.st_ino)


def _root_mount(process: Process) -> str:
    """Its line of the kernel's table of mounts; those of containers are in this machine's table as well."""
    try:
        table = Path(f"/proc/{process.pid}/mountinfo").read_text(errors="replace")
    except OSError:
        return ""
    return next((line for line in table.splitlines() if line.split(" ")[4] == "/"), "")
