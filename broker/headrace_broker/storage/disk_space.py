"""How full the disk is: what the file system has left, and what one directory holds. Blocks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace_broker.storage.disk import storage_errors


class Volume(NamedTuple):
    free_bytes: int
    """What this process may still write."""
    volume_bytes: int


def volume_of(path: Path) -> Volume:
    """The file system that `path` lies on. Raises StorageFailedError."""
    with storage_errors(f"asking how full the volume of {path} is"):
        seen = os.statvfs(path)
    return Volume(seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize)


def bytes_in(directory: Path) -> int:
    """Of all files below; what goes away meanwhile may be counted or not. Raises StorageFailedError."""
    with storage_errors(f"counting the files in {directory}"):
        return sum(_sizes(str(directory)))


def _sizes(directory: str) -> Iterator[int]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                else:
                    yield _size(entry)
    except FileNotFoundError:
        return


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
