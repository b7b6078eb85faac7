"""The compaction of one log that is open: which segments a pass may touch, swapping in the compacted ones, remembering
how far it came.

A `PartitionLog` owns it. The pass itself runs in another process (`compaction_worker`). Everything here is called while
nothing else deletes or replaces segments of the log (`Cleaner.change`), and none of it is cancelled.
"""

from pathlib import Path

from headrace.core.errors import StorageFailedError
from headrace.core.log.compaction import CleanPoints, CompactableLog, CompactionRules, Later, Pass, plan_pass
from headrace.core.log.retention import ClosedSegment, SegmentTimes
from headrace.core.replication.producers import Producers
from headrace.core.types import Offset
from headrace_broker.storage.compaction_files import (
    Cleaned,
    Job,
    PassDone,
    SegmentSpan,
    discard_all_cleaned,
    discard_cleaned,
    prepare_swap,
)
from headrace_broker.storage.disk import shown, storage_error, storage_errors
from headrace_broker.storage.log_syncer import LogSyncer
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.segment_set import ClosedSegmentTimes, SegmentSet
from headrace_broker.storage.threads import StorageThreads


class LogCompaction:
    def __init__(
        self,
        directory: Path,
        segments: SegmentSet,
        syncer: LogSyncer,
        producers: Producers,
        threads: StorageThreads,
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._syncer = syncer
        self._threads = threads
        self._producers = producers
        self._files = PartitionFiles(directory)
        self._points: CleanPoints | None = None
        """The clean points as on disk; None before the first read."""
        self._times: dict[ClosedSegment, SegmentTimes] = {}
        """The times of the segments that the last plan needed."""
        self._planned_end = Offset(0)
        """The end of the pass that was planned last."""
        self._is_void = False
        """True where the log was cut below that: other segments may lie there by now, under the same names."""

    async def plan(self, high_watermark: Offset, rules: CompactionRules, now_ms: int) -> Job | Later:
        """Return what has to be done now. Raises StorageFailedError, and ThrottledError where no more files can be
        opened."""
        if self._syncer.recovery_segment < self._segments.tip.segment:
            # Under durability Replicated a closed segment may wait for its sync for long.
            await self._threads.sync(self._syncer.sync)
        if self._points is None:
            with storage_errors(f"reading how far {shown(self._directory)} is compacted"):
                self._points = await self._threads.read(self._files.clean_points)
        limit = Offset(min(high_watermark, self._syncer.recovery_segment))
        log = CompactableLog(tuple(self._segments.closed_segments()), limit, self._points)
        with storage_errors(f"looking at the age of segments in {shown(self._directory)}"):
            planned = await self._threads.read(self._plan, log, rules, now_ms)
        if isinstance(planned, Later):
            return planned
        self._planned_end, self._is_void = planned.segments[-1].next_offset, False
        return Job(
            directory=str(self._directory),
            segments=planned.segments,
            dirty_from=planned.dirty_from,
            tombstones_from=planned.tombstones_from,
            log_start=self._segments.start_offset,
            segment_bytes=rules.segment_bytes,
            points=self._points.points,
            now_ms=now_ms,
            reason=planned.reason,
            producers=tuple(self._producers.states()),
        )

    async def swap_in(self, cleaned: Cleaned) -> bool:
        """Put a compacted segment in its place; return False, with it removed, where the log has changed there
        meanwhile.

        Raises DiskFullError and ThrottledError, after which the log goes on as it was; StorageFailedError, after which
        it does not.
        """
        span = SegmentSpan(cleaned.base_offset, cleaned.next_offset)
        if self._is_void or not self._segments.has(span):
            await self._threads.sync(discard_cleaned, self._directory, span)
            return False
        await self._threads.sync(self._swap, span)
        self._segments.replaced(span, cleaned.size_bytes)
        return True

    async def abandon(self) -> None:
        """End a failed pass, which no process works on any more, and remove its files. Raises what `finish` raises."""
        with storage_errors(f"removing what compaction has left in {shown(self._directory)}"):
            await self._threads.sync(discard_all_cleaned, self._directory)

    async def finish(self, done: PassDone) -> None:
        """End a pass all of whose segments are in their places. Raises DiskFullError, StorageFailedError."""
        if self._is_void:
            return
        points = CleanPoints(done.points)
        with storage_errors(f"writing how far {shown(self._directory)} is compacted"):
            await self._threads.sync(self._files.write_clean_points, points)
        self._points = points

    def cut(self, end: Offset) -> None:
        """Note that the log is about to end at `end`: what is appended there later was not compacted. Blocks. Raises
        OSError."""
        if (self._points or self._files.clean_points()).end > end:
            self._files.write_clean_points(CleanPoints())
            self._points = CleanPoints()
        self._is_void = self._is_void or self._planned_end > end
        self._times = {}

    def _plan(self, log: CompactableLog, rules: CompactionRules, now_ms: int) -> Pass | Later:
        seen = dict[ClosedSegment, SegmentTimes]()

        def times_of(segment: ClosedSegment) -> SegmentTimes:
            known = self._times.get(segment)
            seen[segment] = known or ClosedSegmentTimes(self._segments).read_times(segment)
            return seen[segment]

        planned = plan_pass(log, rules, now_ms, times_of)
        self._times = seen
        if isinstance(planned, Pass):
            discard_all_cleaned(self._directory)
        return planned

    def _swap(self, span: SegmentSpan) -> None:
        try:
            prepare_swap(self._directory, span)
        except OSError as error:
            discard_cleaned(self._directory, span)
            raise storage_error(error, f"compacting {shown(self._directory)}") from error
        try:
            self._segments.replace(span)
        except OSError as error:
            typed = storage_error(error, f"compacting {shown(self._directory)}")
            self._syncer.fail(typed.message)
            raise StorageFailedError(typed.message) from error
