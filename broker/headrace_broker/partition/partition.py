"""One partition that is open on this broker: its log, its replica, and everybody who waits for either.

Owned by `Holdings` from the moment its log is recovered until it is closed; all methods run on the event loop. The core
decides (`Replica.step`), this module carries out: appends, syncs, answers, wakes; a follower's effects are carried out
in `following`, and everything that makes the log smaller in `cleaning`. Between the check that this broker leads and
the append there is no `await`, so that no append carries an epoch that is over.

`Waiters` holds everybody who waits: for the result of an append, or for something new to read.

Invariants: one sync runs at a time; every waiter is answered exactly once; after `close` nothing is read or written. A
failed sync or write is reported to the disk, and nothing is acknowledged after it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from headrace.core.errors import (
    DiskFullError,
    HeadraceError,
    NotLeaderError,
    RequestTimedOutError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.log.compaction import CompactionRules, check_keys
from headrace.core.log.epochs import EpochEnd, Fence
from headrace.core.log.group_commit import Sync
from headrace.core.log.retention import Retention, log_start_after
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import RawBatch
from headrace.core.replication.events import (
    Abandon,
    Acknowledge,
    Appended,
    Closed,
    Configured,
    Connected,
    Disconnected,
    Effect,
    EpochAnswered,
    Event,
    Expire,
    FollowerLeft,
    FollowerReported,
    GiveUp,
    IsrProposed,
    Lead,
    RaiseHighWatermark,
    Repeated,
    Resign,
    StateApplied,
    Synced,
    SyncFailed,
    Ticked,
    Waiter,
    WriteFailed,
)
from headrace.core.replication.isr import Ends, InSyncRules, PendingIsr
from headrace.core.replication.leadership import Contact
from headrace.core.replication.producers import Remembered
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TimestampType, TopicSpec
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionKey, Seat
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.metrics import PartitionGauges
from headrace_broker.partition.cleaning import Cleaner
from headrace_broker.partition.following import Buffer, FollowingLog, Host
from headrace_broker.partition.queries import DeleteQuery, Edge, Place, ProduceQuery
from headrace_broker.partition.record_checks import TimeWatch
from headrace_broker.storage.log_appender import AppendedBatches as Written
from headrace_broker.storage.partition_log import PartitionLog

APPENDS_WAITING_MAX = 10_000
"""Appends of one partition that wait for their acknowledgement; above it clients are told to wait (429)."""
PARTITION_TICK_MS = 100
"""How often a partition with waiters looks at the time: expiry is this exact."""


Answered = Callable[[HeadraceError | None], None]
"""Told what became of an append."""
Wake = Callable[[], None]


class Waiters:
    def __init__(self) -> None:
        self._answers: dict[int, Answered] = {}
        """By waiter, of the appends that are not acknowledged yet."""
        self._last_waiter = 0
        self._readers: set[asyncio.Future[None]] = set()
        """Long polls: woken when there may be something new to say."""
        self._followers: set[Wake] = set()
        self._replicas: set[Wake] = set()

    def check_room(self, place: Place) -> None:
        """Raises ThrottledError."""
        if len(self._answers) >= APPENDS_WAITING_MAX:
            raise ThrottledError(f"{place} has {APPENDS_WAITING_MAX} appends in flight; wait and try again")

    def expect(self, acks: Acks, expires_ms: int, answered: Answered) -> Waiter:
        self._last_waiter += 1
        self._answers[self._last_waiter] = answered
        return Waiter(self._last_waiter, acks, expires_ms)

    def answer(self, waiters: Iterable[int], error: HeadraceError | None) -> None:
        for waiter in waiters:
            self._answers.pop(waiter)(error)

    async def moved(self, timeout_s: float) -> None:
        """Until something is new, or at most so long."""
        woken = asyncio.get_running_loop().create_future()
        self._readers.add(woken)
        try:
            async with asyncio.timeout(timeout_s):
                await woken
        except TimeoutError:
            pass
        finally:
            self._readers.discard(woken)

    def follow(self, wake: Wake, *, appends: bool = False) -> None:
        """Have `wake` called when there is something new for readers; with `appends`, for replicas, too."""
        (self._replicas if appends else self._followers).add(wake)

    def unfollow(self, wake: Wake) -> None:
        self._followers.discard(wake)
        self._replicas.discard(wake)

    @property
    def has_replicas(self) -> bool:
        return bool(self._replicas)

    def wake(self) -> None:
        for woken in self._readers:
            if not woken.done():
                woken.set_result(None)
        for wake in tuple(self._followers):  # They may leave meanwhile.
            wake()
        self.wake_replicas()

    def wake_replicas(self) -> None:
        """Something was appended, which is not committed yet."""
        for wake in tuple(self._replicas):
            wake()


_log = logging.getLogger(__name__)
_UNKNOWN = "whether the records are written is not known"


class Partition:
    def __init__(self, key: PartitionKey, place: Place, log: PartitionLog, replica: Replica, host: Host) -> None:
        self.key = key
        self.place = place
        self.log = log
        self.replica = replica
        self.counters = host.metrics.counters(place.topic, place.partition)
        self._fsync_seconds = host.metrics.fsync_seconds
        self._disk = host.disk
        self._contact = host.contact
        self.recent = host.recent
        """What was appended or read just now, for followers."""
        self._takes_append_time = False
        self.times = TimeWatch(place, self.counters)
        self._waiting = Waiters()
        self.cleaner = Cleaner(place, log, replica, host.metrics, host.disk, self._waiting.wake_replicas)
        self.compaction_rules: CompactionRules | None = None
        """None where the topic is not compacted."""
        self.is_draining = False
        """Long polls end with what there is."""
        self._following = FollowingLog(self, host.streams, self._step)
        self._syncing: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def leads(self) -> bool:
        return self.replica.leads

    @property
    def high_watermark(self) -> Offset:
        return self.replica.high_watermark

    @property
    def contact(self) -> Contact:
        """As of now."""
        return self._contact()

    def apply(self, state: PartitionState) -> None:
        """The PartitionSet says so."""
        self._step(StateApplied(state))

    def isr_proposed(self, pending: PendingIsr | None) -> None:
        """These writes may land from now on: told before the PUT is sent. None: nothing is on its way any more."""
        self._step(IsrProposed(pending))

    def configure(self, spec: TopicSpec) -> None:
        """The Topic says so."""
        self._takes_append_time = spec.timestamp_type is TimestampType.LOG_APPEND_TIME
        self.times.configure(spec)
        self.cleaner.configure(Retention.of_topic(spec))
        self.compaction_rules = CompactionRules.of_topic(spec)
        config = LogConfig.of_topic(spec)
        if config != self.log.config:
            self.log.config = config
        rules = InSyncRules.of_topic(spec)
        if rules != self.replica.rules:
            self._step(Configured(rules))

    async def produce(self, batches: list[RawBatch], query: ProduceQuery) -> tuple[Written, LeaderEpoch]:
        """Append and wait for as many acknowledgements as asked for.

        Raises what `append` raises, and what it answers.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        appended = self.append(batches, query, partial(_settle, answer))
        await answer
        return appended

    def append(self, batches: list[RawBatch], query: ProduceQuery, answered: Answered) -> tuple[Written, LeaderEpoch]:
        """Append now, and have it answered once: in good time, or at once and before this returns.

        The answer is None as soon as there are as many acknowledgements as asked for; else RequestTimedOutError,
        NotLeaderError or StorageFailedError: the records may or may not be written. Raises what
        `Replica.check_writable` raises, InvalidRequestError for records without a key where the topic is compacted,
        InvalidTimestampError, OutOfOrderSequenceError, FencedProducerError, ThrottledError, DiskFullError,
        StorageFailedError; then nothing is answered. A batch that its producer repeats is not appended: it has the
        place that it has.
        """
        epoch = self.replica.check_writable(str(self.place), query.fence, query.acks, self._contact())
        if self.compaction_rules is not None:
            check_keys(batches, str(self.place))
        self._waiting.check_room(self.place)
        repeated = self.log.producers.repeated([batch.header for batch in batches], self.log.log_end_offset)
        if not query.is_committed:
            self.times.check(batches, wall_ms(), repeated)
        new = [batch for i, batch in enumerate(batches) if i not in repeated] if repeated else batches
        size, written = self._append(new, epoch) if new else (0, None)
        for batch in batches:  # What waits, or is kept for followers, needs them no more.
            batch.times = None
        waiter = None if query.acks is Acks.NONE else self._expect(query, answered)
        if written is not None:
            self._step(Appended(self.log.log_end_offset, size, waiter))
            if self._waiting.has_replicas:
                self.recent.appended(self.key, new)
                self._waiting.wake_replicas()
        elif waiter is not None:
            self._step(Repeated(Offset(1 + max(each.last_offset for each in repeated.values())), waiter))
        if waiter is None:
            answered(None)
        if written is None or repeated:
            written = self._with_repeated(written, repeated, len(batches))
        return written, epoch

    async def delete_records(self, query: DeleteQuery) -> Offset:
        """Delete what lies below an offset, for good; returns where the log starts then, on disk.

        Raises what `Replica.check_leader` raises, NotReadyError where it depends on what is the latest and this leader
        does not know that, OffsetOutOfRangeError, DiskFullError, StorageFailedError.
        """
        label = str(self.place)
        self.replica.check_leader(label, query.fence)
        end = self.high_watermark
        before = end if query.before is Edge.LATEST else Offset(int(query.before))
        if query.before is Edge.LATEST or before > end:
            self.replica.check_latest(label, self.contact)
        start = log_start_after(before, log_start=self.log.log_start_offset, high_watermark=end, label=label)
        if start > self.log.log_start_offset:
            await self.cleaner.delete_before(start)
        self.replica.check_leader(label, query.fence)
        return self.log.log_start_offset

    async def moved(self, timeout_s: float) -> None:
        """Wait until there may be something new to read, or this broker stops leading; at most so long."""
        await self._waiting.moved(timeout_s)

    def follow(self, wake: Wake) -> None:
        """Have `wake` called whenever there may be something new to say to a client, until `unfollow`."""
        self._waiting.follow(wake)

    def unfollow(self, wake: Wake) -> None:
        self._waiting.unfollow(wake)

    def drain(self) -> None:
        self.is_draining = True
        self._waiting.wake()

    # -- what the streams to followers need ----------------------------------------------------------------------------

    def follow_appends(self, wake: Wake) -> None:
        """Have `wake` called when something is appended, too, until `unfollow_appends`."""
        self._waiting.follow(wake, appends=True)

    def unfollow_appends(self, wake: Wake) -> None:
        self._waiting.unfollow(wake)

    def check_serves(self, leader_epoch: LeaderEpoch) -> None:
        """Whether this broker leads in that epoch. Raises what `Replica.check_leader` raises."""
        self.replica.check_leader(str(self.place), Fence(leader_epoch=leader_epoch))

    def epoch_end(self, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> EpochEnd:
        """Where `epoch` ends in this leader's log. Raises what `check_serves` raises."""
        self.check_serves(leader_epoch)
        return self.log.epochs.end_of(epoch, self.log.log_end_offset)

    def follower_reported(self, seat: Seat, leader_epoch: LeaderEpoch, ends: Ends, heard_ms: int | None = None) -> None:
        """A follower holds so much. `heard_ms`: when this broker sent what that answers; None: just now."""
        self._step(FollowerReported(seat, leader_epoch, ends, heard_ms))

    def follower_left(self, seat: Seat, leader_epoch: LeaderEpoch) -> None:
        """Its stream has ended."""
        self._step(FollowerLeft(seat, leader_epoch))

    # -- what comes from the stream to the leader ----------------------------------------------------------------------

    def stream_opened(self, leader_epoch: LeaderEpoch) -> None:
        self._step(Connected(leader_epoch))

    def stream_lost(self) -> None:
        self._step(Disconnected())

    def epoch_answered(self, leader_epoch: LeaderEpoch, answer: EpochEnd) -> None:
        """Raises DivergedLogError: this stream is of no use, try another one, later."""
        self._step(EpochAnswered(leader_epoch, answer))

    def received(
        self, leader_epoch: LeaderEpoch, batches: Sequence[Buffer], high_watermark: Offset, log_start: Offset
    ) -> None:
        """What the leader sent: whole batches, or none. Where it raises, this stream is of no use: another one, later.

        Raises CorruptBatchError, DivergedLogError, DiskFullError, ThrottledError, StorageFailedError.
        """
        self._following.received(leader_epoch, batches, high_watermark, log_start)

    # ------------------------------------------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Remember the high watermark on disk. Raises DiskFullError, StorageFailedError."""
        if self.high_watermark > self.log.high_watermark_checkpoint:
            await self.log.checkpoint_high_watermark(self.high_watermark)

    async def close(self, reason: str) -> None:
        """Answer everybody, wait for the sync and the changes in flight, close the log."""
        self._step(Closed(reason))
        if self._ticking is not None:
            self._ticking.cancel()
        await self._following.finish()
        while self._syncing is not None and not self._syncing.done():
            await self._syncing
        await self.cleaner.finish()
        try:
            await self.checkpoint()
        except DiskFullError as error:
            # It is a lower bound. The log itself needs no room to go to disk.
            _log.warning("%s: high watermark not checkpointed: %s", self.place, error)
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
            redundancy=self.replica.redundancy() if self.leads else None,
        )

    def write(self, size: int, append: Callable[[], Written]) -> Written:
        """Append batches of `size` bytes in all. Raises DiskFullError, ThrottledError, StorageFailedError."""
        self._disk.take(size)
        try:
            return append()
        except StorageFailedError as error:
            self._step(WriteFailed(str(error)))
            raise
        except DiskFullError:
            self._disk.ran_out()
            raise

    def _append(self, batches: list[RawBatch], epoch: LeaderEpoch) -> tuple[int, Written]:
        size, now_ms = sum(batch.nbytes for batch in batches), wall_ms()
        self.times.note(batches, now_ms)
        if self._takes_append_time:
            for batch in batches:
                batch.take_append_time(now_ms)
        written = self.write(size, lambda: self.log.append(batches, epoch, now_ms))
        self.counters.bytes_in.inc(size)
        self.counters.batches_in.inc(len(batches))
        self.counters.records_in.inc(written.last_offset - written.first_offset + 1)
        return size, written

    def _with_repeated(self, written: Written | None, repeated: Mapping[int, Remembered], count: int) -> Written:
        """Where each of `count` batches lies, those that were there before among them."""
        self.counters.batches_repeated.inc(len(repeated))
        new = zip(written.base_offsets, written.last_offsets, strict=True) if written is not None else iter(())
        known = {index: (batch.base_offset, batch.last_offset) for index, batch in repeated.items()}
        bases, lasts = zip(*(known[i] if i in known else next(new) for i in range(count)), strict=True)
        return Written(bases[0], lasts[-1], bases, lasts)

    def _expect(self, query: ProduceQuery, answered: Answered) -> Waiter:
        return self._waiting.expect(query.acks, monotonic_ms() + query.timeout_ms, answered)

    def _step(self, event: Event) -> None:
        """Raises DivergedLogError for what came from a leader; then nothing has changed."""
        for effect in self.replica.step(event, monotonic_ms()):
            self._carry_out(effect)
        if self.replica.waits and self._ticking is None:
            self._ticking = asyncio.get_running_loop().call_later(PARTITION_TICK_MS / 1000, self._tick)

    def _carry_out(self, effect: Effect) -> None:
        answer = self._waiting.answer
        match effect:
            case Sync():
                self._syncing = asyncio.create_task(self._sync(), name=f"sync {self.place}")
            case Acknowledge(waiters):
                answer(waiters, None)
            case RaiseHighWatermark():
                self._waiting.wake()
            case Lead() | Resign():
                _log.info("%s: %s", self.place, effect)
                self._waiting.wake()
            case Expire(waiters, reason):
                answer(waiters, RequestTimedOutError(f"{self.place}: {reason}; {_UNKNOWN}"))
            case Abandon(waiters, reason):
                answer(waiters, NotLeaderError(f"{self.place} is not led here any more: {reason}; {_UNKNOWN}"))
            case GiveUp(waiters, reason):
                answer(waiters, StorageFailedError(f"{self.place}: {reason}; {_UNKNOWN}"))
                self._disk.failed(self.place, reason)
            case _:
                self._following.carry_out(effect)

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

    def _tick(self) -> None:
        self._ticking = None
        self._step(Ticked())


def _settle(answer: asyncio.Future[None], error: HeadraceError | None) -> None:
    # Whoever waited may have gone away meanwhile: then the future is cancelled.
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
