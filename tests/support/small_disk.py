"""A small file system of its own for one directory: a tmpfs in a mount namespace, which a sleeping process holds.

Other processes see it by starting under `prefix`; this one through /proc. It goes with its holder.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import cannot_run, require_tool

_READY = b"mounted\n"


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path
    """What is on it, for this process."""
    prefix: tuple[str, ...]
    """Starts a program that sees it in its place."""

    def fill(self, name: str) -> None:
        """Write a file until not a byte is left."""
        with (self.path / name).open("wb", buffering=0) as file:
            for block_bytes in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(block_bytes))
                except OSError:
                    continue

    @property
    def free_bytes(self) -> int:
        seen = os.statvfs(self.path)
        return seen.f_bavail * seen.f_frsize


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mounted on `directory`, which is made."""
    directory.mkdir(parents=True)
    as_root = os.geteuid() == 0
    namespaces = ["--mount"] if as_root else ["--mount", "--user", "--map-root-user"]
    script = f'mount -t tmpfs -o size={size_bytes} none "$0" && echo mounted && exec sleep 600'
    holder = subprocess.Popen(
        [require_tool("unshare"), *namespaces, "sh", "-c", script, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != _READY:
            cannot_run(f"no file system can be mounted here: {holder.stderr.read().decode().strip()}")
        enter = ["--mount"] if as_root else ["--mount", "--user", "--preserve-credentials"]
        prefix = (require_tool("nsenter"), f"--target={holder.pid}", *enter, f"--wd={Path.cwd()}")
        yield SmallDisk(Path(f"/proc/{holder.pid}/root{directory}"), prefix)
    finally:
        holder.kill()
        holder.communicate()
