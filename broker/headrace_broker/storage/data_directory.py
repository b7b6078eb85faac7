"""A broker's data directory: its owner, and what it remembers of the broker's last life.

    lock           held by one process: an exclusive `flock`, which the kernel lets go of when the process ends
    disk.json      {"format": 1, "diskId": "..."}, written once: an empty volume in its place has another id, or none
    incarnation    the last one that was taken, on disk before it is
    epochs-seen    the greatest leader epoch of each partition that this broker has seen
    giving-away the partitions that others are about to hold instead
    ballast        takes up room, and is given up where there is none left
    boot-id        of the kernel, at the last open
    clean-stop     there from a clean `close` to the next open

It lives from `open` to `close`; `store` holds the partitions, `threads` wait for the disk. Everything blocks; `write`
and `forget` of `EpochsSeen` run in threads. StorageFailedError and DiskFullError are raised for what the disk refuses.

Invariants of `epochs-seen`: no epoch falls; what `read` returns is on disk. The file is made with the data directory,
so one that is missing was lost: then, as when it is damaged, `damage` has the reason, and the directory voids every
seat, because the promises are not known any more. A missing `giving-away` is an empty one; a damaged one is logged and
counts as empty: then partitions that have moved elsewhere meanwhile are kept, and nothing else is lost.
"""

import fcntl
import json
import logging
import os
import stat
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, Self

from headrace.core.errors import LocalError, StorageFailedError
from headrace.core.log.checkpoints import (
    EPOCHS_SEEN_FILE,
    DamagedFileError,
    format_epochs_seen,
    parse_epochs_seen,
    raised,
    seal,
    unseal,
    unseal_integers,
)
from headrace.core.log.segments import LogConfig
from headrace.core.replication.residency import GIVING_AWAY_FILE, RemovalNotes, format_giving_away, parse_giving_away
from headrace.core.types import Incarnation, LeaderEpoch, PartitionKey
from headrace_broker.storage.disk import (
    TEMPORARY_SUFFIX,
    Ballast,
    FileHandle,
    fsync_directory,
    storage_errors,
    volume_of,
    write_atomically,
)
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.partition_store import PartitionDescription, PartitionStore
from headrace_broker.storage.threads import StorageThreads

LOCK_FILE = "lock"
_log = logging.getLogger(__name__)
_DISK_FORMAT = 1
KERNEL_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UMASK: Final = 0o077
_UMASK_OF_GROUP: Final = 0o007
_OWNER_ALONE: Final = ~0o077


class DataDirectoryInUseError(LocalError):
    """Another process works on this data directory; `directory`, and `pid` where it is known."""

    code: ClassVar[str] = "DataDirectoryInUse"


