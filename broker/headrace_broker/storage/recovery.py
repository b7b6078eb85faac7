"""The opening of a partition's directory: find the end of the log, cut what is torn, put on disk what is kept.

`headrace.core.log.recovery` decides, this module reads, truncates and syncs. After a clean stop nothing is scanned and
nothing is written; after a crash the scan starts at the recovery point. Invariant: batches, indexes and names go to
disk before the checkpoints that vouch for them.

`ProducerSnapshot` holds a log's idempotent producers on disk: `producer-snapshot`, in step with the recovery point. A
start takes the snapshot, cuts it to where its scan begins, and notes what the scan keeps: so it has to be right only
below the recovery point, and is written before that moves. It may know more: what lies above is cut away. If it is
damaged, the headers of the newest `PRODUCERS_REBUILD_BYTES` below are read instead; a producer that wrote last before
that counts as not known, and any sequence of its is taken. If there is none, no producer has written below.
`log_syncer` writes it in its thread.

Recovery blocks: run it in a thread. It raises OSError, CorruptLogError.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.errors import CorruptLogError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.compaction import CleanPoints
from headrace.core.log.epochs import EpochStart, LeaderEpochs
from headrace.core.log.recovery import Cut, Kept, RecoveryReport, ScanStart, SegmentFacts, TailScan, Wanted, scan_start
from headrace.core.log.retention import recovered_log_start, segments_below
from headrace.core.log.segments import INDEX_SUFFIX, LOG_SUFFIX, DamagedIndexError, segment_name
from headrace.core.replication.producers import Producers
from headrace.core.types import Offset
from headrace_broker.storage.compaction_files import CLEANED_SUFFIX, SWAP_SUFFIX, finish_swaps
from headrace_broker.storage.disk import TEMPORARY_SUFFIX, FileHandle, fsync_directory, is_passing, read_blocking
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.segment import Segment, delete_segment, segments_in
from headrace_broker.storage.segment_indexes import OFFSET_INDEX, IndexFile, walk_batches

RECOVERY_CHUNK_BYTES = 4 << 20
PRODUCERS_REBUILD_BYTES = 64 << 20
"""The bytes of the newest log below the recovery point that are read where the snapshot of a log's producers is
lost."""
_UNFINISHED_SUFFIXES: Final = (TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


class ProducerSnapshot:
    """The snapshot of one log that is open. `is_written`: the file holds the same as `producers`."""

    def __init__(self, files: PartitionFiles, producers: Producers, *, is_written: bool) -> None:
        self.producers = producers
        self._files = files
        self._revision = producers.revision if is_written else -1
        """The revision in the file."""

    def write(self) -> None:
        """Write it where there is something new. Raises OSError."""
        # The revision is taken first: what is noted meanwhile is written again the next time.
        revision = self.producers.revision
        if revision == self._revision:
            return
        states = self.producers.states()
        if states or self._files.has_producers():
            self._files.write_producers(states)
        self._revision = revision


def rebuild_producers(directory: Path, segments: Sequence[SegmentFacts], now_ms: int) -> Producers:
    """Return the producers from the newest of these segments, each as far as it is known to be whole, in order."""
    producers, left_bytes, skipped = Producers(), PRODUCERS_REBUILD_BYTES, len(segments)
    while skipped and left_bytes > 0:
        skipped -= 1
        left_bytes -= segments[skipped].size_bytes
    for facts in segments[skipped:]:
        start = _batch_at(directory, facts.base_offset, -left_bytes) if left_bytes < 0 else 0
        left_bytes = 0
        log = FileHandle(directory / (segment_name(facts.base_offset) + LOG_SUFFIX), os.O_RDONLY)
        with suppress(CorruptLogError):  # A reader of that place gets the error.
            for _, header in walk_batches(log, read_blocking, start, facts.size_bytes):
                producers.note(header, now_ms)
    return producers


def _batch_at(directory: Path, base_offset: Offset, position: int) -> int:
    """Return where a batch starts, at `position` or not far below; the segment's start where its index is of no
    help."""
    try:
        index = IndexFile.open(directory / (segment_name(base_offset) + INDEX_SUFFIX), OFFSET_INDEX, base_offset)
        entry = index.last_while(read_blocking, lambda entry: entry.position <= position)
    except DamagedIndexError:
        return 0
    return entry.position if entry is not None else 0


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """A log that is whole and on disk up to `end`."""

    closed: tuple[SegmentFacts, ...]
    active: Segment
    end: LogPoint
    epochs: LeaderEpochs
    producers: ProducerSnapshot
    log_start: Offset
    """The first offset that is kept."""
    high_watermark: Offset
    """The checkpoint, `end` at most; the log's start where it cannot be read."""
    report: RecoveryReport
    checkpointed: bool
    """True where the recovery point is the same as `end`; False where it must not be yet, or the disk was too full."""
    written_starts: tuple[EpochStart, ...] | None
    """The epochs of `leader-epoch-checkpoint`, which may be more than `epochs`; None where they are not known."""


