"""How old a closed segment is: the time of its newest record, and when it was last written.

Retention asks for the oldest segment of each log again and again, so the last answer is kept: a segment is opened once
when it becomes the oldest. Owned by a `PartitionLog`; one caller at a time, while nothing else deletes or replaces
segments.
"""

import logging

from headrace.core.errors import CorruptLogError
from headrace.core.log.retention import ClosedSegment, SegmentTimes
from headrace.core.log.segments import DamagedIndexError
from headrace_broker.storage.disk import NotCachedError, read_blocking
from headrace_broker.storage.newest_records import newest_record_ms
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.segment_set import SegmentSet

logger = logging.getLogger(__name__)


class ClosedSegmentTimes:
    def __init__(self, segments: SegmentSet) -> None:
        self._segments = segments
        self._last: tuple[ClosedSegment, SegmentTimes] | None = None

    def known(self, segment: ClosedSegment) -> SegmentTimes:
        """Without a look at the disk. Raises NotCachedError."""
        if self._last is None or self._last[0] != segment:
            raise NotCachedError
        return self._last[1]

    def look(self, segment: ClosedSegment) -> SegmentTimes:
        """Blocks. Raises OSError."""
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
        # What is damaged must not be kept for ever. Whoever reads it has the index built again.
        logger.warning("%s: its age is that of its file: %s", segment.log.path, error)
        return SegmentTimes(written_ms, written_ms)
