"""The writes at the end of one log: stamped batches go to the page cache, and segments are rolled when they are due.

A `PartitionLog` owns it, and its task alone calls it. Invariants: an append is written whole or not at all, and its end
is published after epochs and producers know it; nothing is appended or rolled while the log is being cut. A permanent
failure is the end of the log (`LogSyncer.fail`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.core.errors import StorageFailedError, ThrottledError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.retention import SegmentTimes
from headrace.core.log.segments import Growth, LogConfig, roll_reason
from headrace.core.records.raw import RawBatch
from headrace.core.replication.producers import Producers
from headrace.core.types import Offset
from headrace_broker.storage.disk import is_passing, shown, storage_error
from headrace_broker.storage.log_syncer import LogSyncer
from headrace_broker.storage.segment_set import SegmentSet


class AppendedBatches(NamedTuple):
    """The place of an append's batches: one after the other, but for those that were there before."""

    first_offset: Offset
    last_offset: Offset
    base_offsets: tuple[Offset, ...]
    """The base offset of each batch, in order."""
    last_offsets: tuple[Offset, ...]


class LogAppender:
    def __init__(
        self, directory: Path, segments: SegmentSet, syncer: LogSyncer, epochs: LeaderEpochs, producers: Producers
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._syncer = syncer
        self._epochs = epochs
        self._producers = producers
        self.is_being_cut = False
        """True while nothing may be appended or rolled."""

    def write(self, batches: Sequence[RawBatch], config: LogConfig, now_ms: int) -> AppendedBatches:
        """Write batches that are stamped and follow the end of the log. Raises what `PartitionLog.append` raises."""
        assert not self.is_being_cut, "nothing is appended before the cut is on disk"
        end = batches[-1].header.next_offset
        try:
            self._maybe_roll(batches, end, config, now_ms)
            segment = self._segments.active
            segment.append(batches)
        except OSError as error:
            raise self._broken(error) from error
        except StorageFailedError as error:
            self._syncer.fail(error.message)
            raise
        tip = self._segments.tip
        # This comes before the new end is published: a sync in its thread may write the recovery point there, and with
        # it the epochs and producers, which must hold everything below.
        headers = [batch.header for batch in batches]
        for header in headers:
            self._epochs.assign(header.leader_epoch, header.base_offset)
            self._producers.note(header, now_ms)
        created_ms = tip.segment_created_ms if tip.position else now_ms
        self._segments.tip = LogPoint(end, segment.base_offset, segment.size, created_ms)
        return AppendedBatches(
            first_offset=tip.offset,
            last_offset=Offset(end - 1),
            base_offsets=tuple(header.base_offset for header in headers),
            last_offsets=tuple(header.last_offset for header in headers),
        )

    def roll_when_due(self, config: LogConfig, now_ms: int) -> None:
        """Go on in a new segment where the active one is old enough. Raises what `close_active` raises."""
        self._guarded(lambda: self._maybe_roll((), self._segments.tip.offset, config, now_ms))

    def close_active(self) -> None:
        """Go on in a new segment. Raises DiskFullError, ThrottledError, StorageFailedError."""
        self._guarded(lambda: self._roll(self._segments.tip.segment_created_ms))

    def active_times(self) -> SegmentTimes:
        """Return the times of the segment that is written to."""
        active = self._segments.active
        return SegmentTimes(active.indexes.cursor.max_timestamp_ms, active.log.written_ms())

    def _maybe_roll(self, batches: Sequence[RawBatch], end: Offset, config: LogConfig, now_ms: int) -> None:
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
        if roll_reason(growth, config):
            self._roll(now_ms)

    def _roll(self, created_ms: int) -> None:
        self._syncer.rolls(self._segments.active)
        self._segments.roll(created_ms)

    def _guarded(self, roll: Callable[[], None]) -> None:
        if self.is_being_cut:
            raise ThrottledError(f"the log in {shown(self._directory)} is being cut just now; try again")
        try:
            roll()
        except OSError as error:
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> Exception:
        typed = storage_error(error, f"appending to {shown(self._directory)}")
        if not is_passing(error):
            self._syncer.fail(typed.message)
        return typed
