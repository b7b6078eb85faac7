"""One segment: a `.log` file with its two indexes. Opening, appending, cutting back, syncing.

The last segment of a log is active: the partition's task appends to it. All others are closed, and nothing in them
changes but indexes that are built again; compaction replaces them as a whole. Reading is `segment_reader`'s.

Invariants: `size` bytes of the log are whole batches; the indexes hold an entry for each batch that is due one, and for
no other; what lies beyond in a file was never reported to anybody. Called by `partition_log` and `recovery`. Raises
OSError where nothing else is said.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.core.errors import CorruptLogError, StorageFailedError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.recovery import SegmentFacts
from headrace.core.log.segments import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    DamagedIndexError,
    parse_log_name,
    segment_name,
)
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import RawBatch
from headrace.core.types import Offset
from headrace_broker.storage.disk import FileHandle, shown
from headrace_broker.storage.segment_indexes import SegmentIndexes, rebuild_indexes

_APPENDING = os.O_RDWR | os.O_APPEND
_SERIALS = itertools.count()


class Segment:
    __slots__ = ("_name", "base_offset", "indexes", "log", "serial", "size")

    def __init__(self, directory: Path, base_offset: Offset, flags: int) -> None:
        """Without a look at its indexes: `create`, `open_closed` or `resume` see to those."""
        self._name = directory / segment_name(base_offset)
        self.base_offset = base_offset
        self.serial = next(_SERIALS)
        """No other one of this process has it: compaction puts another file under the same name."""
        self.log = FileHandle(directory / (segment_name(base_offset) + LOG_SUFFIX), flags)
        self.size = self.log.size()
        self.indexes: SegmentIndexes

    @classmethod
    def create(cls, directory: Path, base_offset: Offset) -> "Segment":
        """A new and empty one; its names are not on disk until the directory is synced."""
        segment = cls(directory, base_offset, _APPENDING | os.O_CREAT | os.O_EXCL)
        try:
            segment.indexes = SegmentIndexes.create(segment._name, base_offset)
        except OSError:
            segment.log.path.unlink()
            raise
        return segment

    @classmethod
    def open_closed(cls, directory: Path, base_offset: Offset) -> "Segment":
        """For reading. Indexes that are missing or cut short are built again."""
        segment = cls(directory, base_offset, os.O_RDONLY)
        try:
            segment.indexes = SegmentIndexes.open(segment._name, base_offset)
        except DamagedIndexError:
            segment.rebuild_indexes()
        return segment

    @classmethod
    def open_last(cls, directory: Path, base_offset: Offset) -> "Segment":
        """For recovery, which calls `resume` next."""
        return cls(directory, base_offset, _APPENDING)

    @classmethod
    def reopen(cls, directory: Path, place: LogPoint) -> "Segment":
        """The one that a log will go on in that is to be cut at `place`. No file is changed before `cut_back`.

        Raises CorruptLogError as `resume`.
        """
        segment = cls.open_last(directory, place.segment)
        segment._trust(place.position, place.offset)
        segment.size = place.position
        return segment

    def cut_back(self) -> None:
        """The files of a reopened one hold what it counts, and no more. They are not synced."""
        self.log.cut(self.size)
        self.indexes.trim()

    def resume(self, position: int, offset: Offset) -> str:
        """Trust what lies below `position`, where `offset` starts; forget what the indexes say of what lies above.

        Returns why the indexes had to be built again, else "". Raises CorruptLogError where the batches below do not
        lead to `position` and `offset`. Costs the same however much lies below.
        """
        reason = self._trust(position, offset)
        self.indexes.trim()
        return reason

    def _trust(self, position: int, offset: Offset) -> str:
        """As `resume`; the indexes do not count what lies above, and have it in their files still."""
        try:
            self.indexes = SegmentIndexes.open(self._name, self.base_offset)
            reached, reason = self.indexes.forget_from(self.log, self.base_offset, position), ""
        except DamagedIndexError as error:
            self.indexes, place, reached = rebuild_indexes(self._name, self.log, self.base_offset, position)
            reason = str(error)
            if place != position:
                raise CorruptLogError(f"{shown(self.log.path)} is damaged at position {place}") from error
        if reached != offset:
            raise CorruptLogError(
                f"{shown(self.log.path)}: position {position} belongs to {reached}, not to offset {offset}"
            )
        return reason

    def append(self, batches: Sequence[RawBatch]) -> None:
        """All of it, in the page cache; or nothing, and OSError. Raises StorageFailedError where neither can be had."""
        size, count, cursor = self.size, self.indexes.count, self.indexes.cursor.copy()
        try:
            self.log.append([buffer for batch in batches for buffer in batch.buffers])
            self.passed([batch.header for batch in batches])
        except OSError as error:
            try:
                self.cut(size)
                self.indexes.cut(count, cursor)
            except OSError as cut_error:
                raise StorageFailedError(f"cutting {shown(self.log.path)} back failed: {cut_error.strerror}") from error
            raise

    def passed(self, headers: Sequence[BatchHeader]) -> None:
        """These batches are in the file from `size` on: count them in."""
        self.indexes.add(headers, self.size)
        self.size += sum(header.batch_bytes for header in headers)

    def cut(self, size: int) -> None:
        """Back to the first `size` bytes."""
        self.log.cut(size)
        self.size = size

    def sync_log(self) -> None:
        """Covers what was appended before the call."""
        self.log.sync_data()

    def rebuild_indexes(self) -> None:
        """Of a closed segment, up to the first damage in it."""
        self.indexes, _, _ = rebuild_indexes(self._name, self.log, self.base_offset, self.size)


def delete_segment(directory: Path, base_offset: Offset) -> None:
    """Its files, as far as they are there. The log goes last: by its name an interrupted deletion is found again."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        (directory / (segment_name(base_offset) + suffix)).unlink(missing_ok=True)


def segments_in(directory: Path) -> list[SegmentFacts]:
    """Of the `.log` files that are there, in order."""
    with os.scandir(directory) as entries:
        found = [(parse_log_name(entry.name), entry) for entry in entries if entry.name.endswith(LOG_SUFFIX)]
        segments = [SegmentFacts(base, entry.stat().st_size) for base, entry in found if base is not None]
    return sorted(segments, key=lambda segment: segment.base_offset)
