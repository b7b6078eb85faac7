"""The log of one partition: append, sync, read, find by time, delete from the front.

Lives from `open` to `close`. One asyncio task owns it: `append`, and everything that is async, belongs to that task's
event loop; nothing else may write to the directory meanwhile. Reads and syncs go on in threads while the task appends.

Invariants: [log_start_offset, log_end_offset) has no gap; `durable_end` <= `log_end_offset`, and none of the three ever
falls; a read never returns a part of a batch or anything at or after `log_end_offset`. After a sync has failed nothing
more is appended or synced, ever, and the next start cuts the log to what was durable.

Called by the broker's partition task, which asks `headrace.core.log.group_commit` when to sync.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from headrace.core.errors import DiskFullError, FencedEpochError, OffsetOutOfRangeError, StorageFailedError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.recovery import RecoveryReport
from headrace.core.log.segments import Growth, LogConfig, roll_reason
from headrace.core.records.raw import RawBatch
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.disk import is_passing, storage_error
from headrace_broker.storage.log_reader import LogReader
from headrace_broker.storage.log_syncer import LogSyncer
from headrace_broker.storage.recovery import RecoveredLog, recover
from headrace_broker.storage.segment_set import SegmentSet
from headrace_broker.storage.threads import StorageThreads

logger = logging.getLogger(__name__)


class Appended(NamedTuple):
    """Where an append has gone."""

    first_offset: Offset
    last_offset: Offset
    base_offsets: tuple[Offset, ...]
    """Of each batch, in order."""


class PartitionLog:
    def __init__(self, directory: Path, config: LogConfig, recovered: RecoveredLog, threads: StorageThreads) -> None:
        self.directory = directory
        self.config = config
        """May be replaced at any time; holds from the next append on."""
        self.recovery: RecoveryReport = recovered.report
        self._threads = threads
        self._epochs: LeaderEpochs = recovered.epochs
        self._segments = SegmentSet(directory, recovered)
        self._syncer = LogSyncer(directory, self._segments, self._epochs, recovered)
        self._reader = LogReader(self._segments, threads, self._close_active)

    @classmethod
    def open(cls, directory: Path, config: LogConfig, *, threads: StorageThreads, now_ms: int) -> Self:
        """Recover the log in `directory`. Blocks, for as long as the tail above the recovery point asks for.

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
        """The next offset to be written."""
        return self._segments.tip.offset

    @property
    def durable_end(self) -> Offset:
        """First offset that is not known to be on disk."""
        return self._syncer.durable.offset

    @property
    def size_bytes(self) -> int:
        """Of all batches; indexes are not counted."""
        return self._segments.size_bytes

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Of the last batch; `NO_EPOCH` where there is none."""
        return self._epochs.latest

    @property
    def high_watermark_checkpoint(self) -> Offset:
        """The last one that was written, as far as the log still reaches."""
        return self._syncer.high_watermark

    def append(self, batches: Sequence[RawBatch], leader_epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Stamp the batches and write them to the page cache: all of them, or none and an error.

        Raises DiskFullError and ThrottledError, after which the log goes on; StorageFailedError, after which it does
        not; FencedEpochError where the log already holds a later epoch.
        """
        assert batches, "an append has a batch at least"
        self._syncer.check_usable()
        if leader_epoch < self._epochs.latest:
            raise FencedEpochError(f"leader epoch {leader_epoch} is over: the log holds {self._epochs.latest}")
        end = first = self.log_end_offset
        base_offsets = []
        for batch in batches:
            base_offsets.append(end)
            end = batch.stamp(end, leader_epoch).header.next_offset
        self._write(batches, leader_epoch, end, now_ms)
        return Appended(first, Offset(end - 1), tuple(base_offsets))

    async def sync(self) -> Offset:
        """Put everything on disk that was appended before the call; returns the new durable end.

        Raises StorageFailedError: the sync is not repeated, the log is over.
        """
        return await self._threads.sync(self._syncer.sync)

    async def read(self, offset: Offset, *, max_bytes: int, up_to: Offset) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on, which may begin below it, to `up_to` at most.

        At most `max_bytes` together, but one batch at least; empty at `up_to` and at the end of the log. Raises
        OffsetOutOfRangeError outside of [log_start_offset, log_end_offset], CorruptLogError, StorageFailedError, and
        ThrottledError where no more files can be opened.
        """
        start, end = self.log_start_offset, self.log_end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(
                f"offset {offset} is out of range: the log holds {start} to {end}", logStartOffset=start
            )
        return await self._reader.read(offset, max_bytes, min(up_to, end))

    async def find_timestamp(self, timestamp_ms: int, up_to: Offset) -> tuple[Offset, int] | None:
        """(offset, time) of the first record below `up_to` whose time is `timestamp_ms` or later; None without one.

        Raises CorruptLogError, StorageFailedError.
        """
        return await self._reader.find(timestamp_ms, min(up_to, self.log_end_offset))

    async def checkpoint_high_watermark(self, offset: Offset) -> None:
        """Remember on disk that everything below `offset` is committed. Raises DiskFullError, StorageFailedError."""
        await self._threads.sync(self._syncer.write_high_watermark, offset)

    async def delete_before(self, offset: Offset) -> None:
        """The log starts at `offset` now, on disk too; closed segments that lie below it as a whole are removed.

        `offset` is not beyond the end. Readers that are under way finish. Raises StorageFailedError, and DiskFullError
        where not even the checkpoint finds room, after as much was deleted as whole segments can be.
        """
        try:
            await self._threads.sync(self._syncer.write_log_start, offset)
        except DiskFullError:
            # Whoever deletes from a full disk wants room. The names of the segments that are left say where they start.
            floor = self._segments.base_below(offset)
            if floor <= self.log_start_offset:
                raise
            await self._drop_below(floor)
            await self._threads.sync(self._syncer.write_log_start, offset)
        await self._drop_below(offset)

    def close(self) -> None:
        """Sync, and move the recovery point to the end, so that the next start scans nothing. Blocks.

        Raises StorageFailedError, also where the disk had failed before: such a log is closed as it is, and its stop
        was not clean. Readers that are under way finish.
        """
        self._syncer.sync(final=True)

    async def _drop_below(self, offset: Offset) -> None:
        dropped = self._segments.drop_below(offset)
        if not dropped:
            return
        try:
            await self._threads.sync(self._segments.delete, dropped)
        except OSError as error:
            # The records are deleted for everybody who reads; the next start removes what is left of the files.
            logger.warning("%s: segments below offset %d are not removed: %s", self.directory, offset, error)

    def _write(self, batches: Sequence[RawBatch], leader_epoch: LeaderEpoch, end: Offset, now_ms: int) -> None:
        try:
            self._maybe_roll(batches, end, now_ms)
            segment = self._segments.active
            segment.append(batches)
        except OSError as error:
            raise self._broken(error) from error
        except StorageFailedError as error:
            self._syncer.fail(error.message)
            raise
        tip = self._segments.tip
        # Before the new end is published: a sync in its thread may write the recovery point there, and the epochs with
        # it, which must hold every epoch below.
        self._epochs.assign(leader_epoch, tip.offset)
        created_ms = tip.segment_created_ms if tip.position else now_ms
        self._segments.tip = LogPoint(end, segment.base_offset, segment.size, created_ms)

    def _maybe_roll(self, batches: Sequence[RawBatch], end: Offset, now_ms: int) -> None:
        tip = self._segments.tip
        growth = Growth(
            segment_bytes=tip.position,
            segment_offsets=tip.offset - tip.segment,
            created_ms=tip.segment_created_ms,
            append_bytes=sum(batch.nbytes for batch in batches),
            append_offsets=end - tip.offset,
            now_ms=now_ms,
            unsynced_segments=self._syncer.unsynced_segments,
        )
        if roll_reason(growth, self.config):
            self._roll(now_ms)

    def _roll(self, created_ms: int) -> None:
        self._syncer.rolls(self._segments.active)
        self._segments.roll(created_ms)

    def _close_active(self) -> None:
        try:
            self._roll(self._segments.tip.segment_created_ms)
        except OSError as error:
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> Exception:
        typed = storage_error(error, f"appending to {self.directory}")
        if not is_passing(error):
            self._syncer.fail(typed.message)
        return typed
