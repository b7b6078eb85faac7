"""Takes the lab down, whole or half-started: processes, mounts, cgroups, namespace, state. Logs stay, to be read.

Everything is found by what it is (see `processes`), and a second call finds nothing more to do.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from e2e.lab import network
from e2e.lab.errors import LabError
from e2e.lab.home import run_folder
from e2e.lab.processes import kill_all


def take_down(say: Callable[[str], None]) -> None:
    """Raises LabError when a process does not end, or a mount stays."""
    run = run_folder()
    was_there = network.exists()
    kill_all(run / "images")
    _unmount(run)
    network.delete()
    _remove_cgroups()
    _remove_state(run)
    say("the lab is down" if was_there else "the lab was not up")


def mounts_below(folder: Path) -> list[Path]:
    """Innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [Path(line.split(" ")[1].encode().decode("unicode_escape")) for line in lines]
    return sorted((point for point in points if point.is_relative_to(folder)), reverse=True)


def _unmount(run: Path) -> None:
    for point in mounts_below(run):
        subprocess.run(["umount", "--lazy", point], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if left := mounts_below(run):  # What is deleted below a mount may be anybody's.
        raise LabError(f"these stay mounted, unmount them: {', '.join(map(str, left))}")


def _remove_cgroups() -> None:
    """Of pods, where nothing is in them any more: the kernel refuses to remove another one."""
    for top in sorted(Path("/sys/fs/cgroup").glob("**/kubepods")):
        for folder in sorted((path for path in [top, *top.rglob("*")] if path.is_dir()), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                continue


def _remove_state(run: Path) -> None:
    if not run.exists():
        return
    for entry in run.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.suffix != ".log":
            entry.unlink()
