"""The partitions on one disk: created, described, surveyed, set aside, taken back, deleted.

    partitions/<uid>-<partition>/     what this broker holds
    orphaned/<uid>-<partition>/       named by no API object any more: kept, taken back when the uid returns, purged
    .trash/                           being created or deleted; emptied on open

Each directory has a `partition.json`: the owner of the data, for people and for the time when the API object is gone.

    {"format": 1, "namespace": "default", "name": "flights", "uid": "6f...", "partition": 3, "spec": {...}}

`spec` is the topic's, spelled as in the resource; the deletion policy in it decides whether orphaned data may ever be
deleted. The uid and the partition are in the directory's name too, so the file may be lost without losing the data.

`survey_log` returns how far a log reaches that is not open, without a change to it, to find the latest replica. After
kill -9 checkpoints may be far behind, so the batches above the recovery point are followed, by their headers: a body
that is damaged shows only when the log is opened.

A `DataDirectory`, which has locked the disk, owns the store. Everything blocks. Invariants: a directory in
`partitions/` is complete, because it is built in `.trash/` and renamed; data leaves the disk only by `delete` and
`purge`; a partition is in one of the two places at most. StorageFailedError and DiskFullError are raised for what the
disk refuses.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headrace.core.control.broker_reports import HeldLog
from headrace.core.errors import CorruptLogError, HeadraceError
from headrace.core.log.checkpoints import DamagedFileError, LogPoint, seal, unseal_integers
from headrace.core.log.epochs import NO_EPOCH, LeaderEpochs
from headrace.core.log.recovery import SegmentFacts, TailScan, scan_start
from headrace.core.log.segments import LOG_SUFFIX, segment_name
from headrace.core.resources.topic import DeletionPolicy, Durability
from headrace.core.types import Incarnation, Offset, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.storage.disk import (
    FileHandle,
    fsync_directory,
    read_blocking,
    shown,
    storage_errors,
    write_atomically,
)
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.recovery import begin_log
from headrace_broker.storage.segment import segments_in
from headrace_broker.storage.segment_indexes import walk_batches

DESCRIPTION_FILE: Final = "partition.json"
_DESCRIPTION_FORMAT = 1
_ORPHANED_SINCE: Final = "orphaned-since"
_LOOKS: Final = 3


def directory_name(key: PartitionKey) -> str:
    return f"{key.uid}-{key.partition}"


def parse_directory_name(name: str) -> PartitionKey | None:
    """Parse a name; None for one that is not a partition's."""
    uid, dash, partition = name.rpartition("-")
    if not (uid and dash and partition.isascii() and partition.isdecimal()):
        return None
    return PartitionKey(TopicUid(uid), PartitionId(int(partition)))


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    topic: TopicName
    key: PartitionKey
    spec: dict[str, Any]
    """The topic's spec as it was last seen."""

    @property
    def deletion_policy(self) -> DeletionPolicy:
        """Return the policy, `Retain` where the spec has one that this version does not know."""
        try:
            return DeletionPolicy(self.spec.get("deletionPolicy", DeletionPolicy.DELETE))
        except ValueError:
            return DeletionPolicy.RETAIN

    @property
    def is_synced(self) -> bool:
        """Return whether what is acknowledged is on disk (durability Fsync, which is the default too)."""
        return str(self.spec.get("durability", Durability.FSYNC)) == Durability.FSYNC

    def format(self) -> bytes:
        document = {
            "format": _DESCRIPTION_FORMAT,
            "namespace": self.topic.namespace,
            "name": self.topic.name,
            "uid": self.key.uid,
            "partition": self.key.partition,
            "spec": self.spec,
        }
        return json.dumps(document, indent=2).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse the file. Raises DamagedFileError."""
        try:
            document = json.loads(content)
            if document["format"] != _DESCRIPTION_FORMAT:
                raise DamagedFileError(f"format is {document['format']}, this version reads {_DESCRIPTION_FORMAT}")
            topic = TopicName(str(document["namespace"]), str(document["name"]))
            key = PartitionKey(TopicUid(str(document["uid"])), PartitionId(int(document["partition"])))
            return cls(topic, key, dict(document["spec"]))
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFileError(f"it is no description of a partition: {error!r}") from error


def survey_log(directory: Path) -> HeldLog:
    """Return what recovery would keep, as far as headers show; `trouble` where it cannot be read."""
    try:
        with storage_errors(f"reading {shown(directory)}"):
            scan = _scan_segments(directory)
    except HeadraceError as error:
        return HeldLog(NO_EPOCH, Offset(0), trouble=error.message)
    return HeldLog(scan.epochs.latest, scan.next_offset)


def _scan_segments(directory: Path) -> TailScan:
    """Scan the segments. Raises OSError, StorageFailedError."""
    files, segments = PartitionFiles(directory), segments_in(directory)
    if not segments:
        return TailScan(Offset(0), LeaderEpochs())
    epochs, cut_at = files.epochs(), files.cut_at()
    start = scan_start(segments, files.recovery_point() if epochs else None)
    scan = TailScan(start.offset, epochs or LeaderEpochs())
    scan.epochs.cut(start.offset)
    position = start.position
    for facts in segments[start.segment :]:
        if position == 0 and scan.enter_segment(facts.base_offset):
            break
        _follow_batches(scan, directory, facts, position, cut_at.offset if cut_at else None)
        position = 0
    return scan


def _follow_batches(scan: TailScan, directory: Path, facts: SegmentFacts, position: int, limit: Offset | None) -> None:
    log = FileHandle(directory / (segment_name(facts.base_offset) + LOG_SUFFIX), os.O_RDONLY)
    with suppress(CorruptLogError):  # The log ends there, as it would for recovery.
        for at, header in walk_batches(log, read_blocking, position, facts.size_bytes):
            is_cut = limit is not None and header.base_offset >= limit
            if is_cut or at + header.batch_bytes > facts.size_bytes or not scan.follow(header):
                return


@dataclass(frozen=True, slots=True)
class StoredPartition:
    key: PartitionKey
    description: PartitionDescription | None
    """The description; None where `partition.json` cannot be read: the data is there, and only its uid shows the
    owner."""


class PartitionStore:
    def __init__(self, root: Path, deleted: Callable[[PartitionKey], None]) -> None:
        """Take `deleted`, which is called with each partition whose data has left the disk."""
        self._deleted = deleted
        self._held, self._orphaned, self._trash = root / "partitions", root / "orphaned", root / ".trash"
        with storage_errors(f"preparing {root}"):
            for directory in (self._held, self._orphaned, self._trash):
                directory.mkdir(exist_ok=True)
            for leftover in self._trash.iterdir():
                shutil.rmtree(leftover)
            fsync_directory(root)

    def partitions(self) -> list[StoredPartition]:
        """Return what this disk holds, without orphaned partitions, in order."""
        return _stored_in(self._held)

    def orphans(self) -> list[StoredPartition]:
        return _stored_in(self._orphaned)

    def has(self, key: PartitionKey) -> bool:
        """Return whether the partition's data is held; orphaned data is not."""
        return self._path(key).is_dir()

    def prepare(self, description: PartitionDescription, now_ms: int) -> Path:
        """Return the partition's directory: the one that is held, else taken back from the orphans, else a new and
        empty one.

        `partition.json` holds `description` then.
        """
        path = self._path(description.key)
        with storage_errors(f"preparing {shown(path)}"):
            if not path.is_dir() and not self.restore(description.key):
                self._create(path, description, now_ms)
            elif _read_description(path) != description:
                write_atomically(path / DESCRIPTION_FILE, description.format())
        return path

    def orphan(self, key: PartitionKey, now_ms: int) -> None:
        """Set a partition's data aside, as no API object names it any more. Its log is closed."""
        path = self._path(key)
        with storage_errors(f"orphaning {shown(path)}"):
            write_atomically(path / _ORPHANED_SINCE, seal(_ORPHANED_SINCE, [str(now_ms)]))
            self._move(path, self._orphaned / path.name)

    def restore(self, key: PartitionKey) -> bool:
        """Take orphaned data back; return False where there is none."""
        orphan = self._orphaned / directory_name(key)
        if not orphan.is_dir():
            return False
        with storage_errors(f"restoring {shown(orphan)}"):
            (orphan / _ORPHANED_SINCE).unlink(missing_ok=True)
            self._move(orphan, self._path(key))
        return True

    def adopt(self, old: PartitionKey, new: PartitionKey) -> None:
        """Make orphaned data another topic's partition, of which there is none; a repetition does nothing.

        Its `partition.json` is out of date until `prepare` writes it.
        """
        orphan, path = self._orphaned / directory_name(old), self._path(new)
        if not orphan.is_dir() and path.is_dir():
            return
        with storage_errors(f"adopting {shown(orphan)} as {shown(path)}"):
            (orphan / _ORPHANED_SINCE).unlink(missing_ok=True)
            self._move(orphan, path)

    def delete(self, key: PartitionKey) -> None:
        """Delete the partition's data, held or orphaned, for good; nothing happens where there is none."""
        for place in (self._held, self._orphaned):
            path = place / directory_name(key)
            if path.is_dir():
                with storage_errors(f"deleting {shown(path)}"):
                    self._discard(path)
        self._deleted(key)

    def overdue(self, now_ms: int, retention_ms: int) -> list[PartitionKey]:
        """Return what has been orphaned for `retention_ms`; never under `Retain`, nor where the policy is not known."""
        return [stored.key for stored in self.orphans() if self._is_overdue(stored, now_ms, retention_ms)]

    def purge(self, key: PartitionKey, now_ms: int, retention_ms: int) -> bool:
        """Delete an orphan that is overdue, for good; return False, and do nothing, where it is not."""
        path = self._orphaned / directory_name(key)
        if not path.is_dir() or not self._is_overdue(
            StoredPartition(key, _read_description(path)), now_ms, retention_ms
        ):
            return False
        with storage_errors(f"deleting {shown(path)}"):
            self._discard(path)
        self._deleted(key)
        return True

    def last_known(self, key: PartitionKey) -> HeldLog:
        """Return how far a log reaches that is not open, held or orphaned; empty where there is none.

        Another thread may move it from one place to the other just now: if it is in neither, both are searched again.
        """
        for _ in range(_LOOKS):
            found = self._look_at(key)
            if found is not None and not found.trouble:
                break
        return found or HeldLog(NO_EPOCH, Offset(0))

    def _look_at(self, key: PartitionKey) -> HeldLog | None:
        path = self._path(key)
        path = path if path.is_dir() else self._orphaned / path.name
        return survey_log(path) if path.is_dir() else None

    def void_before(self, key: PartitionKey) -> Incarnation | None:
        """Return the incarnation before which seats are void; None where that file is damaged: then all are."""
        try:
            return PartitionFiles(self._path(key)).void_before()
        except DamagedFileError:
            return None

    def write_void_before(self, key: PartitionKey, incarnation: Incarnation) -> None:
        """Note that this start found the log damaged: whatever later starts find, no seat before `incarnation` is
        renewed."""
        with storage_errors(f"writing void-before of {key}"):
            _raise_void_before(PartitionFiles(self._path(key)), incarnation)

    def cut_at_next_start(self, key: PartitionKey, point: LogPoint, incarnation: Incarnation) -> None:
        """Have the next start cut the log at `point`: what lies from there on is damaged here and whole elsewhere.

        No seat before `incarnation` is renewed, also where this dies half-way. The log is closed.
        """
        with storage_errors(f"having the log of {key} cut at {point.offset}"):
            files = PartitionFiles(self._path(key))
            _raise_void_before(files, incarnation)
            files.write_cut_at(point)

    def void_all(self, incarnation: Incarnation, *, in_memory_only: bool) -> None:
        """Void seats as `write_void_before` does, for every partition that may have lost something, orphaned ones too.

        `in_memory_only`: what was in the page cache is gone; that of topics with durability Fsync was on disk as well.
        """
        for place in (self._held, self._orphaned):
            for stored in _stored_in(place):
                if in_memory_only and stored.description is not None and stored.description.is_synced:
                    continue
                with storage_errors(f"writing void-before of {stored.key}"):
                    _raise_void_before(PartitionFiles(place / directory_name(stored.key)), incarnation)

    def _is_overdue(self, orphan: StoredPartition, now_ms: int, retention_ms: int) -> bool:
        if not _may_purge(orphan):
            return False
        path = self._orphaned / directory_name(orphan.key)
        with storage_errors(f"reading since when {shown(path)} is orphaned"):
            return now_ms - _orphaned_since(path, now_ms) >= retention_ms

    def _path(self, key: PartitionKey) -> Path:
        return self._held / directory_name(key)

    def _create(self, path: Path, description: PartitionDescription, now_ms: int) -> None:
        new = self._trash / f"{path.name}.{uuid.uuid4().hex}"
        new.mkdir()
        begin_log(new, now_ms)
        write_atomically(new / DESCRIPTION_FILE, description.format())
        self._move(new, path)

    def _discard(self, path: Path) -> None:
        gone = self._trash / f"{path.name}.{uuid.uuid4().hex}"
        self._move(path, gone)
        shutil.rmtree(gone)

    def _move(self, old: Path, new: Path) -> None:
        os.rename(old, new)
        fsync_directory(new.parent)
        fsync_directory(old.parent)


