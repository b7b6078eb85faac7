"""One segment: a `.log` file with its two indexes. Opening, appending, cutting back, syncing, and finding batches in
it.

The last segment of a log is active: the partition's task appends to it. All others are closed, and nothing in them
changes but indexes that are built again; compaction replaces them as a whole.

A reader finds batches by offset, by size, by time, from headers and index entries only. Its argument `read` decides
whether to wait for the disk (`disk.read_cached`, `disk.read_blocking`); the segment may be appended to meanwhile, so
callers give the end of what is theirs (`SegmentView`). Lookups raise DamagedIndexError where an index must be built
again, CorruptLogError where batches are damaged, and what `read` raises.

Invariants: `size` bytes of the log are whole batches; the indexes hold an entry for each batch that is due one, and for
no other; bytes beyond `size` in a file were never reported. `segment_set`, `log_reader` and `recovery` call it. Where
nothing else is named, OSError is raised.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.core.errors import CorruptLogError, StorageFailedError
from headrace.core.limits import INDEX_INTERVAL_BYTES
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.recovery import SegmentFacts
from headrace.core.log.segments import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    DamagedIndexError,
    IndexCursor,
    OffsetEntry,
    parse_log_name,
    segment_name,
)
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import RawBatch
from headrace.core.types import Offset
from headrace_broker.storage.disk import FileHandle, ReadAt, shown
from headrace_broker.storage.segment_indexes import SegmentIndexes, rebuild_indexes, walk_batches

_APPENDING = os.O_RDWR | os.O_APPEND
_SERIALS = itertools.count()
_WALKED_BYTES = 4 * INDEX_INTERVAL_BYTES
"""The length of a run below which it is walked from its start: that is faster than a search in the index."""


class Segment:
    __slots__ = ("_name", "base_offset", "indexes", "log", "serial", "size")

    def __init__(self, directory: Path, base_offset: Offset, flags: int) -> None:
        """Open a segment without its indexes: `create`, `open_closed` or `resume` handle those."""
        self._name = directory / segment_name(base_offset)
        self.base_offset = base_offset
        self.serial = next(_SERIALS)
        """A number that no other segment of this process has: compaction puts another file under the same name."""
        self.log = FileHandle(directory / (segment_name(base_offset) + LOG_SUFFIX), flags)
        self.size = self.log.size()
        self.indexes: SegmentIndexes

    @classmethod
    def create(cls, directory: Path, base_offset: Offset) -> "Segment":
        """Create a new and empty one; its names are not on disk until the directory is synced."""
        segment = cls(directory, base_offset, _APPENDING | os.O_CREAT | os.O_EXCL)
        try:
            segment.indexes = SegmentIndexes.create(segment._name, base_offset)
        except OSError:
            segment.log.path.unlink()
            raise
        return segment

    @classmethod
    def open_closed(cls, directory: Path, base_offset: Offset) -> "Segment":
        """Open it for reading. Indexes that are missing or cut short are built again."""
        segment = cls(directory, base_offset, os.O_RDONLY)
        try:
            segment.indexes = SegmentIndexes.open(segment._name, base_offset)
        except DamagedIndexError:
            segment.rebuild_indexes()
        return segment

    @classmethod
    def open_last(cls, directory: Path, base_offset: Offset) -> "Segment":
        """Open it for recovery, which calls `resume` next."""
        return cls(directory, base_offset, _APPENDING)

    @classmethod
    def reopen(cls, directory: Path, place: LogPoint) -> "Segment":
        """Open the segment in which a log will go on that is to be cut at `place`. No file is changed before
        `cut_back`.

        Raises what `resume` raises.
        """
        segment = cls.open_last(directory, place.segment)
        segment._trust(place.position, place.offset)
        segment.size = place.position
        return segment

    def cut_back(self) -> None:
        """Cut the files of a reopened segment to what it counts. They are not synced."""
        self.log.cut(self.size)
        self.indexes.trim()

    def resume(self, position: int, offset: Offset) -> str:
        """Trust what lies below `position`, where `offset` starts; forget the index entries for what lies above.

        It returns why the indexes had to be built again, else "". Raises CorruptLogError where the batches below do not
        lead to `position` and `offset`. Costs the same however much lies below.
        """
        reason = self._trust(position, offset)
        self.indexes.trim()
        return reason

    def _trust(self, position: int, offset: Offset) -> str:
        """Trust as `resume` does; the indexes do not count what lies above, and have it in their files still."""
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
        """Append all of it to the page cache; or nothing, and raise OSError. Raises StorageFailedError where neither
        can be had."""
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
        """Count in batches that are in the file from `size` on."""
        self.indexes.add(headers, self.size)
        self.size += sum(header.batch_bytes for header in headers)

    def cut(self, size: int) -> None:
        """Cut back to the first `size` bytes."""
        self.log.cut(size)
        self.size = size

    def sync_log(self) -> None:
        """Sync the log, which covers what was appended before the call."""
        self.log.sync_data()

    def rebuild_indexes(self) -> None:
        """Build the indexes of a closed segment again, up to the first damage in it."""
        self.indexes, _, _ = rebuild_indexes(self._name, self.log, self.base_offset, self.size)


def delete_segment(directory: Path, base_offset: Offset) -> None:
    """Delete its files, as far as they are there. The log goes last: by its name an interrupted deletion is found
    again."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        (directory / (segment_name(base_offset) + suffix)).unlink(missing_ok=True)


