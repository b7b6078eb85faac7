"""One partition that is open on this broker: its log, its leadership, and everybody who waits for either.

Owned by `holdings.Holdings` from the moment its log is recovered until it is closed; all methods run on the event loop.
The core decides (`Leadership.step`), this module carries out: appends, syncs, answers, wakes. Between the check that
this broker leads and the append there is no `await`, so that no append carries an epoch that is over.

Invariants: one sync runs at a time; every waiter is answered exactly once; after `close` nothing is read or written. A
failed sync or write is reported to `on_failure`, and nothing is acknowledged after it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import assert_never

from headrace.core.errors import (
    HeadraceError,
    NotLeaderError,
    RequestTimedOutError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.limits import APPENDS_WAITING_MAX, PARTITION_TICK_MS
from headrace.core.log.group_commit import Sync
from headrace.core.log.segments import LogConfig
from headrace.core.log.trimming import start_after
from headrace.core.records.raw import RawBatch
from headrace.core.replication.events import (
    Abandon,
    Acknowledge,
    Acks,
    Appended,
    Closed,
    Configured,
    Effect,
    Event,
    Expire,
    GiveUp,
    Lead,
    RaiseHighWatermark,
    Resign,
    StateApplied,
    Synced,
    SyncFailed,
    Ticked,
    Waiter,
)
from headrace.core.replication.leadership import Leadership
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TimestampType, TopicSpec
from headrace.core.types import LeaderEpoch, Offset, PartitionKey
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.metrics import Metrics, PartitionGauges
from headrace_broker.requests import DeleteQuery, Edge, Place, ProduceQuery
from headrace_broker.storage.partition_log import Appended as Written
from headrace_broker.storage.partition_log import PartitionLog

_log = logging.getLogger(__name__)
_UNKNOWN = "whether the records are written is not known"


class Partition:
    def __init__(
        self,
        key: PartitionKey,
        place: Place,
        log: PartitionLog,
        leadership: Leadership,
        metrics: Metrics,
        on_failure: Callable[[str], None],
    ) -> None:
        self.key = key
        self.place = place
        self.log = log
        self.leadership = leadership
        self.counters = metrics.counters(place.topic, place.partition)
        self._fsync_seconds = metrics.fsync_seconds
        self._on_failure = on_failure
        self._takes_append_time = False
        self.is_draining = False
        """Long polls end with what there is."""
        self._answers: dict[int, asyncio.Future[None]] = {}
        """By waiter, of the appends that are not acknowledged yet."""
        self._last_waiter = 0
        self._readers: set[asyncio.Future[None]] = set()
        """Long polls: woken when there may be something new to say."""
        self._syncing: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._deletions: set[asyncio.Task[None]] = set()
        self._deleting = asyncio.Lock()
        """One at a time: those that wait for the log must not hold the threads that other partitions sync in."""

    @property
    def leads(self) -> bool:
        return self.leadership.leads

    @property
    def high_watermark(self) -> Offset:
        return self.leadership.high_watermark

    def apply(self, state: PartitionState) -> None:
        """The PartitionSet says so."""
        self._step(StateApplied(state))

    def configure(self, spec: TopicSpec) -> None:
        """The Topic says so."""
        self._takes_append_time = spec.timestamp_type is TimestampType.LOG_APPEND_TIME
        config = LogConfig.of_topic(spec)
        if config != self.log.config:
            self.log.config = config
            self._step(Configured(spec.durability))

    async def produce(self, batches: list[RawBatch], query: ProduceQuery) -> tuple[Written, LeaderEpoch]:
        """Append and wait for as many acknowledgements as asked for.

        Raises what `Leadership.check_leader` raises, ThrottledError, DiskFullError, StorageFailedError, and
        RequestTimedOutError or NotLeaderError where the records may or may not be written.
        """
        epoch = self.leadership.check_leader(str(self.place), query.fence)
        if len(self._answers) >= APPENDS_WAITING_MAX:
            raise ThrottledError(f"{self.place} has {APPENDS_WAITING_MAX} appends in flight; wait and try again")
        written, answer = self._append(batches, epoch, query)
        if answer is not None:
            await answer
        return written, epoch

    async def delete_records(self, query: DeleteQuery) -> Offset:
        """Delete what lies below an offset, for good; returns where the log starts then, on disk.

        Raises what `Leadership.check_leader` raises, OffsetOutOfRangeError, DiskFullError, StorageFailedError.
        """
        label = str(self.place)
        self.leadership.check_leader(label, query.fence)
        end = self.high_watermark
        before = end if query.before is Edge.LATEST else Offset(int(query.before))
        start = start_after(before, log_start=self.log.log_start_offset, high_watermark=end, label=label)
        if start > self.log.log_start_offset:
            deletion = asyncio.create_task(self._delete_before(start), name=f"delete {label}")
            self._deletions.add(deletion)
            deletion.add_done_callback(self._deletions.discard)
            # A client that leaves must not leave the half of it: a start on disk that readers do not see.
            await asyncio.shield(deletion)
        self.leadership.check_leader(label, query.fence)
        return self.log.log_start_offset

    async def moved(self, timeout_s: float) -> None:
        """Wait until there may be something new to read, or this broker stops leading; at most so long."""
        woken = asyncio.get_running_loop().create_future()
        self._readers.add(woken)
        try:
            async with asyncio.timeout(timeout_s):
                await woken
        except TimeoutError:
            pass
        finally:
            self._readers.discard(woken)

    def drain(self) -> None:
        self.is_draining = True
        self._wake_readers()

    async def checkpoint(self) -> None:
        """Remember the high watermark on disk. Raises DiskFullError, StorageFailedError."""
        if self.high_watermark > self.log.high_watermark_checkpoint:
            await self.log.checkpoint_high_watermark(self.high_watermark)

    async def close(self, reason: str) -> None:
        """Answer everybody, wait for the sync and the deletion in flight, close the log."""
        self._step(Closed(reason))
        if self._ticking is not None:
            self._ticking.cancel()
        while self._syncing is not None and not self._syncing.done():
            await self._syncing
        if self._deletions:
            await asyncio.wait(self._deletions)
        await self.checkpoint()
        await asyncio.to_thread(self.log.close)

    def gauges(self) -> PartitionGauges:
        return PartitionGauges(
            topic=self.place.topic,
            partition=self.place.partition,
            leads=self.leads,
            log_bytes=self.log.size_bytes,
            log_start_offset=self.log.log_start_offset,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
        )

    def _append(
        self, batches: list[RawBatch], epoch: LeaderEpoch, query: ProduceQuery
    ) -> tuple[Written, asyncio.Future[None] | None]:
        size, now_ms = sum(batch.nbytes for batch in batches), wall_ms()
        if self._takes_append_time:
            for batch in batches:
                batch.take_append_time(now_ms)
        try:
            written = self.log.append(batches, epoch, now_ms)
        except StorageFailedError as error:
            self._fail(str(error))
            raise
        self.counters.bytes_in.inc(size)
        self.counters.batches_in.inc(len(batches))
        self.counters.records_in.inc(written.last_offset - written.first_offset + 1)
        answer, waiter = (None, None) if query.acks is Acks.NONE else self._expect(query)
        self._step(Appended(self.log.log_end_offset, size, waiter))
        return written, answer

    def _expect(self, query: ProduceQuery) -> tuple[asyncio.Future[None], Waiter]:
        self._last_waiter += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._last_waiter] = answer
        return answer, Waiter(self._last_waiter, query.acks, monotonic_ms() + query.timeout_ms)

    def _step(self, event: Event) -> None:
        for effect in self.leadership.step(event, monotonic_ms()):
            self._carry_out(effect)
        if self.leadership.waits and self._ticking is None:
            self._ticking = asyncio.get_running_loop().call_later(PARTITION_TICK_MS / 1000, self._tick)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Sync():
                self._syncing = asyncio.create_task(self._sync(), name=f"sync {self.place}")
            case Acknowledge(waiters):
                self._answer(waiters, None)
            case RaiseHighWatermark():
                self._wake_readers()
            case Lead() | Resign():
                _log.info("%s: %s", self.place, effect)
                self._wake_readers()
            case Expire(waiters, reason):
                self._answer(waiters, RequestTimedOutError(f"{self.place}: {reason}; {_UNKNOWN}"))
            case Abandon(waiters, reason):
                self._answer(waiters, NotLeaderError(f"{self.place} is not led here any more: {reason}; {_UNKNOWN}"))
            case GiveUp(waiters, reason):
                self._answer(waiters, StorageFailedError(f"{self.place}: {reason}; {_UNKNOWN}"))
                self._fail(reason)
            case _:
                assert_never(effect)

    async def _sync(self) -> None:
        try:
            with self._fsync_seconds.time():
                durable_end = await self.log.sync()
        except Exception as error:
            # Whatever it was: a sync that did not come back is a failed one, and nobody may wait for it for ever.
            _log.exception("%s: the sync failed", self.place)
            self._step(SyncFailed(str(error) or repr(error)))
        else:
            self._step(Synced(durable_end))

    async def _delete_before(self, start: Offset) -> None:
        async with self._deleting:
            if not self.leads or start <= self.log.log_start_offset:
                return
            try:
                await self.log.delete_before(start)
            except StorageFailedError as error:
                self._fail(str(error))
                raise
        _log.info("%s: the records below offset %d are deleted", self.place, start)

    def _tick(self) -> None:
        self._ticking = None
        self._step(Ticked())

    def _answer(self, waiters: Iterable[int], error: HeadraceError | None) -> None:
        for waiter in waiters:
            answer = self._answers.pop(waiter)
            # Whoever waited may have gone away meanwhile: then the future is cancelled.
            if answer.done():
                continue
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

    def _wake_readers(self) -> None:
        for woken in self._readers:
            if not woken.done():
                woken.set_result(None)

    def _fail(self, reason: str) -> None:
        _log.critical("%s: the disk failed, this broker stops: %s", self.place, reason)
        self._on_failure(f"{self.place}: {reason}")