class DirectoryLock:
    """A lock, held from its making until `release`, or until the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        """Take the lock. Raises DataDirectoryInUseError, OSError."""
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


class EpochsSeen:
    def __init__(self, root: Path) -> None:
        """Read the file. Blocks. Raises OSError."""
        self._path = root / EPOCHS_SEEN_FILE
        self._turn = threading.Lock()
        self._epochs: dict[PartitionKey, LeaderEpoch] = {}
        """The epochs as on disk, but without those that were forgotten since. Replaced as a whole."""
        self.damage = ""
        """The reason why the epochs are not known; empty where they are."""
        try:
            self._epochs = parse_epochs_seen(self._path.read_bytes())
        except FileNotFoundError:
            self.damage = f"{EPOCHS_SEEN_FILE}: missing"
        except DamagedFileError as error:
            self.damage = f"{EPOCHS_SEEN_FILE}: {error}"

    @staticmethod
    def create(root: Path) -> None:
        """Create the file of a new data directory, which has seen nothing. Raises OSError."""
        write_atomically(root / EPOCHS_SEEN_FILE, format_epochs_seen({}))

    def read(self) -> dict[PartitionKey, LeaderEpoch]:
        """Return all that is on disk, also of partitions that have no directory here yet."""
        return dict(self._epochs)

    def write(self, seen: Mapping[PartitionKey, LeaderEpoch]) -> None:
        """Put epochs on disk, those of other partitions as they were. An epoch below a known one is ignored.

        There is one sync for all of them, and none where nothing rises. Blocks. Raises DiskFullError,
        StorageFailedError; then nothing of it counts as seen.
        """
        with self._turn:
            epochs = raised(self._epochs, seen)
            if epochs != self._epochs:
                with storage_errors(f"writing {self._path}"):
                    write_atomically(self._path, format_epochs_seen(epochs))
                self._epochs = epochs

    def forget(self, key: PartitionKey) -> None:
        """Forget a partition: its data is deleted for good, and its uid never returns. The file loses it with the next
        write."""
        with self._turn:
            self._epochs = {each: epoch for each, epoch in self._epochs.items() if each != key}

    def begin_anew(self) -> None:
        """Begin anew after damage, once every seat is void. Blocks. Raises OSError."""
        self.create(self._path.parent)


class GivingAway:
    def __init__(self, root: Path) -> None:
        """Read the file. Blocks. Raises OSError."""
        self._path = root / GIVING_AWAY_FILE
        self.notes: RemovalNotes = {}
        """The notes, which are on disk as well unless `is_behind`."""
        self.is_behind = False
        try:
            self.notes = parse_giving_away(self._path.read_bytes())
        except FileNotFoundError:
            pass
        except DamagedFileError as error:
            _log.error("%s: replicas that moved away while this broker was down are kept: %s", self._path, error)

    def write(self, notes: RemovalNotes) -> None:
        """Put notes on disk. Blocks. Raises DiskFullError, StorageFailedError; this life has them all the same."""
        self.notes, self.is_behind = notes, True
        with storage_errors(f"writing {self._path}"):
            write_atomically(self._path, format_giving_away(notes))
        self.is_behind = False


_DISK, _INCARNATION, _BOOT_ID, _CLEAN_STOP = "disk.json", "incarnation", "boot-id", "clean-stop"
_MAY_BE_THERE: Final = frozenset(
    {LOCK_FILE, EPOCHS_SEEN_FILE, EPOCHS_SEEN_FILE + TEMPORARY_SUFFIX, _DISK + TEMPORARY_SUFFIX, "lost+found"}
)
"""The names that may be in a directory that becomes a data directory."""


class NotADataDirectoryError(LocalError):
    """The path holds something else; the message says what it is and what to do."""

    code: ClassVar[str] = "NotADataDirectory"


def keep_private(path: Path) -> None:
    """Have this process make files and folders that its user alone can read, in every later write.

    Kubernetes gives a volume to the `fsGroup` of its pod, whose users may change: it marks the folders so that what is
    made there belongs to that group, and the group keeps its access.
    """
    os.umask(_UMASK_OF_GROUP if _is_of_a_group(path) else _UMASK)


def _is_of_a_group(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISGID) and bool(mode & stat.S_IWGRP)


class DataDirectory:
    def __init__(self, path: Path, lock: DirectoryLock) -> None:
        self.path = path
        self._lock = lock
        self.disk_id = _disk_id(path)
        """The id of the disk, random; made when the directory was first opened."""
        Ballast(path).give_up_where_full(volume_of(path))
        self.stopped_cleanly = (path / _CLEAN_STOP).exists()
        """True where the last life ended by `close(clean=True)`."""
        boot_id = KERNEL_BOOT_ID.read_bytes().decode().strip()
        self.same_boot = _read_boot_id(path) == boot_id
        """True where the kernel is the one of the last life, page cache included."""
        self._last_life: Incarnation | None = None
        """The incarnation that was on this disk before this life wrote its own."""
        self.epochs_seen = EpochsSeen(path)
        """The promises of this broker: to lead and vote in no earlier epoch."""
        self.giving_away = GivingAway(path)
        """The partitions that others are about to hold instead of this broker."""
        self.store = PartitionStore(path, self.epochs_seen.forget)
        self._begin_life(boot_id)
        self.threads = StorageThreads()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Lock the directory, which is made where it is missing, and begin a life in it.

        Raises DataDirectoryInUseError, NotADataDirectoryError.
        """
        with storage_errors(f"opening the data directory {path}"):
            path.mkdir(parents=True, exist_ok=True)
            opened = cls(path, DirectoryLock(path))
        if not _is_of_a_group(path):
            with suppress(OSError):  # A volume may belong to another user.
                path.chmod(path.stat().st_mode & _OWNER_ALONE)
        return opened

    def read_incarnation(self) -> Incarnation:
        """Return the last incarnation on this disk; 0 for a new one. Raises StorageFailedError where it is lost."""
        path = self.path / _INCARNATION
        if not path.exists():
            return Incarnation(0)
        with storage_errors(f"reading {path}"):
            try:
                return Incarnation(unseal_integers(_INCARNATION, path.read_bytes(), 1)[0])
            except DamagedFileError as error:
                raise StorageFailedError(
                    f"{path} is damaged: {error}; restore it, or start this broker on an empty disk"
                ) from error

    def write_incarnation(self, incarnation: Incarnation, known: Incarnation) -> None:
        """Put the incarnation on disk, so that no later life can take the same.

        `known` is the greatest that others know of. Where that is more than the last life left here, the broker had
        lives without this disk: all older seats are void here. What this life has written itself proves nothing.
        """
        if self._last_life is None:
            self._last_life = self.read_incarnation()
        if known > self._last_life:
            self.store.void_all(incarnation, in_memory_only=False)
        with storage_errors(f"writing {self.path / _INCARNATION}"):
            write_atomically(self.path / _INCARNATION, seal(_INCARNATION, [str(incarnation)]))

    def open_log(self, description: PartitionDescription, config: LogConfig, now_ms: int) -> PartitionLog:
        """Return the partition's log, recovered; see `PartitionStore.prepare` for where its data comes from."""
        directory = self.store.prepare(description, now_ms)
        return PartitionLog.open(directory, config, threads=self.threads, now_ms=now_ms)

    def close(self, *, clean: bool) -> None:
        """End this life; `clean` where every log was closed without an error. Other processes may open it then."""
        self.threads.close()
        if clean:
            with storage_errors(f"writing {self.path / _CLEAN_STOP}"):
                write_atomically(self.path / _CLEAN_STOP, seal(_CLEAN_STOP, []))
        self._lock.release()

    def _begin_life(self, boot_id: str) -> None:
        """Begin this life: from here on, until `close`, the stop was not clean.

        What this start has learned of the last life is lost with the old boot id and the mark of the clean stop, so it
        goes to the partitions first: this start may die before it opens them.
        """
        if not self.stopped_cleanly and not self.same_boot:
            self.store.void_all(Incarnation(self.read_incarnation() + 1), in_memory_only=True)
        if self.epochs_seen.damage:
            _log.error("%s: no seat of an earlier life is renewed: %s", self.path, self.epochs_seen.damage)
            self.store.void_all(Incarnation(self.read_incarnation() + 1), in_memory_only=False)
            self.epochs_seen.begin_anew()
        write_atomically(self.path / _BOOT_ID, seal(_BOOT_ID, [boot_id]))
        (self.path / _CLEAN_STOP).unlink(missing_ok=True)
        fsync_directory(self.path)


