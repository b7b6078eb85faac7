"""The segments of one log: which there are, which are open, and where the log ends.

Owned by a `PartitionLog`. Its task rolls and publishes the end (`tip`); readers in other threads take a `view`, which
never reaches beyond the end that was published when it was taken. At most `CLOSED_SEGMENTS_OPEN_MAX` closed segments
are open; a segment that is let go of stays open for as long as a reader or a sync holds it.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from headrace.core.limits import CLOSED_SEGMENTS_OPEN_MAX
from headrace.core.log.checkpoints import LogPoint
from headrace.core.types import Offset
from headrace_broker.storage.disk import NotCachedError, ReadAt, read_cached
from headrace_broker.storage.recovery import RecoveredLog
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.segment_reader import SegmentView


class SegmentSet:
    def __init__(self, directory: Path, recovered: RecoveredLog) -> None:
        self._directory = directory
        self._bases = [facts.base_offset for facts in recovered.closed] + [recovered.active.base_offset]
        self._closed_bytes = sum(facts.size_bytes for facts in recovered.closed)
        self._closed: dict[Offset, Segment] = {}
        self._opening = threading.Lock()
        """Held while a closed segment is opened or its indexes are built: both may write index files."""
        self.active = recovered.active
        self.tip = recovered.end
        """The end of the log; set after everything below it is written."""

    @property
    def start_offset(self) -> Offset:
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self.tip.position

    def roll(self, created_ms: int) -> None:
        """Close the active segment, which is not empty, and go on in a new one. Raises OSError."""
        closed, tip = self.active, self.tip
        self.active = Segment.create(self._directory, tip.offset)
        self._keep_open(closed)
        self._closed_bytes += closed.size
        self.tip = LogPoint(tip.offset, tip.offset, 0, created_ms)
        self._bases.append(tip.offset)

    def view(self, offset: Offset, read: ReadAt) -> SegmentView:
        """The segment that holds `offset`, which lies in [start_offset, tip.offset).

        Opening a closed segment waits for the disk: with `read_cached` that raises NotCachedError.
        """
        active, tip = self.active, self.tip
        index = bisect_right(self._bases, offset) - 1
        base = self._bases[index]
        if base == tip.segment:
            segment = active if active.base_offset == base else self._open_closed(base, read)
            return SegmentView(segment, tip.position, tip.offset)
        segment = self._open_closed(base, read)
        return SegmentView(segment, segment.size, self._bases[index + 1])

    def views(self, up_to: Offset, read: ReadAt) -> Iterator[SegmentView]:
        """All segments that start below `up_to`, in order."""
        for base in tuple(self._bases):
            if base < min(up_to, self.tip.offset):
                yield self.view(base, read)

    def rebuild_indexes(self, base: Offset) -> None:
        """Of a closed segment. Blocks. Raises OSError."""
        segment = self._open_closed(base, None)
        with self._opening:
            segment.rebuild_indexes()

    def _open_closed(self, base: Offset, read: ReadAt | None) -> Segment:
        segment = self._closed.get(base)
        if segment is not None:
            return segment
        if read is read_cached:
            raise NotCachedError
        with self._opening:
            segment = self._closed.get(base) or Segment.open_closed(self._directory, base)
            self._keep_open(segment)
        return segment

    def _keep_open(self, segment: Segment) -> None:
        self._closed[segment.base_offset] = segment
        for oldest in tuple(self._closed)[:-CLOSED_SEGMENTS_OPEN_MAX]:
            self._closed.pop(oldest, None)
