"""The changes that make one partition's log smaller: deletion of records, retention, compaction, cuts. One at a time.

Owned by a `Partition`, on the event loop. Each change goes on to its end, even if its caller leaves: half a deletion
would be a log start on disk that readers do not see. The partition waits for all of them (`finish`) before its log is
closed.

Invariants: records are deleted only while this broker leads, or because its leader has deleted them, and only what is
committed; a disk that fails here fails for the whole broker. Called by the partition, `housekeeping` and `compaction`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any, TypeVar

from headrace.core.errors import DiskFullError, StorageFailedError, ThrottledError
from headrace.core.log.retention import ExpiryReason, Retention
from headrace.core.replication.replica import Replica
from headrace.core.types import Offset
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import wall_ms
from headrace_broker.metrics import Metrics
from headrace_broker.partition.queries import Place
from headrace_broker.storage.partition_log import PartitionLog

_log = logging.getLogger(__name__)
_FOR_EVER = Retention(None, None)
T = TypeVar("T")


class Cleaner:
    def __init__(
        self,
        place: Place,
        log: PartitionLog,
        replica: Replica,
        metrics: Metrics,
        disk: BrokerDisk,
        moved: Callable[[], None],
    ) -> None:
        """`moved` is called when the log begins elsewhere: its followers are to follow."""
        self._retention = _FOR_EVER
        """The rules of retention of the topic."""
        self._place = place
        self._log = log
        self._replica = replica
        self._disk = disk
        self._moved = moved
        self._deleted_segments, self._deleted_bytes = metrics.deleted_segments, metrics.deleted_bytes
        self._seen_retention, self._seen_segment = self._retention, log.active_segment
        """The rules that the last `expire` used; the first ones before that."""
        self._changes: set[asyncio.Task[Any]] = set()
        self._alone = asyncio.Lock()
        """Cleanings that wait for the log must not hold the threads that other partitions sync in."""

    @property
    def wants_cleaning(self) -> bool:
        """Whether there may be more to delete than at the last `expire`, for another reason than the time."""
        # Asked of every partition at every tick, so objects are compared and not what they say.
        is_other = self._log.active_segment != self._seen_segment or self._retention is not self._seen_retention
        return is_other and self._replica.leads

    def configure(self, retention: Retention) -> None:
        """The topic says so. A log that was just opened has its turn: a thousand of them are opened at once."""
        if self._seen_retention is _FOR_EVER:
            self._seen_retention = retention
        self._retention = retention

    async def delete_before(self, start: Offset) -> None:
        """The log begins at `start` now, which is committed; nothing happens where it does, or another broker leads.

        Raises DiskFullError, StorageFailedError.
        """
        await self.change(self._drop_below(start, ()))

    async def delete_as_leader(self, start: Offset) -> None:
        """The leader's log begins at `start`: so does this one, which it follows, or followed when it was told.

        Raises DiskFullError, StorageFailedError.
        """
        await self.change(self._drop(start, (), ExpiryReason.LEADER))

    async def expire(self) -> None:
        """Delete what retention is over for; nothing happens where another broker leads.

        Raises DiskFullError and ThrottledError, after which the next one may do it; StorageFailedError.
        """
        if self._replica.leads:
            await self.change(self._expire())

    async def change(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what looks at closed segments, replaces or deletes them. Raises what the work does."""
        task = asyncio.create_task(self._do_alone(work), name=f"change {self._place}")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def truncate(self, end: Offset, *, allow_below_high_watermark: bool = False) -> Offset:
        """`PartitionLog.truncate`; the room that it makes is the broker's."""
        return await self.change(
            self._giving_back(self._log.truncate(end, allow_below_high_watermark=allow_below_high_watermark))
        )

    async def start_at(self, offset: Offset) -> None:
        """`PartitionLog.start_at`; the room that it makes is the broker's."""
        await self.change(self._giving_back(self._log.start_at(offset)))

    def compacted(self, saved_bytes: int) -> None:
        """A part of the log is smaller now."""
        self._disk.gave_back(max(0, saved_bytes))

    async def finish(self) -> None:
        """Wait for the changes that were begun."""
        if self._changes:
            await asyncio.wait(self._changes)

    async def _do_alone(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._alone:
            with self._failing():
                return await work

    async def _giving_back(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that shortens the log while nothing is appended to it, and count the bytes that it gave back."""
        before = self._log.size_bytes
        done = await work
        self._disk.gave_back(max(0, before - self._log.size_bytes))
        return done

    async def _expire(self) -> None:
        if not self._replica.leads:
            return
        log, now_ms = self._log, wall_ms()
        self._seen_retention, self._seen_segment = self._retention, log.active_segment
        try:
            log.close_segment(self._retention, now_ms)
        except (DiskFullError, ThrottledError) as error:
            # What is closed already goes all the same: that may be the room that is missing.
            _log.warning("%s: the segment that is written to stays open: %s", self._place, error)
        if log.lags_in_syncs:
            await log.sync()
        gone = await log.expired(self._retention, self._replica.high_watermark, now_ms)
        if gone:
            await self._drop_below(gone[-1].segment.next_offset, [each.reason for each in gone])

    async def _drop_below(self, start: Offset, reasons: Sequence[ExpiryReason]) -> None:
        """`reasons` why each of the oldest segments goes; others go because somebody asked for it."""
        if self._replica.leads:
            await self._drop(start, reasons, ExpiryReason.REQUEST)

    async def _drop(self, start: Offset, reasons: Sequence[ExpiryReason], others: ExpiryReason) -> None:
        # A log that was cut or began anew meanwhile may end below it.
        if not self._log.log_start_offset < start <= self._log.log_end_offset:
            return
        removed = await self._log.delete_before(start)
        for size, reason in zip(removed, chain(reasons, repeat(others)), strict=False):
            self._deleted_segments.labels(reason).inc()
            self._deleted_bytes.labels(reason).inc(size)
        self._disk.gave_back(sum(removed))
        self._moved()
        why = ", ".join(sorted(set(reasons))) or others
        _log.info("%s: the records below offset %d are deleted (%s)", self._place, start, why)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StorageFailedError as error:
            self._disk.failed(self._place, str(error))
            raise
