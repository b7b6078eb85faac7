"""The syncs of one log: `fdatasync` of what was appended, and the checkpoints that follow it.

A `PartitionLog` owns it; `sync` and the writes of checkpoints run in threads, one at a time, while the log is appended
to. What a sync covers is what was there when it began.

Invariants: `durable` falls only where the log is cut; the recovery point is never above it; a checkpoint is written
only after all that it covers is on disk, and lowered before any of that is cut off. A failed `fdatasync` is the end
(`failure`): the kernel has marked the pages clean, so another one would succeed without them. Where the disk still lets
us, `cut-at` makes the next start cut there.
"""

import logging
import threading
from pathlib import Path

from headrace.core.errors import StorageFailedError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.types import Offset
from headrace_broker.storage.disk import is_passing, open_directory, shown, storage_error, storage_errors
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.recovery import RecoveredLog
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.segment_set import SegmentSet

RECOVERY_SCAN_BYTES = 64 << 20
"""The distance at which the recovery point follows the durable end: a start after a crash scans no more per
partition."""


logger = logging.getLogger(__name__)

_UNWRITTEN = LogPoint(Offset(-1), Offset(-1), 0, 0)
"""A point far below everything, so that the next sync writes the recovery point."""


class LogSyncer:
    def __init__(self, directory: Path, segments: SegmentSet, epochs: LeaderEpochs, recovered: RecoveredLog) -> None:
        self._files = PartitionFiles(directory)
        self._directory = open_directory(directory)
        """The directory, open all along: a sync must not fail because the process has too many files open."""
        self._segments = segments
        self._epochs = epochs
        self._turn = threading.Lock()
        self._rolled: list[Segment] = []
        """The segments that were active since the last sync, in order."""
        self._named = recovered.active.base_offset
        """The last segment whose names are on disk."""
        self._recovery_point = recovered.end if recovered.checkpointed else _UNWRITTEN
        self._written_starts = recovered.written_starts
        self._producers = recovered.producers
        self.durable = recovered.end
        """The end of what is on disk."""
        self.high_watermark = recovered.high_watermark
        self._log_start = recovered.log_start
        """The log's start on disk, or the one where nothing was ever deleted."""
        self.failure = ""
        """The reason why the log is over; empty while it is not."""

    def check_usable(self) -> None:
        """Raise StorageFailedError after a failure."""
        if self.failure:
            raise StorageFailedError(self.failure)

    def fail(self, reason: str) -> None:
        """End the log."""
        self.failure = self.failure or reason

    @property
    def recovery_segment(self) -> Offset:
        """Return where the segment begins that the next start would scan: closed ones below are on disk with their
        indexes."""
        return self._recovery_point.segment

    @property
    def unsynced_segments(self) -> int:
        """Return how many segments a sync would have to handle, without the active one."""
        return len(self._rolled)

    def rolls(self, segment: Segment) -> None:
        """Note that the log is about to go on in another segment than this one; call it before that happens."""
        if segment not in self._rolled:
            self._rolled.append(segment)

    def sync(self, *, final: bool = False) -> Offset:
        """Put everything on disk that was appended before, and return the durable end. Raises StorageFailedError.

        `final` moves the recovery point to the end, however little that saves the next start.
        """
        with self._turn:
            self.check_usable()
            # The order matters: what is below `tip` lies in `active` or in what had been rolled before `active` came.
            tip, active, rolled = self._segments.tip, self._segments.active, tuple(self._rolled)
            try:
                self._sync_segments(active, rolled)
                self.durable = tip
                self._maybe_move_recovery_point(active, final)
            except OSError as error:
                raise self._give_up(error, "fdatasync") from error
            return tip.offset

    def truncate(self, place: LogPoint) -> None:
        """Cut the log at `place`, where a batch or the whole log starts, and put on disk what is left of it.

        No sync goes on meanwhile, and one that comes later sees the log that is left. Raises CorruptLogError,
        DiskFullError, ThrottledError, and nothing is cut; StorageFailedError, after which the log is over.
        """
        with self._turn:
            self.check_usable()
            with storage_errors(f"preparing to cut the log in {shown(self._files.directory)}"):
                self._step_back(place)
            self.durable = min(self.durable, place, key=_offset_of)
            try:
                self._segments.cut(place)
                self._epochs.cut(place.offset)
                self._rolled = [segment for segment in self._rolled if segment.base_offset < place.segment]
                self._segments.active.log.sync()
                self._named = _UNWRITTEN.segment
                self._sync_segments(self._segments.active, tuple(self._rolled))
                self.durable = place
                self._maybe_move_recovery_point(self._segments.active, final=False)
            except OSError as error:
                if self._segments.tip != place and not self._segments.is_being_cut:
                    # Nothing is cut yet: only the segment could not be opened that the log is to go on in.
                    raise storage_error(
                        error, f"opening what is left of the log in {shown(self._files.directory)}"
                    ) from error
                raise self._give_up(error, "cutting the log") from error

    def start_at(self, offset: Offset) -> None:
        """Start the log anew, empty, at `offset`, which is not below its end; what is below goes, and all epochs.

        The new segment is on disk first: without the checkpoint of the log's start, which decides, the next start
        removes it, because it does not follow; with it, that removes the segments below. Raises DiskFullError and
        ThrottledError, and nothing has changed; StorageFailedError, after which the log is over; OSError where all is
        done but the removal of unneeded files.
        """
        with self._turn:
            self.check_usable()
            with storage_errors(f"starting the log in {shown(self._files.directory)} anew"):
                self._forget_epochs()
                active, is_new = self._segments.empty_at(offset)
                try:
                    self._files.write_log_start(offset)
                except OSError as error:
                    if not is_passing(error):
                        # It is not known whether it is on disk.
                        raise self._give_up(error, "starting the log anew") from error
                    if is_new:
                        self._segments.remove(active)
                    raise
            self._log_start, self._named = offset, offset
            gone = self._segments.start_anew(active)
            self._epochs.cut(Offset(0))
            self._rolled.clear()
            self.durable = self._segments.tip
            try:
                self._maybe_move_recovery_point(active, final=False)
            except OSError as error:
                raise self._give_up(error, "starting the log anew") from error
            self._segments.delete(gone)

    def write_high_watermark(self, offset: Offset) -> None:
        """Write the checkpoint, as far as the log still reaches, where it was cut meanwhile. Raises DiskFullError,
        StorageFailedError."""
        with self._turn:
            offset = min(offset, self._segments.tip.offset)
            if offset == self.high_watermark:
                return
            try:
                self._files.write_high_watermark(offset)
            except OSError as error:
                raise storage_error(
                    error, f"writing the high-watermark checkpoint in {shown(self._files.directory)}"
                ) from error
            self.high_watermark = offset

    def lower_high_watermark(self) -> None:
        """Put a checkpoint that recovery has lowered, because the log ends below it, on disk. Raises as
        `write_high_watermark`."""
        with self._turn, storage_errors(f"writing the high-watermark checkpoint in {shown(self._files.directory)}"):
            self._files.write_high_watermark(self.high_watermark)

    def write_log_start(self, offset: Offset) -> None:
        """Put the log's start on disk: everything below is deleted, also after a crash. Raises DiskFullError,
        StorageFailedError."""
        if self.durable.offset < offset:
            # A log that loses its tail in a crash must not end below its start.
            self.sync()
        with self._turn:
            if offset <= self._log_start:
                return
            try:
                self._files.write_log_start(offset)
            except OSError as error:
                raise storage_error(
                    error, f"writing the log-start checkpoint in {shown(self._files.directory)}"
                ) from error
            self._log_start = offset
            self._let_go_below(self._segments.base_below(offset))

    def _let_go_below(self, first: Offset) -> None:
        """Let go of segments that are durable and not needed any more: their files close with their last reader."""
        while self._rolled and self._rolled[0].base_offset < first:
            del self._rolled[0]

    def _step_back(self, place: LogPoint) -> None:
        """Lower the checkpoints that cover more than is left, on disk too: a crash must not look like lost records.

        The log's start last: what lies below it is scanned before it is shown.
        """
        if self.high_watermark > place.offset:
            self._files.write_high_watermark(place.offset)
            self.high_watermark = place.offset
        if self._recovery_point.offset > place.offset:
            self._files.write_recovery_point(place)
            self._recovery_point = place
        left = LeaderEpochs(self._epochs.starts)
        left.cut(place.offset)
        if not left.starts and self._written_starts != ():
            # The file may name older ones, of deleted records, which are forgotten: what comes now may lie below them.
            self._files.write_epochs(left)
            self._written_starts = ()
        if self._log_start > place.offset:
            self._files.write_log_start(place.offset)
            self._log_start = place.offset

    def _forget_epochs(self) -> None:
        """Forget the epochs, on disk too; they are taken from the log again, all of which a start that comes too early
        scans."""
        first = self._segments.first
        self._files.write_recovery_point(LogPoint(first, first, 0, self._segments.tip.segment_created_ms))
        self._recovery_point = _UNWRITTEN
        if self._written_starts != ():
            self._files.write_epochs(LeaderEpochs())
            self._written_starts = ()

    def _sync_segments(self, active: Segment, rolled: tuple[Segment, ...]) -> None:
        for segment in (*rolled, active):
            segment.sync_log()
        for segment in rolled:
            segment.indexes.sync()
        if active.base_offset != self._named:
            self._directory.sync()
            self._named = active.base_offset
        del self._rolled[: len(rolled)]

    def _maybe_move_recovery_point(self, active: Segment, final: bool) -> None:
        old, new = self._recovery_point, self.durable
        far = new.segment != old.segment or new.position - old.position >= RECOVERY_SCAN_BYTES
        if not far and not (final and new != old):
            return
        try:
            active.indexes.sync()
            self._write_epochs()
            self._producers.write()
            self._files.write_recovery_point(new)
        except OSError as error:
            if not is_passing(error):
                raise
            # Nothing is lost: the next start scans from the old one, and the next sync tries again.
            logger.warning("%s: %s; the recovery point stays at %d", self._files.directory, error.strerror, old.offset)
        else:
            self._recovery_point = new

    def _write_epochs(self) -> None:
        starts = self._epochs.starts
        if starts != self._written_starts:
            self._files.write_epochs(LeaderEpochs(starts))
            self._written_starts = starts

    def _give_up(self, error: OSError, doing: str) -> StorageFailedError:
        self.fail(
            f"{doing} in {shown(self._files.directory)} failed: {error.strerror}; the broker gives up its partitions"
        )
        try:
            self._files.write_cut_at(self.durable)
        except OSError as second:
            logger.error(
                "%s: the mark that makes the next start cut the log cannot be written: %s",
                self._files.directory,
                second.strerror,
            )
        return StorageFailedError(self.failure)


def _offset_of(point: LogPoint) -> Offset:
    return point.offset
