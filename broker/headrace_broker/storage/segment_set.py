"""The segments of one log: which segments there are, which are open, where the log ends, and how old each is.

A `PartitionLog` owns it. Its task rolls, drops and publishes the ends (`start_offset`, `tip`); readers in other threads
take a `view`, which never reaches beyond the end that was published when it was taken. `OpenSegments` holds the closed
segments that are open; one that is let go of, deleted or replaced by its compacted form stays open for as long as a
reader or a sync holds it. Nothing here takes longer the more segments there are, except for retention and metrics.

A cut is the one change to bytes that readers may be reading. It is made in a thread, while the task waits; `cuts`
counts before any file changes, so that a reader compares it before and after, and throws away what it has read of two
histories (`history`).

`NewestRecords` knows the time of the newest record of each closed segment: where a lookup by time begins. Times need
not rise from segment to segment, so the search is over their running maximum, which does. Segments of an earlier life
are read once, by the first lookup, in any thread. Compaction and deletion only lower a segment's newest time: a maximum
that is too great costs a lookup one segment more, never a record. `ClosedSegmentTimes` returns how old a closed segment
is, for retention, which asks for the oldest one again and again: a segment is opened once when it becomes the oldest.
It has one caller at a time, while nothing else deletes or replaces segments.
"""

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headrace.core.errors import CorruptLogError, StorageFailedError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.retention import ClosedSegment, SegmentTimes, segments_below
from headrace.core.log.segments import BEFORE_ALL_TIMES_MS, DamagedIndexError
from headrace.core.types import Offset
from headrace_broker.storage.compaction_files import SegmentSpan, swap_in
from headrace_broker.storage.disk import NotCachedError, ReadAt, fsync_directory, read_blocking, read_cached, shown
from headrace_broker.storage.recovery import RecoveredLog
from headrace_broker.storage.segment import Segment, SegmentView, batch_holding, delete_segment
from headrace_broker.storage.segment_indexes import walk_batches
from headrace_broker.storage.threads import OpenSegments

_AFTER_ALL_TIMES_MS = (1 << 63) - 1
logger = logging.getLogger(__name__)


class _Running(NamedTuple):
    bases: Sequence[Offset]
    """The very list that the maxima belong to: it only grows, and is replaced where it changes otherwise."""
    maxima: Sequence[int]
    """The maxima of the first segments of `bases`, each with all before."""


class NewestRecords:
    def __init__(self) -> None:
        self._known: dict[tuple[Offset, Offset], int] = {}
        """The times by base and end offset: segments that are merged are other segments."""
        self._running = _Running((), ())

    def note(self, bases: Sequence[Offset], end: Offset, newest_ms: int) -> None:
        """Note the time of the last of these segments, which is being closed."""
        if len(self._known) > 2 * len(bases):
            self._forget_all_but(bases)
        self._known[bases[-1], end] = newest_ms

    def first_since(self, timestamp_ms: int, bases: Sequence[Offset], newest_of: Callable[[Offset], int]) -> int:
        """Return the index of the first segment that may hold a record of `timestamp_ms` or later; of the active one at
        most.

        `newest_of` reads the segment with this base. Raises what it raises, but for damage.
        """
        closed = len(bases) - 1
        running = self._running
        maxima = running.maxima if running.bases is bases else ()
        if not maxima or maxima[-1] < timestamp_ms:
            maxima = self._extended(maxima, timestamp_ms, bases, newest_of)
        return min(bisect_left(maxima, timestamp_ms), closed)

    def _extended(
        self, maxima: Sequence[int], timestamp_ms: int, bases: Sequence[Offset], newest_of: Callable[[Offset], int]
    ) -> Sequence[int]:
        longer = list(maxima)
        newest = longer[-1] if longer else BEFORE_ALL_TIMES_MS
        for index in range(len(longer), len(bases) - 1):
            if newest >= timestamp_ms:
                break
            newest = max(newest, self._newest(bases[index], bases[index + 1], newest_of))
            longer.append(newest)
        if len(longer) > len(maxima):
            self._publish(_Running(bases, longer))
        return longer

    def _publish(self, running: _Running) -> None:
        if self._running.bases is not running.bases:
            self._forget_all_but(running.bases)
        self._running = running

    def _forget_all_but(self, bases: Sequence[Offset]) -> None:
        """Forget all other segments: they were dropped or merged, and their times are of no use any more."""
        kept = {key: self._known.get(key) for key in pairwise(bases)}
        self._known = {key: newest_ms for key, newest_ms in kept.items() if newest_ms is not None}

    def _newest(self, base: Offset, end: Offset, newest_of: Callable[[Offset], int]) -> int:
        known = self._known.get((base, end))
        if known is None:
            try:
                known = self._known[base, end] = newest_of(base)
            except (DamagedIndexError, CorruptLogError):
                # The search that needs it finds the damage, and handles it.
                return _AFTER_ALL_TIMES_MS
        return known


