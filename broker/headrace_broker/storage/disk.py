"""Files as the log needs them, and the room for them: descriptors that outlive their readers, whole writes, atomic
small files, typed errors; how full the volume is.

A `FileHandle` closes its descriptor when the last reference to it goes, not before: a segment may be deleted or
replaced while a thread reads from it, and a descriptor that was closed too early would by then name another file.

`Ballast` is a file that only takes up room: given up when the disk is full, so that there is some for the broker's own
writes. The reserve of a broker (`headrace.core.log.disk_quota`) keeps its own records off the last of the disk, but
others may write to the same volume. A start writes its incarnation before anything else: without room for that, it
could not even delete segments that retention is over for.

Everything here blocks, except `read_cached`. Called by the other modules of this package, and by `broker_disk`.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from headrace.core.errors import CorruptLogError, DiskFullError, HeadraceError, StorageFailedError, ThrottledError
from headrace.core.limits import DISK_BALLAST_BYTES, READ_INLINE_BYTES_MAX, WRITEV_BUFFERS_MAX

READ_ONCE_BYTES_MIN = 64 << 10
"""The smallest read from the disk that is dropped from the page cache: smaller ones are indexes, or records for
people."""


Buffer = bytes | bytearray | memoryview

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_NOW: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""The errors with which RWF_NOWAIT reports: not in the page cache, or not on this file system, or not with this
kernel."""
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""The flag; 0 where this Python was built without it: then nothing is read without waiting."""

_MODE: Final = 0o660
"""The mode of new files, less what the process' umask takes away (`data_directory.keep_private`)."""

_FOLDERS: Final = frozenset({"partitions", "orphaned", ".trash"})
"""The folders of a data directory; what a broker holds lies in them."""

TEMPORARY_SUFFIX: Final = ".new"
"""The suffix of a file that was not finished before a crash: it is removed on open."""
BALLAST_FILE: Final = "ballast"
_BALLAST_ROOM: Final = 4
"""The multiple of its size that the volume must have free before it is taken."""


class NotCachedError(Exception):
    """Reading would wait for the disk: read again with `read_blocking`, in a thread."""