def _raise_void_before(files: PartitionFiles, incarnation: Incarnation) -> None:
    try:
        if files.void_before() >= incarnation:
            return
    except DamagedFileError:
        pass
    files.write_void_before(incarnation)


def _stored_in(place: Path) -> list[StoredPartition]:
    with storage_errors(f"listing {place}"):
        found = [(parse_directory_name(path.name), path) for path in place.iterdir() if path.is_dir()]
        stored = [StoredPartition(key, _read_description(path)) for key, path in found if key is not None]
    return sorted(stored, key=lambda each: each.key)


def _read_description(path: Path) -> PartitionDescription | None:
    try:
        return PartitionDescription.parse((path / DESCRIPTION_FILE).read_bytes())
    except (FileNotFoundError, DamagedFileError):
        return None


def _may_purge(stored: StoredPartition) -> bool:
    return stored.description is not None and stored.description.deletion_policy is DeletionPolicy.DELETE


def _orphaned_since(path: Path, now_ms: int) -> int:
    """Return since when it is orphaned; where the time was lost, it starts again."""
    try:
        return unseal_integers(_ORPHANED_SINCE, (path / _ORPHANED_SINCE).read_bytes(), 1)[0]
    except (FileNotFoundError, DamagedFileError):
        write_atomically(path / _ORPHANED_SINCE, seal(_ORPHANED_SINCE, [str(now_ms)]))
        return now_ms
