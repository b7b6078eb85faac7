"""A file that only takes up room: given up when the disk is full, so that there is some for what a broker must write.

The reserve of a broker (`headrace.core.log.disk_quota`) keeps its own records off the last of the disk, but others may
write to the same volume. A start writes its incarnation before anything else: without room for that, it could not even
delete what retention is over for. Blocks; one caller at a time.
"""

import os
from pathlib import Path
from typing import Final

from headrace.core.limits import DISK_BALLAST_BYTES
from headrace_broker.storage.disk import TEMPORARY_SUFFIX, fsync_directory
from headrace_broker.storage.disk_space import Volume

BALLAST_FILE: Final = "ballast"
_ROOM_FOR_IT: Final = 4
"""Taken where the volume has so many times its size free."""


class Ballast:
    def __init__(self, directory: Path) -> None:
        self._path = directory / BALLAST_FILE
        self._is_there = self._path.exists()

    def give_up_where_full(self, volume: Volume) -> None:
        """Raises OSError."""
        if self._is_there and volume.free_bytes < DISK_BALLAST_BYTES:
            self._path.unlink()
            fsync_directory(self._path.parent)
            self._is_there = False

    def tend(self, volume: Volume) -> None:
        """Give it up on a full volume, take it again on one that has room. Raises OSError."""
        self.give_up_where_full(volume)
        if not self._is_there and volume.free_bytes >= _ROOM_FOR_IT * DISK_BALLAST_BYTES:
            self._take()
            self._is_there = True

    def _take(self) -> None:
        new = self._path.with_name(BALLAST_FILE + TEMPORARY_SUFFIX)
        with open(new, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, DISK_BALLAST_BYTES)
            os.fsync(file.fileno())
        os.rename(new, self._path)