class FileHandle:
    """One open file."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, _MODE)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def written_ms(self) -> int:
        """Return when it was last written to, by this machine's clock."""
        return os.fstat(self.fd).st_mtime_ns // 1_000_000

    def sync(self) -> None:
        """Put everything of it on disk, size and names included. Raises OSError."""
        os.fsync(self.fd)

    def sync_data(self) -> None:
        """Put on disk what is needed to read its content. Raises OSError."""
        os.fdatasync(self.fd)

    def cut(self, size: int) -> None:
        """Cut it to this size. Raises OSError."""
        os.ftruncate(self.fd, size)

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end (the file is open with O_APPEND). Raises OSError: then any part may be there."""
        while buffers:
            written = os.writev(self.fd, buffers[:WRITEV_BUFFERS_MAX])
            buffers = _after(buffers, written)


ReadAt = Callable[[FileHandle, int, int], Buffer]
"""A function (file, position, length) that returns exactly that many bytes. Raises NotCachedError or HeadraceError."""


def read_cached(file: FileHandle, position: int, length: int) -> Buffer:
    """Return at once what the page cache holds. Raises NotCachedError where any byte is missing there, or for a long
    read."""
    if length > READ_INLINE_BYTES_MAX or not _NOWAIT:
        raise NotCachedError
    found = bytearray(length)
    try:
        count = os.preadv(file.fd, [found], position, _NOWAIT)
    except OSError as error:
        if error.errno in _NOT_NOW:
            raise NotCachedError from error
        raise storage_error(error, f"reading {shown(file.path)}") from error
    if count < length:
        raise NotCachedError
    return found


def read_blocking(file: FileHandle, position: int, length: int) -> Buffer:
    """Read, and wait for the disk. Raises CorruptLogError where the file ends before, StorageFailedError where it
    fails."""
    parts: list[bytes] = []
    missing = length
    while missing:
        try:
            part = os.pread(file.fd, missing, position + length - missing)
        except OSError as error:
            raise storage_error(error, f"reading {shown(file.path)}") from error
        if not part:
            raise CorruptLogError(f"{shown(file.path)} ends {missing} bytes before position {position + length}")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_once(file: FileHandle, position: int, length: int) -> Buffer:
    """Read like `read_blocking` for a reader far behind: bytes that had to come from the disk are not left in the page
    cache.

    Gigabytes that are read once would take the memory that appends and other readers need. Where the kernel cannot
    report what had to come from the disk, all is left there.
    """
    passing = bool(_NOWAIT) and length >= READ_ONCE_BYTES_MIN and not _is_cached(file, position + length // 2)
    found = read_blocking(file, position, length)
    if passing:
        os.posix_fadvise(file.fd, position, length, os.POSIX_FADV_DONTNEED)
    return found


def _is_cached(file: FileHandle, position: int) -> bool:
    """Return whether that byte is cached. Ask for one in the middle: the end was read, and the beginning may be read
    ahead."""
    try:
        read_cached(file, position, 1)
    except NotCachedError:
        return False
    return True


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file so that after a crash it holds the old or the new content, on disk. Raises OSError."""
    new = path.with_name(path.name + TEMPORARY_SUFFIX)
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Put the names in the directory on disk: new, renamed and deleted ones. Raises OSError."""
    open_directory(path).sync()


def open_directory(path: Path) -> FileHandle:
    """Open a directory, to be synced. Raises OSError."""
    return FileHandle(path, os.O_RDONLY | os.O_DIRECTORY)


def is_passing(error: OSError) -> bool:
    """Return whether the disk is well and the same may succeed later."""
    return error.errno in _FULL or error.errno in _OUT_OF_FILES


def shown(path: Path) -> str:
    """Return the path of a partition's file or folder as errors name it, which clients see: without the place of the
    disk."""
    parts = path.parts
    known = next((at for at in range(len(parts) - 1, -1, -1) if parts[at] in _FOLDERS), len(parts) - 1)
    return "/".join(parts[known:])


def storage_error(error: OSError, doing: str) -> HeadraceError:
    """Return the typed error for `error`, which came up while `doing`, for example `"appending to /data/x.log"`."""
    why = f"{doing} failed: {error.strerror}"
    if error.errno in _FULL:
        return DiskFullError(f"{why}; free some space, delete records that nobody needs, or grow the volume")
    if error.errno in _OUT_OF_FILES:
        return ThrottledError(f"{why}; let this process open more files (ulimit -n)")
    return StorageFailedError(f"{why}; check the disk and its permissions")


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn an OSError inside into a typed error that names what was done."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing) from error


def _after(buffers: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """Return what is left of `buffers` when the first `written` bytes are gone."""
    for i, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[i + 1 :]]
        written -= len(buffer)
    return ()


class Volume(NamedTuple):
    free_bytes: int
    """The bytes that this process may still write."""
    volume_bytes: int


def volume_of(path: Path) -> Volume:
    """Return the file system that `path` lies on. Raises StorageFailedError."""
    with storage_errors(f"asking how full the volume of {path} is"):
        seen = os.statvfs(path)
    return Volume(seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize)


def bytes_in(directory: Path) -> int:
    """Return the bytes of all files below; files that go away meanwhile may be counted or not. Raises
    StorageFailedError."""
    with storage_errors(f"counting the files in {directory}"):
        return sum(_file_sizes(str(directory)))


def _file_sizes(directory: str) -> Iterator[int]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _file_sizes(entry.path)
                else:
                    yield _file_size(entry)
    except FileNotFoundError:
        return


def _file_size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


class Ballast:
    def __init__(self, directory: Path) -> None:
        self._path = directory / BALLAST_FILE
        self._is_there = self._path.exists()

    def give_up_where_full(self, volume: Volume) -> None:
        """Give it up on a full volume. Raises OSError."""
        if self._is_there and volume.free_bytes < DISK_BALLAST_BYTES:
            self._path.unlink()
            fsync_directory(self._path.parent)
            self._is_there = False

    def tend(self, volume: Volume) -> None:
        """Give it up on a full volume, take it again on one that has room. Raises OSError."""
        self.give_up_where_full(volume)
        if not self._is_there and volume.free_bytes >= _BALLAST_ROOM * DISK_BALLAST_BYTES:
            self._take()
            self._is_there = True

    def _take(self) -> None:
        new = self._path.with_name(BALLAST_FILE + TEMPORARY_SUFFIX)
        with open(new, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, DISK_BALLAST_BYTES)
            os.fsync(file.fileno())
        os.rename(new, self._path)
