"""A broker's data directory: whose disk this is, and what it remembers of the broker's last life.

    lock           held by one process
    disk.json      {"format": 1, "diskId": "..."}, written once: an empty volume in its place has another id, or none
    incarnation    the last one that was taken, on disk before it is
    epochs-seen    the greatest leader epoch of each partition that this broker has seen
    ballast        takes up room, and is given up where there is none left
    boot-id        of the kernel, at the last open
    clean-stop     there from a clean `close` to the next open

Lives from `open` to `close`; `store` holds the partitions, `threads` wait for the disk. Everything blocks. Raises
StorageFailedError and DiskFullError for what the disk refuses.
"""

import json
import logging
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, Self

from headrace.core.errors import LocalError, StorageFailedError
from headrace.core.log.checkpoints import EPOCHS_SEEN_FILE, DamagedFileError, seal, unseal, unseal_integers
from headrace.core.log.segments import LogConfig
from headrace.core.types import Incarnation
from headrace_broker.storage.ballast import Ballast
from headrace_broker.storage.directory_lock import LOCK_FILE, DirectoryLock
from headrace_broker.storage.disk import TEMPORARY_SUFFIX, fsync_directory, storage_errors, write_atomically
from headrace_broker.storage.disk_space import volume_of
from headrace_broker.storage.epochs_seen import EpochsSeen
from headrace_broker.storage.giving_away import GivingAway
from headrace_broker.storage.partition_description import PartitionDescription
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.partition_store import PartitionStore
from headrace_broker.storage.threads import StorageThreads

_log = logging.getLogger(__name__)
_DISK, _INCARNATION, _BOOT_ID, _CLEAN_STOP = "disk.json", "incarnation", "boot-id", "clean-stop"
_FORMAT = 1
_MAY_BE_THERE: Final = frozenset(
    {LOCK_FILE, EPOCHS_SEEN_FILE, EPOCHS_SEEN_FILE + TEMPORARY_SUFFIX, _DISK + TEMPORARY_SUFFIX, "lost+found"}
)
"""In a directory that is to become a data directory."""
KERNEL_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UMASK: Final = 0o077
_UMASK_OF_GROUP: Final = 0o007
_OWNER_ALONE: Final = ~0o077


class NotADataDirectoryError(LocalError):
    """The path holds something else; the message says what and what to do."""

    code: ClassVar[str] = "NotADataDirectory"


def keep_private(path: Path) -> None:
    """Have this process make files and folders that its user alone can read, whatever it is going to write.

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
        """Random; made when the directory was first opened."""
        Ballast(path).give_up_where_full(volume_of(path))
        self.stopped_cleanly = (path / _CLEAN_STOP).exists()
        """Whether the last life ended by `close(clean=True)`."""
        boot_id = KERNEL_BOOT_ID.read_bytes().decode().strip()
        self.same_boot = _read_boot_id(path) == boot_id
        """Whether the kernel is the one of the last life, page cache and all."""
        self._last_life: Incarnation | None = None
        """The incarnation that was on this disk before this life wrote its own."""
        self.epochs_seen = EpochsSeen(path)
        """What this broker has promised: to lead and vote in no earlier epoch."""
        self.giving_away = GivingAway(path)
        """What others are about to hold instead of this broker."""
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
            with suppress(OSError):  # A volume may belong to somebody else.
                path.chmod(path.stat().st_mode & _OWNER_ALONE)
        return opened

    def read_incarnation(self) -> Incarnation:
        """The last incarnation that this disk knows of; 0 for a new one. Raises StorageFailedError where it is lost."""
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
        """On disk when this returns, so that no later life can take the same.

        `known` is the greatest that others know of. Where that is more than what the last life left here, the broker
        had lives without this disk: all older seats are void here. What this life has written itself proves nothing.
        """
        if self._last_life is None:
            self._last_life = self.read_incarnation()
        if known > self._last_life:
            self.store.void_all(incarnation, in_memory_only=False)
        with storage_errors(f"writing {self.path / _INCARNATION}"):
            write_atomically(self.path / _INCARNATION, seal(_INCARNATION, [str(incarnation)]))

    def open_log(self, description: PartitionDescription, config: LogConfig, now_ms: int) -> PartitionLog:
        """The partition's log, recovered; see `PartitionStore.prepare` for where its data comes from."""
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
        """From here on, until `close`, the stop was not clean.

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
        write_atomically(file, json.dumps({"format": _FORMAT, "diskId": str(uuid.uuid4())}).encode() + b"\n")
    try:
        document = json.loads(file.read_bytes())
        if document["format"] != _FORMAT:
            raise NotADataDirectoryError(f"{file} has format {document['format']}, this broker reads {_FORMAT}")
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
    """Empty where it is not known."""
    try:
        return "".join(unseal(_BOOT_ID, (path / _BOOT_ID).read_bytes()))
    except (FileNotFoundError, DamagedFileError):
        return ""