def newest_record_ms(segment: Segment, read: ReadAt) -> int:
    """Return the time of a closed segment's newest record, from the last entry of its time index and the batches after
    it.

    Raises DamagedIndexError, CorruptLogError, and what `read` raises.
    """
    newest_ms, position = BEFORE_ALL_TIMES_MS, 0
    count = segment.indexes.count
    if count:
        newest_ms = segment.indexes.by_time.entry(read, count - 1).max_timestamp_ms
        position = segment.indexes.by_offset.entry(read, count - 1).position
    headers = walk_batches(segment.log, read, position, segment.size)
    return max([newest_ms, *(header.max_timestamp_ms for _, header in headers)])


class SegmentGoneError(Exception):
    """The segment was dropped or replaced after the caller had taken it: take a view again."""


class SegmentSet:
    def __init__(self, directory: Path, recovered: RecoveredLog, open_segments: OpenSegments) -> None:
        self._directory = directory
        self._open = open_segments
        self._newest = NewestRecords()
        self._bases = [facts.base_offset for facts in recovered.closed] + [recovered.active.base_offset]
        """The bases, replaced as a whole where segments go, because readers use them from other threads."""
        self._closed_bytes = {facts.base_offset: facts.size_bytes for facts in recovered.closed}
        self._closed: dict[Offset, Segment] = {}
        self._opening = threading.Lock()
        """A lock, held while files of closed segments are opened, built again, replaced or deleted."""
        self._replacing = range(0)
        """The offsets whose files may differ from `_bases`: no thread opens a segment among them."""
        self._replace_failed = False
        """True where they stay so for as long as the log is open."""
        self.start_offset = recovered.log_start
        """The first offset that is kept; it never falls."""
        self.cuts = 0
        """The number of cuts of the log; counted when a cut begins."""
        self.is_being_cut = False
        """True while a cut is made; it stays so where a cut has failed half-way."""
        self.active = recovered.active
        self.tip = recovered.end
        """The end of the log, set after everything below it is written."""

    @property
    def size_bytes(self) -> int:
        return sum(self._closed_bytes.values()) + self.tip.position

    def roll(self, created_ms: int) -> None:
        """Close the active segment, which is not empty, and go on in a new one. Raises OSError."""
        closed, tip = self.active, self.tip
        self.active = Segment.create(self._directory, tip.offset)
        self._newest.note(self._bases, tip.offset, closed.indexes.cursor.max_timestamp_ms)
        self._closed_bytes[closed.base_offset] = closed.size
        self._keep_open(closed)
        # The order matters: readers find the tip's segment in the list, however late they read it.
        self._bases.append(tip.offset)
        self.tip = LogPoint(tip.offset, tip.offset, 0, created_ms)

    def closed_segments(self) -> Iterator[ClosedSegment]:
        """Yield the closed segments, oldest first; none is dropped meanwhile."""
        bases = self._bases
        for index in range(len(bases) - 1):
            yield ClosedSegment(bases[index], bases[index + 1], self._closed_bytes[bases[index]])

    def base_below(self, offset: Offset) -> Offset:
        """Return where the log would start if all segments were gone that lie below `offset` as a whole."""
        return self._bases[segments_below(offset, self._bases)]

    def drop_below(self, start: Offset) -> dict[Offset, int]:
        """Start the log at `start`, and return the segments that are not needed any more, and their bytes."""
        self.start_offset = max(self.start_offset, start)
        count = segments_below(self.start_offset, self._bases)
        dropped, self._bases = self._bases[:count], self._bases[count:]
        return {base: self._closed_bytes.pop(base) for base in dropped}

    def delete(self, dropped: Iterable[Offset]) -> None:
        """Delete the files of segments that were dropped, oldest first. Blocks. Raises OSError."""
        with self._opening:
            for base in dropped:
                self._closed.pop(base, None)
                delete_segment(self._directory, base)
        fsync_directory(self._directory)

    def replace(self, span: SegmentSpan) -> None:
        """Swap in the compacted form of some closed segments; then call `replaced`. Blocks. Raises OSError.

        After an error only the next opening of the log can see what is there.
        """
        with self._opening:
            self._replacing = range(span.base_offset, span.next_offset)
            for base in tuple(self._closed):
                if base in self._replacing:
                    self._closed.pop(base, None)
            try:
                swap_in(self._directory, span)
            except OSError:
                self._replace_failed = True
                raise

    def replaced(self, span: SegmentSpan, size_bytes: int) -> None:
        """Note that one segment of this size stands where those of the span were."""
        first, end = (bisect_left(self._bases, offset) for offset in span)
        for base in self._bases[first + 1 : end]:
            del self._closed_bytes[base]
        self._closed_bytes[span.base_offset] = size_bytes
        self._bases = [*self._bases[: first + 1], *self._bases[end:]]
        self._replacing = range(0)

    def place_of(self, end: Offset) -> LogPoint:
        """Return where the batch starts that holds `end`, which lies in the log: to cut there. Blocks.

        Raises CorruptLogError, and OSError. The age of a segment that was closed counts from its last write.
        """
        tip, index = self.tip, bisect_right(self._bases, end) - 1
        base = self._bases[index]
        if base == tip.segment:
            view, created_ms = SegmentView(self.active, tip.position, tip.offset), tip.segment_created_ms
        else:
            segment = self.glimpse(base)
            view, created_ms = SegmentView(segment, segment.size, self._bases[index + 1]), segment.log.written_ms()
        position, offset = batch_holding(view, read_blocking, end)
        return LogPoint(offset, base, position, created_ms)

    def cut(self, place: LogPoint) -> None:
        """Cut the log at `place`; it goes on in the segment there, and what is cut off is gone. Nothing is synced.

        The last segments go first: whenever it is interrupted, what is left is a log. Blocks. Raises OSError; while
        `is_being_cut` then, only the next opening can see what is there; otherwise nothing has changed.
        """
        with self._opening:
            active = Segment.reopen(self._directory, place)
            self.is_being_cut = True
            self.cuts += 1
            kept = [*(base for base in self._bases if base < place.segment), place.segment]
            for base in reversed([base for base in self._bases if base > place.segment]):
                delete_segment(self._directory, base)
            active.cut_back()
            self._closed_bytes = {base: self._closed_bytes[base] for base in kept[:-1]}
            self._closed = {base: closed for base, closed in self._closed.items() if base < place.segment}
            self._newest = NewestRecords()
            self._bases, self.active = kept, active
            self.start_offset = min(self.start_offset, place.offset)
            self.tip = place
            self.is_being_cut = False

    @property
    def first(self) -> Offset:
        """Return where the oldest segment begins."""
        return self._bases[0]

    def empty_at(self, offset: Offset) -> tuple[Segment, bool]:
        """Return an empty segment there, its names on disk, and whether it is not in the list yet. Raises OSError."""
        is_new = offset != self.active.base_offset
        segment = Segment.create(self._directory, offset) if is_new else self.active
        try:
            fsync_directory(self._directory)
        except OSError:
            if is_new:
                self.remove(segment)
            raise
        return segment, is_new

    def remove(self, segment: Segment) -> None:
        """Remove a segment that `empty_at` has made. Raises OSError."""
        delete_segment(self._directory, segment.base_offset)

    def start_anew(self, active: Segment) -> list[Offset]:
        """Make the log empty, going on in `active`, and return the segments whose files are not needed any more."""
        with self._opening:
            self.is_being_cut = True
            self.cuts += 1
            offset = active.base_offset
            gone = [base for base in self._bases if base != offset]
            self._closed_bytes, self._closed, self._newest = {}, {}, NewestRecords()
            self._bases, self.active, self.start_offset = [offset], active, offset
            self.tip = LogPoint(offset, offset, 0, self.tip.segment_created_ms)
            self.is_being_cut = False
        return gone

    def history(self, read: ReadAt) -> int:
        """Return a number to be compared with `cuts` after a read: where they differ, the bytes that were read may be
        torn.

        Waits for a cut that is being made: with `read_cached` that raises NotCachedError. Raises StorageFailedError
        where it has failed.
        """
        history = self.cuts
        if self.is_being_cut:
            if read is read_cached:
                raise NotCachedError
            with self._opening:
                if self.is_being_cut:
                    raise StorageFailedError(
                        f"how much is left of the log in {shown(self._directory)} the next start can tell"
                    )
        return history

    def has(self, span: SegmentSpan) -> bool:
        """Return whether closed segments begin and end where the span does."""
        return all(self._bases[bisect_left(self._bases, offset) :][:1] == [offset] for offset in span)

    def view(self, offset: Offset, read: ReadAt) -> SegmentView:
        """Return the segment that holds `offset`, which lies in [start_offset, tip.offset).

        Opening a closed segment waits for the disk: with `read_cached` that raises NotCachedError. Raises
        SegmentGoneError, and StorageFailedError where replacing it has failed.
        """
        active, tip, bases = self.active, self.tip, self._bases
        index = bisect_right(bases, offset) - 1
        if index < 0:
            raise SegmentGoneError
        base = bases[index]
        if base == tip.segment:
            if active.base_offset != base:
                raise SegmentGoneError  # The segment was rolled between the two looks.
            return SegmentView(active, tip.position, tip.offset)
        segment = self._open_closed(base, read)
        if self._bases is not bases:
            # Segments went meanwhile: this one may be a compacted one, which ends elsewhere.
            raise SegmentGoneError
        return SegmentView(segment, segment.size, bases[index + 1])

    def views_since(self, timestamp_ms: int, up_to: Offset, read: ReadAt) -> Iterator[SegmentView]:
        """Yield the segments that start below `up_to`, in order, without those that hold nothing as young as that.

        The first call after a start reads every segment once. Raises what `view` raises.
        """
        bases, end = self._bases, min(up_to, self.tip.offset)
        index = self._newest.first_since(
            timestamp_ms, bases, lambda base: newest_record_ms(self._open_closed(base, read), read)
        )
        while index < len(bases) and bases[index] < end:
            yield self.view(bases[index], read)
            index += 1

    def rebuild_indexes(self, base: Offset) -> None:
        """Rebuild the indexes of a closed segment. Blocks. Raises OSError, SegmentGoneError."""
        with self._opening:
            self._opened(base).rebuild_indexes()

    def glimpse(self, base: Offset) -> Segment:
        """Return a closed segment, which does not stay open for it. Blocks. Raises what `view` raises, and OSError."""
        with self._opening:
            return self._found(base)

    def _open_closed(self, base: Offset, read: ReadAt) -> Segment:
        segment = self._closed.get(base)
        if segment is not None:
            self._open.note(self, base)
            return segment
        if read is read_cached:
            raise NotCachedError
        with self._opening:
            return self._opened(base)

    def _opened(self, base: Offset) -> Segment:
        segment = self._found(base)
        self._keep_open(segment)
        return segment

    def _found(self, base: Offset) -> Segment:
        if base in self._replacing and self._replace_failed:
            raise StorageFailedError(
                f"what there is of segment {base} in {shown(self._directory)} the next start can tell"
            )
        if base not in self._closed_bytes or base in self._replacing:
            raise SegmentGoneError
        return self._closed.get(base) or Segment.open_closed(self._directory, base)

    def _keep_open(self, segment: Segment) -> None:
        self._closed[segment.base_offset] = segment
        self._open.note(self, segment.base_offset)

    def let_go(self, base: Offset) -> None:
        """Let go of a closed segment that has not been read for longest."""
        self._closed.pop(base, None)


class ClosedSegmentTimes:
    def __init__(self, segments: SegmentSet) -> None:
        self._segments = segments
        self._last: tuple[ClosedSegment, SegmentTimes] | None = None

    def known(self, segment: ClosedSegment) -> SegmentTimes:
        """Return the times without reading the disk. Raises NotCachedError."""
        if self._last is None or self._last[0] != segment:
            raise NotCachedError
        return self._last[1]

    def read_times(self, segment: ClosedSegment) -> SegmentTimes:
        """Return the times. Blocks. Raises OSError."""
        try:
            return self.known(segment)
        except NotCachedError:
            times = _times_of(self._segments.glimpse(segment.base_offset))
        self._last = segment, times
        return times


def _times_of(segment: Segment) -> SegmentTimes:
    written_ms = segment.log.written_ms()
    try:
        return SegmentTimes(newest_record_ms(segment, read_blocking), written_ms)
    except (DamagedIndexError, CorruptLogError) as error:
        # A damaged segment must not be kept for ever. A reader of it has the index built again.
        logger.warning("%s: its age is that of its file: %s", segment.log.path, error)
        return SegmentTimes(written_ms, written_ms)