def _disk_id(path: Path) -> str:
    file = path / _DISK
    if not file.exists():
        _check_empty(path)
        EpochsSeen.create(path)
        write_atomically(file, json.dumps({"format": _DISK_FORMAT, "diskId": str(uuid.uuid4())}).encode() + b"\n")
    try:
        document = json.loads(file.read_bytes())
        if document["format"] != _DISK_FORMAT:
            raise NotADataDirectoryError(f"{file} has format {document['format']}, this broker reads {_DISK_FORMAT}")
        return str(document["diskId"])
    except (ValueError, TypeError, KeyError) as error:
        raise StorageFailedError(
            f"{file} is damaged ({error!r}); restore it, or give the broker another disk"
        ) from error


def _check_empty(path: Path) -> None:
    others = sorted(child.name for child in path.iterdir() if child.name not in _MAY_BE_THERE)
    if others:
        raise NotADataDirectoryError(
            f"{path} is no data directory of Headrace and is not empty (it holds {', '.join(others[:3])});"
            " name an empty or a new directory"
        )


def _read_boot_id(path: Path) -> str:
    """Return the boot id; empty where it is not known."""
    try:
        return "".join(unseal(_BOOT_ID, (path / _BOOT_ID).read_bytes()))
    except (FileNotFoundError, DamagedFileError):
        return ""