def segments_in(directory: Path) -> list[SegmentFacts]:
    """Return the facts of the `.log` files that are there, in order."""
    with os.scandir(directory) as entries:
        found = [(parse_log_name(entry.name), entry) for entry in entries if entry.name.endswith(LOG_SUFFIX)]
        segments = [SegmentFacts(base, entry.stat().st_size) for base, entry in found if base is not None]
    return sorted(segments, key=lambda segment: segment.base_offset)


class SegmentView(NamedTuple):
    """The part of a segment that a reader may see."""

    segment: Segment
    size: int
    end_offset: Offset
    """The offset where the next segment starts, or the log ends."""


class Extent(NamedTuple):
    """The end of a run of whole batches."""

    position: int
    offset: Offset


def locate_batch(view: SegmentView, read: ReadAt, offset: Offset) -> int:
    """Return the position of the batch that holds `offset`, which lies in [base, end) of the segment."""
    segment = view.segment
    guess = (offset - segment.base_offset) / (view.end_offset - segment.base_offset)
    entry = segment.indexes.by_offset.last_while(read, lambda entry: entry.offset <= offset, guess)
    entry = entry or OffsetEntry(segment.base_offset, 0)
    cursor = IndexCursor(entry.position)
    for position, header in _walk_from(view, read, entry):
        if header.base_offset <= offset and cursor.is_due(position):
            raise DamagedIndexError(f"{shown(segment.log.path)}: the batch at {position} has no index entry")
        if header.next_offset > offset:
            return position
    raise CorruptLogError(f"{shown(segment.log.path)} ends before offset {offset}")


def batch_holding(view: SegmentView, read: ReadAt, offset: Offset) -> tuple[int, Offset]:
    """Return (position, base offset) of the batch that holds `offset`; by the batches alone where an index is
    damaged."""
    try:
        start = locate_batch(view, read, offset)
    except DamagedIndexError:
        start = 0
    for position, header in walk_batches(view.segment.log, read, start, view.size):
        if header.next_offset > offset:
            return position, header.base_offset
    raise CorruptLogError(f"{shown(view.segment.log.path)} ends before offset {offset}")


def extent_from(view: SegmentView, read: ReadAt, start: int, max_bytes: int, up_to: Offset) -> Extent | None:
    """Return where the batches from `start` on end that together have at most `max_bytes`, but one batch at least.

    The result is None where even the first one reaches beyond `up_to`.
    """
    whole = Extent(view.size, view.end_offset)
    limit = Extent(min(start + max_bytes, view.size), min(up_to, view.end_offset))
    if limit == whole:
        return whole
    entry = None if limit.position - start < _WALKED_BYTES else _last_entry(view, read, limit)
    if entry is None or entry.position <= start:
        return _grow_extent(walk_batches(view.segment.log, read, start, view.size), None, limit)
    return _grow_extent(_walk_from(view, read, entry), Extent(entry.position, entry.offset), limit)


def batches_since(view: SegmentView, read: ReadAt, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches whose headers promise a record of `timestamp_ms` or later."""
    entry = view.segment.indexes.by_time.last_while(read, lambda entry: entry.max_timestamp_ms < timestamp_ms)
    start = locate_batch(view, read, entry.offset) if entry and entry.offset < view.end_offset else 0
    for position, header in walk_batches(view.segment.log, read, start, view.size):
        if header.max_timestamp_ms >= timestamp_ms and not header.is_empty:
            yield position, header


def _last_entry(view: SegmentView, read: ReadAt, limit: Extent) -> OffsetEntry | None:
    return view.segment.indexes.by_offset.last_while(
        read,
        lambda entry: entry.position <= limit.position and entry.offset <= limit.offset,
        guess=limit.position / view.size,
    )


def _grow_extent(headers: Iterator[tuple[int, BatchHeader]], end: Extent | None, limit: Extent) -> Extent | None:
    for position, header in headers:
        after = Extent(position + header.batch_bytes, header.next_offset)
        if after.offset > limit.offset or (after.position > limit.position and end):
            break
        end = after
    return end


def _walk_from(view: SegmentView, read: ReadAt, entry: OffsetEntry) -> Iterator[tuple[int, BatchHeader]]:
    for position, header in walk_batches(view.segment.log, read, entry.position, view.size):
        if position == entry.position and header.base_offset != entry.offset:
            raise DamagedIndexError(f"{shown(view.segment.log.path)}: offset {entry.offset} is not at {position}")
        yield position, header
