"""The reader of one log while it grows: by offset, by time.

A read tries the page cache first, on the event loop; other bytes are read in a thread, so that a consumer far behind
never holds up producers. A damaged index is built again and the read repeated. A `PartitionLog` owns it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol, TypeVar
from weakref import WeakMethod

from headrace.core.errors import CorruptBatchError, CorruptLogError, OffsetOutOfRangeError
from headrace.core.limits import READ_INLINE_BYTES_MAX
from headrace.core.log.segments import DamagedIndexError
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import NotCachedError, ReadAt, read_cached, read_once, storage_errors
from headrace_broker.storage.segment import Extent, SegmentView, batches_since, extent_from, locate_batch
from headrace_broker.storage.segment_set import SegmentGoneError, SegmentSet
from headrace_broker.storage.threads import StorageThreads

READ_POSITIONS_MAX = 64
"""The number of ends of recent reads that one partition remembers: the next fetch of a consumer starts there."""


logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Attempt(Protocol[T_co]):
    def __call__(self, read: ReadAt) -> T_co: ...


class _DamagedSegmentError(Exception):
    def __init__(self, base_offset: Offset, reason: str) -> None:
        super().__init__(reason)
        self.base_offset = base_offset


class _Place(NamedTuple):
    """The place where a read ended."""

    segment: int
    """The serial of the segment that was read: in its compacted form the same offset lies elsewhere."""
    end: Extent


class LogReader:
    def __init__(self, segments: SegmentSet, threads: StorageThreads, close_active: Callable[[], None]) -> None:
        """Take `close_active`, a method that makes the log go on in a new segment."""
        self._segments = segments
        self._threads = threads
        self._close_active = WeakMethod(close_active)
        """A weak reference, because its object owns this one: a log without other references lets go of its files at
        once. The collector of garbage does not visit what was there when the broker started."""
        self._positions: dict[Offset, _Place] = {}
        """The places where recent reads ended; consumers mostly continue there. Only for offsets within a segment."""

    async def read(self, offset: Offset, max_bytes: int, up_to: Offset) -> list[memoryview]:
        """Read as `PartitionLog.read` does; `offset` lies in the log, `up_to` not beyond its end."""
        return self._remembering(*await self._attempt(lambda read: self._read(read, offset, max_bytes, up_to)))

    def read_cached(self, offset: Offset, max_bytes: int, up_to: Offset) -> list[memoryview] | None:
        """Read without waiting, no more than may be read at once; return None where it has to be waited for."""
        max_bytes = min(max_bytes, READ_INLINE_BYTES_MAX)
        with storage_errors("reading the log"), suppress(NotCachedError, SegmentGoneError, _DamagedSegmentError):
            return self._remembering(
                *self._of_one_history(lambda read: self._read(read, offset, max_bytes, up_to), read_cached)
            )
        return None

    async def find(self, timestamp_ms: int, up_to: Offset) -> tuple[Offset, int] | None:
        """Find as `PartitionLog.find_timestamp` does."""
        return await self._attempt(lambda read: self._find(read, timestamp_ms, up_to))

    def _remembering(self, buffers: list[memoryview], end: _Place | None) -> list[memoryview]:
        if end is not None:
            self._positions[end.end.offset] = end
            if len(self._positions) > READ_POSITIONS_MAX:
                del self._positions[next(iter(self._positions))]
        return buffers

    async def _attempt(self, attempt: _Attempt[T]) -> T:
        repaired = set[Offset]()
        while True:
            try:
                return await self._cached_or_blocking(attempt)
            except SegmentGoneError:
                continue  # Records were deleted or cut off meanwhile: the next attempt sees what is left.
            except _DamagedSegmentError as damage:
                if damage.base_offset in repaired:
                    raise CorruptLogError(
                        f"segment {damage.base_offset} has new indexes and still: {damage}"
                    ) from damage
                repaired.add(damage.base_offset)
                with suppress(SegmentGoneError):
                    await self._repair(damage)

    async def _cached_or_blocking(self, attempt: _Attempt[T]) -> T:
        # Opening a closed segment takes descriptors, and there may be none left.
        with storage_errors("reading the log"):
            try:
                return self._of_one_history(attempt, read_cached)
            except NotCachedError:
                return await self._threads.read(self._of_one_history, attempt, read_once)

    def _of_one_history(self, attempt: _Attempt[T], read: ReadAt) -> T:
        """Attempt it on one history. Raises SegmentGoneError where the log was cut meanwhile, whatever the attempt has
        found."""
        history = self._segments.history(read)
        try:
            found = attempt(read)
        except Exception as error:
            if history != self._segments.cuts:
                raise SegmentGoneError from error
            raise
        if history != self._segments.cuts:
            raise SegmentGoneError
        return found

    async def _repair(self, damage: _DamagedSegmentError) -> None:
        """Build the indexes anew. An active segment is closed first: nothing may be added to them meanwhile."""
        logger.warning("Segment %d: building its indexes again: %s", damage.base_offset, damage)
        if damage.base_offset == self._segments.active.base_offset:
            close_active = self._close_active()
            assert close_active is not None, "whoever reads has the log"
            close_active()
        with storage_errors(f"building the indexes of segment {damage.base_offset}"):
            await self._threads.read(self._segments.rebuild_indexes, damage.base_offset)

    def _read(
        self, read: ReadAt, offset: Offset, max_bytes: int, up_to: Offset
    ) -> tuple[list[memoryview], _Place | None]:
        start_offset, log_end = self._segments.start_offset, self._segments.tip.offset
        if offset < start_offset:
            raise OffsetOutOfRangeError(f"offset {offset} was deleted just now", logStartOffset=start_offset)
        if offset > log_end:
            raise OffsetOutOfRangeError(f"offset {offset} was cut off just now", logStartOffset=start_offset)
        up_to = min(up_to, log_end)
        buffers: list[memoryview] = []
        end = None
        while offset < up_to and (max_bytes > 0 or not buffers):
            view = self._segments.view(offset, read)
            with _damage_of(view):
                start = self._position(view, read, offset)
                found = extent_from(view, read, start, max_bytes, up_to)
            if found is None or (buffers and found.position - start > max_bytes):
                break
            end = _Place(view.segment.serial, found)
            buffers.append(memoryview(read(view.segment.log, start, found.position - start)))
            if found.position < view.size:
                break  # `extent_from` left out the next batch: it need not be searched again.
            max_bytes -= found.position - start
            offset = found.offset
        return buffers, end

    def _position(self, view: SegmentView, read: ReadAt, offset: Offset) -> int:
        if offset == view.segment.base_offset:
            return 0
        known = self._positions.get(offset)
        if known is None or known.segment != view.segment.serial:
            return locate_batch(view, read, offset)
        return known.end.position

    def _find(self, read: ReadAt, timestamp_ms: int, up_to: Offset) -> tuple[Offset, int] | None:
        start = self._segments.start_offset
        for view in self._segments.views_since(timestamp_ms, up_to, read):
            with _damage_of(view):
                for position, header in batches_since(view, read, timestamp_ms):
                    if header.next_offset > up_to:
                        return None
                    if header.next_offset <= start:
                        continue
                    batch = read(view.segment.log, position, header.batch_bytes)
                    found = _first_record_since(header, memoryview(batch), timestamp_ms, start)
                    if found:
                        return found
        return None


def _first_record_since(
    header: BatchHeader, batch: memoryview, timestamp_ms: int, start: Offset
) -> tuple[Offset, int] | None:
    """Return the first record from `start` on. None where the header promised more than the records keep."""
    # This loads pyarrow, which is needed only to decode records.
    from headrace.core.records.columns import decode_batch

    try:
        decoded = decode_batch(batch)
    except CorruptBatchError:
        # Of a body that cannot be decoded no more is known than what its header has.
        return max(header.base_offset, start), header.base_timestamp_ms
    times: list[int] = decoded.records.column("timestamp_ms").to_pylist()
    rows = zip(decoded.offsets.tolist(), times, strict=True)
    return next(((Offset(offset), time) for offset, time in rows if offset >= start and time >= timestamp_ms), None)


@contextmanager
def _damage_of(view: SegmentView) -> Iterator[None]:
    try:
        yield
    except DamagedIndexError as error:
        raise _DamagedSegmentError(view.segment.base_offset, str(error)) from error