def recover(directory: Path, now_ms: int) -> RecoveredLog:
    """Recover the log; `now_ms` becomes the age of the active segment where its own is not known."""
    # There is one listing for all: a long log has hundreds of files.
    if any(name.endswith(_UNFINISHED_SUFFIXES) for name in os.listdir(directory)):
        for leftover in directory.glob(f"*{TEMPORARY_SUFFIX}"):
            leftover.unlink()
        finish_swaps(directory)
    return _Recovery(directory, now_ms).run()


def begin_log(directory: Path, now_ms: int) -> None:
    """Begin an empty log in a new directory, with checkpoints that show it empty."""
    Segment.create(directory, Offset(0))
    files = PartitionFiles(directory)
    files.write_epochs(LeaderEpochs())
    files.write_high_watermark(Offset(0))
    files.write_recovery_point(LogPoint(Offset(0), Offset(0), 0, now_ms))


class _Recovery:
    def __init__(self, directory: Path, now_ms: int) -> None:
        self._directory = directory
        self._now_ms = now_ms
        self._files = PartitionFiles(directory)
        self._point = self._files.recovery_point()
        self._high_watermark = self._files.high_watermark()
        self._checkpoints_whole = not self._files.damaged
        # This is read after that: where it is lost, too much is shown, but nothing that this replica held is missing.
        self._log_start = self._files.log_start()
        self._checkpointed = True
        self._written_starts: tuple[EpochStart, ...] | None = None
        self._snapshot: ProducerSnapshot
        self._cut_bytes = 0
        self._cut_reason = ""
        self._scanned_bytes = 0
        self._touched: list[Segment] = []
        """The segments that were scanned, cut or got other indexes, in order; the last one becomes the active
        segment."""

    def run(self) -> RecoveredLog:
        cut_at = self._files.cut_at()
        if cut_at:
            self._cut_at(cut_at)
        segments = self._without_deleted(segments_in(self._directory)) or [self._begin()]
        scan, start = self._start(segments)
        self._snapshot = self._producers_below(segments, start)
        self._scan(scan, segments[start.segment :], start)
        self._settle(scan, cut_at is not None)
        return self._result(scan, segments_in(self._directory) if self._cut_reason else segments)

    def _without_deleted(self, segments: list[SegmentFacts]) -> list[SegmentFacts]:
        """Finish a deletion of records that was interrupted."""
        count = segments_below(self._log_start or Offset(0), [facts.base_offset for facts in segments])
        for facts in segments[:count]:
            delete_segment(self._directory, facts.base_offset)
        return segments[count:]

    def _begin(self) -> SegmentFacts:
        segment = Segment.create(self._directory, Offset(0))
        fsync_directory(self._directory)
        return SegmentFacts(segment.base_offset, 0)

    def _cut_at(self, point: LogPoint) -> None:
        """Cut the log after a failed sync, where bytes above `point` may be in the page cache only; or after damage."""
        reason = f"the last life has it cut at offset {point.offset}"
        for i, facts in enumerate(segments_in(self._directory)):
            # The first segment stays, empty, where records up to its start are deleted: it shows where the log goes on.
            position = point.position if facts.base_offset == point.segment else 0
            if facts.base_offset > point.segment and i > 0:
                self._remove(facts, reason)
            elif facts.base_offset >= point.segment and facts.size_bytes > position:
                segment = Segment.open_last(self._directory, facts.base_offset)
                self._cut(segment, position, reason)
                segment.sync_log()

    def _start(self, segments: list[SegmentFacts]) -> tuple[TailScan, ScanStart]:
        """Open the segment where the scan starts, as far below as the batches must be read again."""
        epochs = self._files.epochs()
        self._written_starts = epochs.starts if epochs else None
        start = scan_start(segments, self._point if epochs else None)
        epochs = epochs or LeaderEpochs()
        segment = Segment.open_last(self._directory, segments[start.segment].base_offset)
        try:
            reason = segment.resume(start.position, start.offset)
        except CorruptLogError as error:
            start = ScanStart(start.segment, 0, segment.base_offset)
            reason = error.message
            segment.resume(0, segment.base_offset)
        if reason:
            self._files.damaged.append(reason)
        epochs.cut(start.offset)
        self._touched.append(segment)
        return TailScan(start.offset, epochs), start

    def _producers_below(self, segments: list[SegmentFacts], start: ScanStart) -> ProducerSnapshot:
        found = self._files.producers()
        if found is None:
            last = SegmentFacts(segments[start.segment].base_offset, start.position)
            rebuilt = rebuild_producers(self._directory, [*segments[: start.segment], last], self._now_ms)
            snapshot = ProducerSnapshot(self._files, rebuilt, is_written=False)
        else:
            snapshot = ProducerSnapshot(self._files, found, is_written=True)
        snapshot.producers.cut(start.offset)
        return snapshot

    def _scan(self, scan: TailScan, segments: list[SegmentFacts], start: ScanStart) -> None:
        """Scan from `start`, in the first of `segments`, to the end of the log or to the first batch that is not
        kept."""
        cut = self._scan_segment(scan, self._touched[0], start.position)
        for i, facts in enumerate(segments[1:], 1):
            cut = cut or scan.enter_segment(facts.base_offset)
            if cut:
                for gone in segments[i:]:
                    self._remove(gone, cut.reason)
                return
            segment = Segment.open_last(self._directory, facts.base_offset)
            segment.resume(0, facts.base_offset)
            self._touched.append(segment)
            cut = self._scan_segment(scan, segment, 0)

    def _scan_segment(self, scan: TailScan, segment: Segment, position: int) -> Cut | None:
        file_bytes, segment.size = segment.size, position
        window, at, wanted = memoryview(b""), 0, 1
        while segment.size < file_bytes:
            left = file_bytes - segment.size
            if len(window) - at < wanted:
                size = min(left, max(RECOVERY_CHUNK_BYTES, wanted))
                window, at = memoryview(read_blocking(segment.log, segment.size, size)), 0
            match scan.judge(window[at:], left):
                case Kept(header):
                    segment.passed([header])
                    self._snapshot.producers.note(header, self._now_ms)
                    self._scanned_bytes += header.batch_bytes
                    at, wanted = at + header.batch_bytes, 1
                case Wanted(batch_bytes):
                    wanted = batch_bytes
                case Cut(reason) as cut:
                    kept, segment.size = segment.size, file_bytes
                    self._cut(segment, kept, f"offset {scan.next_offset}: {reason}")
                    return cut
        return None

    def _cut(self, segment: Segment, position: int, reason: str) -> None:
        self._cut_bytes += segment.size - position
        self._cut_reason = self._cut_reason or reason
        segment.cut(position)

    def _remove(self, facts: SegmentFacts, reason: str) -> None:
        self._cut_bytes += facts.size_bytes
        self._cut_reason = self._cut_reason or reason
        delete_segment(self._directory, facts.base_offset)

    def _settle(self, scan: TailScan, was_cut_at: bool) -> None:
        """Put what is kept on disk before anything is reported: a page-cache tail after kill -9 is not durable.

        Where something is missing, the old recovery point stays until the next sync: this start may die before its
        report was acted upon, and then the next one has to find the same.
        """
        end = self._end(scan)
        self._checkpointed = self._point is not None and self._point.offset <= end.offset
        if self._log_start is not None and self._log_start > end.offset:
            self._files.write_log_start(end.offset)
        self._maybe_forget_compaction(end)
        if self._checkpointed and not (self._scanned_bytes or self._cut_bytes or self._files.damaged or was_cut_at):
            return
        for segment in self._touched:
            segment.sync_log()
            segment.indexes.sync()
        fsync_directory(self._directory)
        self._checkpoint(scan, end)
        if was_cut_at:
            self._files.remove_cut_at()

    def _maybe_forget_compaction(self, end: LogPoint) -> None:
        """Forget the clean points of a part that is lost: what will be appended in its place was not compacted."""
        if not self._checkpointed and PartitionFiles(self._directory).clean_points().end > end.offset:
            self._files.write_clean_points(CleanPoints())

    def _checkpoint(self, scan: TailScan, end: LogPoint) -> None:
        try:
            self._snapshot.write()
            if self._checkpointed:
                self._files.write_epochs(scan.epochs)
                self._written_starts = scan.epochs.starts
                self._files.write_recovery_point(end)
        except OSError as error:
            # A full disk can be read from, and room made on it: the checkpoints follow with the next sync.
            if not is_passing(error):
                raise
            self._checkpointed = False

    def _end(self, scan: TailScan) -> LogPoint:
        active = self._touched[-1]
        known = self._point is not None and self._point.segment == active.base_offset
        created_ms = self._point.segment_created_ms if self._point and known else self._now_ms
        return LogPoint(scan.next_offset, active.base_offset, active.size, created_ms)

    def _result(self, scan: TailScan, segments: list[SegmentFacts]) -> RecoveredLog:
        end = self._end(scan)
        high_watermark = segments[0].base_offset if self._high_watermark is None else self._high_watermark
        report = RecoveryReport(
            scanned_bytes=self._scanned_bytes,
            cut_bytes=self._cut_bytes,
            cut_reason=self._cut_reason,
            cut_below_recovery_point=self._point is not None and end.offset < self._point.offset,
            cut_below_high_watermark=end.offset < high_watermark,
            damaged_files=tuple(self._files.damaged),
            checkpoints_whole=self._checkpoints_whole,
        )
        return RecoveredLog(
            closed=tuple(segments[:-1]),
            active=self._touched[-1],
            end=end,
            epochs=scan.epochs,
            producers=self._snapshot,
            log_start=recovered_log_start(self._log_start, first_segment=segments[0].base_offset, log_end=end.offset),
            high_watermark=min(high_watermark, end.offset),
            report=report,
            checkpointed=self._checkpointed,
            written_starts=self._written_starts,
        )
