"""Finding batches in one segment, by offset, by size, by time. Reads headers and index entries only.

`read` says whether to wait for the disk (`disk.read_cached`, `disk.read_blocking`); the segment may be appended to
meanwhile, so callers say up to where it is theirs (`SegmentView`). All raise DamagedIndexError where an index must be
built again, CorruptLogError where batches are damaged, and what `read` raises.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.errors import CorruptLogError
from headrace.core.limits import INDEX_INTERVAL_BYTES
from headrace.core.log.segments import DamagedIndexError, IndexCursor, OffsetEntry
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import ReadAt, shown
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.walk import walk

_WALKED_BYTES = 4 * INDEX_INTERVAL_BYTES
"""A shorter run is walked from its start: that is faster than a search in the index."""


class SegmentView(NamedTuple):
    """What a reader may see of a segment."""

    segment: Segment
    size: int
    end_offset: Offset
    """Where the next segment starts, or the log ends."""


class Extent(NamedTuple):
    """End of a run of whole batches."""

    position: int
    offset: Offset


def locate(view: SegmentView, read: ReadAt, offset: Offset) -> int:
    """Position of the batch that holds `offset`, which lies in [base, end) of the segment."""
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
    """(position, base offset) of the batch that holds `offset`; by the batches alone where an index is damaged."""
    try:
        start = locate(view, read, offset)
    except DamagedIndexError:
        start = 0
    for position, header in walk(view.segment.log, read, start, view.size):
        if header.next_offset > offset:
            return position, header.base_offset
    raise CorruptLogError(f"{shown(view.segment.log.path)} ends before offset {offset}")


def extent(view: SegmentView, read: ReadAt, start: int, max_bytes: int, up_to: Offset) -> Extent | None:
    """Where the batches from `start` on end that together have at most `max_bytes`, but one batch at least.

    None where even the first one reaches beyond `up_to`.
    """
    whole = Extent(view.size, view.end_offset)
    limit = Extent(min(start + max_bytes, view.size), min(up_to, view.end_offset))
    if limit == whole:
        return whole
    entry = None if limit.position - start < _WALKED_BYTES else _last_entry(view, read, limit)
    if entry is None or entry.position <= start:
        return _grow(walk(view.segment.log, read, start, view.size), None, limit)
    return _grow(_walk_from(view, read, entry), Extent(entry.position, entry.offset), limit)


def batches_since(view: SegmentView, read: ReadAt, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches that say they have a record of `timestamp_ms` or later."""
    entry = view.segment.indexes.by_time.last_while(read, lambda entry: entry.max_timestamp_ms < timestamp_ms)
    start = locate(view, read, entry.offset) if entry and entry.offset < view.end_offset else 0
    for position, header in walk(view.segment.log, read, start, view.size):
        if header.max_timestamp_ms >= timestamp_ms and not header.is_empty:
            yield position, header


def _last_entry(view: SegmentView, read: ReadAt, limit: Extent) -> OffsetEntry | None:
    return view.segment.indexes.by_offset.last_while(
        read,
        lambda entry: entry.position <= limit.position and entry.offset <= limit.offset,
        guess=limit.position / view.size,
    )


def _grow(headers: Iterator[tuple[int, BatchHeader]], end: Extent | None, limit: Extent) -> Extent | None:
    for position, header in headers:
        after = Extent(position + header.batch_bytes, header.next_offset)
        if after.offset > limit.offset or (after.position > limit.position and end):
            break
        end = after
    return end


def _walk_from(view: SegmentView, read: ReadAt, entry: OffsetEntry) -> Iterator[tuple[int, BatchHeader]]:
    for position, header in walk(view.segment.log, read, entry.position, view.size):
        if position == entry.position and header.base_offset != entry.offset:
            raise DamagedIndexError(f"{shown(view.segment.log.path)}: offset {entry.offset} is not at {position}")
        yield position, header
