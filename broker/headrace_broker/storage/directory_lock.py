"""One process per data directory: an exclusive `flock`, which the kernel lets go of when the process ends."""

import fcntl
import os
from pathlib import Path
from typing import ClassVar

from headrace.core.errors import LocalError
from headrace_broker.storage.disk import FileHandle

LOCK_FILE = "lock"


class DataDirectoryInUseError(LocalError):
    """Another process works on this data directory; `directory`, and `pid` where it is known."""

    code: ClassVar[str] = "DataDirectoryInUse"


class DirectoryLock:
    """Held from its making until `release`, or until the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        """Raises DataDirectoryInUseError, OSError."""
        self._file: FileHandle | None = FileHandle(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file.fd, 32, 0).decode(errors="replace").strip()
            raise _in_use(directory, holder) from error
        os.ftruncate(self._file.fd, 0)
        os.pwrite(self._file.fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        self._file = None


def _in_use(directory: Path, holder: str) -> DataDirectoryInUseError:
    who = f"process {holder}" if holder.isdecimal() else "another process"
    details = {"pid": int(holder)} if holder.isdecimal() else {}
    return DataDirectoryInUseError(
        f"the data directory {directory} is in use by {who}; stop that broker, or give this one a directory of its own",
        directory=str(directory),
        **details,
    )
