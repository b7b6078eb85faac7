"""The log of one partition: append, sync, read, find by time, delete from the front, cut off the end, start anew.

It lives from `open` to `close`. One asyncio task owns it: `append`, and everything that is async, belongs to that
task's event loop; nothing else may write to the directory meanwhile. Reads and syncs go on in threads while the task
appends.

Invariants: [log_start_offset, log_end_offset) has no gap; `durable_end` <= `log_end_offset`, and none of the three ever
falls but by `truncate` and by `start_at` 0; a read never returns a part of a batch or anything at or after
`log_end_offset`. After a sync has failed nothing more is appended or synced, ever, and the next start cuts the log to
what was durable.

The broker's partition task calls it, and asks `headrace.core.log.group_commit` when to sync.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, Self

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    DivergedLogError,
    FencedEpochError,
    OffsetOutOfRangeError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.limits import UNSYNCED_SEGMENTS_MAX
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.recovery import RecoveryReport, why_not_next
from headrace.core.log.retention import Expired, Log, Retention, is_over
from headrace.core.log.retention import expired_segments as expired
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import RawBatch
from headrace.core.replication.producers import Producers
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.disk import NotCachedError, storage_error, storage_errors
from headrace_broker.storage.log_appender import AppendedBatches, LogAppender
from headrace_broker.storage.log_compaction import LogCompaction
from headrace_broker.storage.log_reader import LogReader
from headrace_broker.storage.log_syncer import LogSyncer
from headrace_broker.storage.log_verification import LogVerification
from headrace_broker.storage.recovery import RecoveredLog, recover
from headrace_broker.storage.segment_set import ClosedSegmentTimes, SegmentSet
from headrace_broker.storage.threads import StorageThreads

logger = logging.getLogger(__name__)
P = ParamSpec("P")


class PartitionLog:
    def __init__(self, directory: Path, config: LogConfig, recovered: RecoveredLog, threads: StorageThreads) -> None:
        self.directory = directory
        self.config = config
        """The configuration, which may be replaced at any time and holds from the next append on."""
        self.recovery: RecoveryReport = recovered.report
        self._threads = threads
        self._epochs: LeaderEpochs = recovered.epochs
        self.producers: Producers = recovered.producers.producers
        """The idempotent producers that have written here."""
        self._segments = SegmentSet(directory, recovered, threads.open_segments)
        self._syncer = LogSyncer(directory, self._segments, self._epochs, recovered)
        self._appender = LogAppender(directory, self._segments, self._syncer, self._epochs, self.producers)
        self._reader = LogReader(self._segments, threads, self._appender.close_active)
        self._times = ClosedSegmentTimes(self._segments)
        self.verification = LogVerification(directory, self._segments, threads)
        self.compaction = LogCompaction(directory, self._segments, self._syncer, self.producers, threads)

    @classmethod
    def open(cls, directory: Path, config: LogConfig, *, threads: StorageThreads, now_ms: int) -> Self:
        """Recover the log in `directory`. Blocks as long as reading the tail above the recovery point takes.

        Raises StorageFailedError, DiskFullError.
        """
        try:
            recovered = recover(directory, now_ms)
        except OSError as error:
            raise storage_error(error, f"opening the log in {directory}") from error
        return cls(directory, config, recovered, threads)

    @property
    def log_start_offset(self) -> Offset:
        return self._segments.start_offset

    @property
    def log_end_offset(self) -> Offset:
        """Return the next offset to be written."""
        return self._segments.tip.offset

    @property
    def durable_end(self) -> Offset:
        """Return the first offset that is not known to be on disk."""
        return self._syncer.durable.offset

    @property
    def active_segment(self) -> Offset:
        """Return where the segment begins that is written to: another one once that is closed."""
        return self._segments.tip.segment

    @property
    def lags_in_syncs(self) -> bool:
        """Return whether so many closed segments wait for a sync that the active one will soon outgrow
        `segment.bytes`."""
        return self._syncer.unsynced_segments >= UNSYNCED_SEGMENTS_MAX // 2

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches; indexes are not counted."""
        return self._segments.size_bytes

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Return the epoch of the last batch; `NO_EPOCH` where there is none."""
        return self._epochs.latest

    @property
    def epochs(self) -> LeaderEpochs:
        """Return where each epoch begins, for the answers of a leader and the questions of a follower. Only to be
        read."""
        return self._epochs

    @property
    def high_watermark_checkpoint(self) -> Offset:
        """Return the checkpoint that was written last, as far as the log still reaches; nothing below the log's start
        is in doubt."""
        return max(self._syncer.high_watermark, self.log_start_offset)

    def append(self, batches: Sequence[RawBatch], leader_epoch: LeaderEpoch, now_ms: int) -> AppendedBatches:
        """Stamp the batches and write them to the page cache: all of them, or none and an error.

        Raises DiskFullError and ThrottledError, after which the log goes on; StorageFailedError, after which it does
        not; FencedEpochError where the log already holds a later epoch.
        """
        assert batches, "an append has a batch at least"
        self._syncer.check_usable()
        if leader_epoch < self._epochs.latest:
            raise FencedEpochError(f"leader epoch {leader_epoch} is over: the log holds {self._epochs.latest}")
        end = self.log_end_offset
        for batch in batches:
            end = batch.stamp(end, leader_epoch).header.next_offset
        return self._appender.write(batches, self.config, now_ms)

    def append_replicated(self, batches: Sequence[RawBatch], now_ms: int) -> AppendedBatches:
        """Append batches that a leader has stamped (`split_replicated`): they stay as they are.

        Raises DivergedLogError where they do not follow what the log holds, by offset or epoch, and else what `append`
        raises.
        """
        assert batches, "an append has a batch at least"
        self._syncer.check_usable()
        end, epoch = self.log_end_offset, self._epochs.latest
        for header in (batch.header for batch in batches):
            reason = why_not_next(header, end, epoch)
            if reason:
                raise DivergedLogError(f"what the leader sends does not follow in {self.directory}: {reason}")
            end, epoch = header.next_offset, header.leader_epoch
        return self._appender.write(batches, self.config, now_ms)

    async def sync(self) -> Offset:
        """Put everything on disk that was appended before the call, and return the new durable end.

        It is lower where the log was cut meanwhile. Raises StorageFailedError: the sync is not repeated, the log is
        over.
        """
        return min(await self._threads.sync(self._syncer.sync), self.durable_end)

    async def truncate(self, end: Offset, *, allow_below_high_watermark: bool = False) -> Offset:
        """Cut the log at `end`, or where the batch starts that holds it, and return the new end. All below is on disk.

        This is for a follower, which truncates by epoch before it takes anything from a new leader. It is called while
        nothing else appends, deletes or replaces segments (`Cleaner.change`), and not cancelled. State that is kept
        beside the log must be cut at the returned offset before the next append. Readers that are under way see the log
        before or after.

        No clean election asks for less than a high watermark that this replica has checkpointed: then CorruptLogError,
        unless the caller knows that what was committed is lost, after an unclean election or `cluster recover`, and
        says so: `allow_below_high_watermark`. Raises OffsetOutOfRangeError below the log's start; CorruptLogError where
        no batch can be found at `end`; DiskFullError and ThrottledError, after which the log is as it was;
        StorageFailedError, after which it is over.
        """
        start = self.log_start_offset
        if end < start:
            raise OffsetOutOfRangeError(f"cannot cut at {end}: the log starts at {start}", logStartOffset=start)
        if end >= self.log_end_offset:
            return await self.sync()
        await self._cutting(self._truncate, end, allow_below_high_watermark)
        self.producers.cut(self.log_end_offset)
        return self.log_end_offset

    async def start_at(self, offset: Offset) -> None:
        """Start the log anew, empty and on disk, at `offset`; it knows no epoch any more.

        This is for a follower. At or above its end: its whole log lies below its leader's start, so that what it has
        was deleted there, and nothing of it is asked for again; the producers stay known. Or at 0: it is of another
        history than its leader's, which decides what is committed and which producers have written; nothing relies on
        what it has. It is called as `truncate` is, and not cancelled. Readers that are under way finish, or see the log
        after it. After a crash the log is what it was, or empty at `offset`.

        Raises DiskFullError and ThrottledError, after which the log is as it was; StorageFailedError, after which it is
        over.
        """
        end = self.log_end_offset
        assert offset >= end or offset == 0, f"{offset} is below the end {end}: truncate instead"
        await self._cutting(self._start_at if offset >= end else self._discard, offset)
        self.producers.cut(self.log_end_offset)

    async def read(self, offset: Offset, *, max_bytes: int, up_to: Offset) -> list[memoryview]:
        """Read whole batches from the one that holds `offset` on, which may begin below it, to `up_to` at most.

        At most `max_bytes` together, but one batch at least; empty at `up_to`, where `up_to` lies within that batch
        (compaction joins batches), and at the end of the log. Raises OffsetOutOfRangeError outside of
        [log_start_offset, log_end_offset], CorruptLogError, StorageFailedError, and ThrottledError where no more files
        can be opened.
        """
        start, end = self.log_start_offset, self.log_end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(
                f"offset {offset} is out of range: the log holds {start} to {end}", logStartOffset=start
            )
        with self.verification.suspecting():
            return await self._reader.read(offset, max_bytes, min(up_to, end))

    async def read_checked(self, offset: Offset, *, max_bytes: int, up_to: Offset) -> list[memoryview]:
        """Read, and check every batch against its CRC: for a caller that passes them on as a copy. Raises
        CorruptLogError too."""
        buffers = await self.read(offset, max_bytes=max_bytes, up_to=up_to)
        await self.verification.check(buffers)
        return buffers

    def read_cached(self, offset: Offset, *, max_bytes: int, up_to: Offset) -> list[memoryview] | None:
        """Read what lies in the log, where nothing has to be waited for; else return None. Raises what `read`
        raises."""
        try:
            return self._reader.read_cached(offset, max_bytes, up_to)
        except (CorruptLogError, StorageFailedError):
            self.verification.is_suspect = True
            raise

    async def find_timestamp(self, timestamp_ms: int, up_to: Offset) -> tuple[Offset, int] | None:
        """Return (offset, time) of the first record below `up_to` whose time is `timestamp_ms` or later; None without
        one.

        Raises CorruptLogError, StorageFailedError.
        """
        return await self._reader.find(timestamp_ms, min(up_to, self.log_end_offset))

    def accept_loss(self) -> None:
        """Forget on disk, too, that the log once reached further: its loss is written down elsewhere.

        Until then the checkpoint on disk stays above the end of the log, so that every opening admits the loss. If it
        stayed for longer, what is appended next would count as committed after the next start. Blocks. Raises
        DiskFullError, StorageFailedError.
        """
        if self.recovery.cut_below_high_watermark:
            self._syncer.lower_high_watermark()

    async def checkpoint_high_watermark(self, offset: Offset) -> None:
        """Remember on disk that everything below `offset` is committed. Raises DiskFullError, StorageFailedError."""
        await self._threads.sync(self._syncer.write_high_watermark, offset)

    def close_segment(self, retention: Retention, now_ms: int) -> None:
        """Go on in a new segment where the active one is as old as `segment.time`, or has outlived its retention.

        Raises DiskFullError and ThrottledError, after which the log goes on; StorageFailedError, after which it does
        not.
        """
        self._syncer.check_usable()
        appender = self._appender
        over = retention.time_ms is not None and is_over(appender.active_times(), retention.time_ms, now_ms)
        if over and self._segments.tip.position:
            appender.close_active()
        else:
            appender.roll_when_due(self.config, now_ms)

    async def expired(self, retention: Retention, high_watermark: Offset, now_ms: int) -> list[Expired]:
        """Return the closed segments that retention is over for, oldest first. Nothing is deleted before this returns.

        Raises StorageFailedError, and ThrottledError where no more files can be opened.
        """
        segments = self._segments
        log = Log(segments.closed_segments(), segments.size_bytes, high_watermark)
        try:
            return expired(log, retention, now_ms, self._times.known)
        except NotCachedError:
            log = log._replace(closed=segments.closed_segments())
            with storage_errors(f"looking at the age of segments in {self.directory}"):
                return await self._threads.read(expired, log, retention, now_ms, self._times.read_times)

    async def delete_before(self, offset: Offset) -> list[int]:
        """Start the log at `offset` now, on disk too; closed segments that lie below it as a whole are removed.

        It returns the bytes of each of them, oldest first. At the end of the log the active segment goes too. `offset`
        is not beyond the end. Readers that are under way finish. Raises StorageFailedError, and DiskFullError where not
        even the checkpoint finds room, after as much was deleted as whole segments can be.
        """
        if offset == self.log_end_offset and self._segments.tip.position:
            await self._leave_active()
        removed: list[int] = []
        try:
            await self._threads.sync(self._syncer.write_log_start, offset)
        except DiskFullError:
            # A deletion from a full disk is for room. The names of the segments that are left show where they start.
            floor = self._segments.base_below(offset)
            if floor <= self.log_start_offset:
                raise
            removed += await self._drop_below(floor)
            await self._threads.sync(self._syncer.write_log_start, offset)
        return removed + await self._drop_below(offset)

    def close(self) -> None:
        """Sync, and move the recovery point to the end, so that the next start scans nothing. Blocks.

        Raises StorageFailedError, also where the disk had failed before: such a log is closed as it is, and its stop
        was not clean. Readers that are under way finish.
        """
        self._syncer.sync(final=True)

    async def _leave_active(self) -> None:
        """Leave the active segment, all of which is to be deleted: go on in a new one, whose name is on disk first."""
        try:
            self._appender.close_active()
        except (DiskFullError, ThrottledError) as error:
            logger.warning("%s: the active segment is kept: %s", self.directory, error)
        else:
            await self.sync()

    async def _drop_below(self, offset: Offset) -> list[int]:
        dropped = self._segments.drop_below(offset)
        self._epochs.forget_below(self.log_start_offset)
        if dropped:
            try:
                await self._threads.sync(self._segments.delete, dropped)
            except OSError as error:
                # The records are deleted for every reader; the next start removes what is left of the files.
                logger.warning("%s: segments below offset %d are not removed: %s", self.directory, offset, error)
        return list(dropped.values())

    async def _cutting(self, cut: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Cut while nothing is appended."""
        self._appender.is_being_cut = True
        try:
            await self._threads.sync(cut, *args, **kwargs)
        finally:
            self._appender.is_being_cut = False
        self._times = ClosedSegmentTimes(self._segments)

    def _start_at(self, offset: Offset) -> None:
        try:
            self._syncer.start_at(offset)
        except OSError as error:
            # The records are deleted for every reader; the next start removes what is left of the files.
            logger.warning("%s: segments below offset %d are not removed: %s", self.directory, offset, error)

    def _discard(self, first: Offset) -> None:
        """Cut at the very first offset, in a segment that is made before: till then the next start removes it."""
        with storage_errors(f"discarding the log in {self.directory}"):
            self.compaction.cut(first)
            made = self._segments.empty_at(first)[0] if self._segments.first > first else None
            try:
                self._syncer.truncate(LogPoint(first, first, 0, self._segments.tip.segment_created_ms))
            except (DiskFullError, ThrottledError):
                if made is not None:
                    self._segments.remove(made)
                raise

    def _truncate(self, end: Offset, allow_below_high_watermark: bool) -> None:
        with storage_errors(f"preparing to cut the log in {self.directory}"):
            place = self._segments.place_of(end)
            if place.offset < self._syncer.high_watermark and not allow_below_high_watermark:
                raise CorruptLogError(
                    f"cutting the log in {self.directory} at offset {place.offset} would take away what is committed:"
                    f" its high-watermark checkpoint is {self._syncer.high_watermark}"
                )
            self.compaction.cut(place.offset)
        self._syncer.truncate(place)
