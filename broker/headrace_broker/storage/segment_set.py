"""The segments of one log: which there are, which are open, and where the log ends.

Owned by a `PartitionLog`. Its task rolls, drops and publishes the ends (`start_offset`, `tip`); readers in other
threads take a `view`, which never reaches beyond the end that was published when it was taken. At most
`CLOSED_SEGMENTS_OPEN_MAX` closed segments are open; a segment that is let go of, or deleted, stays open for as long as
a reader or a sync holds it.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from headrace.core.limits import CLOSED_SEGMENTS_OPEN_MAX
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.trimming import segments_below
from headrace.core.types import Offset
from headrace_broker.storage.disk import NotCachedError, ReadAt, fsync_directory, read_cached
from headrace_broker.storage.recovery import RecoveredLog
from headrace_broker.storage.segment import Segment, delete_segment
from headrace_broker.storage.segment_reader import SegmentView


class SegmentGoneError(Exception):
    """The segment was dropped after the caller had looked: look again where the log starts."""


class SegmentSet:
    def __init__(self, directory: Path, recovered: RecoveredLog) -> None:
        self._directory = directory
        self._bases = [facts.base_offset for facts in recovered.closed] + [recovered.active.base_offset]
        """Replaced as a whole where segments are dropped, because readers look at it from other threads."""
        self._closed_bytes = {facts.base_offset: facts.size_bytes for facts in recovered.closed}
        self._closed: dict[Offset, Segment] = {}
        self._opening = threading.Lock()
        """Held while files of closed segments are opened, built again or deleted."""
        self.start_offset = recovered.log_start
        """First offset that is kept; never falls."""
        self.active = recovered.active
        self.tip = recovered.end
        """The end of the log; set after everything below it is written."""

    @property
    def size_bytes(self) -> int:
        return sum(self._closed_bytes.values()) + self.tip.position

    def roll(self, created_ms: int) -> None:
        """Close the active segment, which is not empty, and go on in a new one. Raises OSError."""
        closed, tip = self.active, self.tip
        self.active = Segment.create(self._directory, tip.offset)
        self._keep_open(closed)
        self._closed_bytes[closed.base_offset] = closed.size
        # In this order: readers find the tip's segment in the list, however late they look at it.
        self._bases.append(tip.offset)
        self.tip = LogPoint(tip.offset, tip.offset, 0, created_ms)

    def base_below(self, offset: Offset) -> Offset:
        """Where the log would start if all segments were gone that lie below `offset` as a whole."""
        return self._bases[segments_below(offset, self._bases)]

    def drop_below(self, start: Offset) -> list[Offset]:
        """The log starts at `start` now; returns the segments that nobody needs any more, for `delete`."""
        self.start_offset = max(self.start_offset, start)
        count = segments_below(self.start_offset, self._bases)
        dropped, self._bases = self._bases[:count], self._bases[count:]
        for base in dropped:
            del self._closed_bytes[base]
        return dropped

    def delete(self, dropped: list[Offset]) -> None:
        """The files of segments that were dropped, oldest first. Blocks. Raises OSError."""
        with self._opening:
            for base in dropped:
                self._closed.pop(base, None)
                delete_segment(self._directory, base)
        fsync_directory(self._directory)

    def view(self, offset: Offset, read: ReadAt) -> SegmentView:
        """The segment that holds `offset`, which lies in [start_offset, tip.offset).

        Opening a closed segment waits for the disk: with `read_cached` that raises NotCachedError. Raises
        SegmentGoneError.
        """
        active, tip, bases = self.active, self.tip, self._bases
        index = bisect_right(bases, offset) - 1
        if index < 0:
            raise SegmentGoneError
        base = bases[index]
        if base == tip.segment:
            segment = active if active.base_offset == base else self._open_closed(base, read)
            return SegmentView(segment, tip.position, tip.offset)
        segment = self._open_closed(base, read)
        return SegmentView(segment, segment.size, bases[index + 1])

    def views(self, up_to: Offset, read: ReadAt) -> Iterator[SegmentView]:
        """All segments that start below `up_to`, in order. Raises SegmentGoneError."""
        for base in tuple(self._bases):
            if base < min(up_to, self.tip.offset):
                yield self.view(base, read)

    def rebuild_indexes(self, base: Offset) -> None:
        """Of a closed segment. Blocks. Raises OSError, SegmentGoneError."""
        with self._opening:
            self._opened(base).rebuild_indexes()

    def _open_closed(self, base: Offset, read: ReadAt) -> Segment:
        segment = self._closed.get(base)
        if segment is not None:
            return segment
        if read is read_cached:
            raise NotCachedError
        with self._opening:
            return self._opened(base)

    def _opened(self, base: Offset) -> Segment:
        if base not in self._bases:
            raise SegmentGoneError
        segment = self._closed.get(base) or Segment.open_closed(self._directory, base)
        self._keep_open(segment)
        return segment

    def _keep_open(self, segment: Segment) -> None:
        self._closed[segment.base_offset] = segment
        for oldest in tuple(self._closed)[:-CLOSED_SEGMENTS_OPEN_MAX]:
            self._closed.pop(oldest, None)
