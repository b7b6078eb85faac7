"""One partition that is open on this broker: its log, and its shell on an event loop.

Owned by `Holdings` from the moment its log is recovered until it is closed; all methods run on the event loop. The
core decides (`Replica.step`) and `PartitionShell` carries out, without an event loop. This module is its face for
those who can wait: it looks at what is to be appended, turns answers into futures, and closes the log. What takes time
is in `log_tasks`, and everything that makes the log smaller in `cleaning`.

`Host` is what all partitions of one broker share. A failed sync or write is reported to the disk, and nothing is
acknowledged after it. After `close` nothing is read or written.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from headrace.core.errors import DiskFullError, HeadraceError
from headrace.core.log.compaction import CompactionRules, check_keys
from headrace.core.log.retention import Retention, log_start_after
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import RawBatch
from headrace.core.replication.isr import InSyncRules, PendingIsr
from headrace.core.replication.leadership import Contact
from headrace.core.replication.producers import Remembered
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TimestampType, TopicSpec
from headrace.core.types import LeaderEpoch, Offset, PartitionKey
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.metrics import Metrics, PartitionGauges
from headrace_broker.partition.cleaning import Cleaner
from headrace_broker.partition.log_tasks import LogTasks
from headrace_broker.partition.queries import DeleteQuery, Edge, Place, ProduceQuery
from headrace_broker.partition.record_checks import TimeWatch
from headrace_broker.partition.shell import Answered, PartitionShell, Ports, StreamsPort, Waiters, Wake
from headrace_broker.replication.recent_batches import RecentBatches
from headrace_broker.storage.log_appender import AppendedBatches as Written
from headrace_broker.storage.partition_log import PartitionLog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """The broker, as its partitions see it."""

    metrics: Metrics
    disk: BrokerDisk
    streams: StreamsPort
    contact: Callable[[], Contact]
    """The time, and when the Lease was last renewed."""
    recent: RecentBatches = field(default_factory=RecentBatches)


@dataclass(frozen=True, slots=True)
class LoopClock:
    """The `ClockPort` on an event loop."""

    contact: Callable[[], Contact]

    def now_ms(self) -> int:
        return monotonic_ms()

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1000, call)


class Partition:
    def __init__(self, key: PartitionKey, place: Place, log: PartitionLog, replica: Replica, host: Host) -> None:
        self.key = key
        self.place = place
        self.log = log
        self.replica = replica
        self.counters = host.metrics.counters(place.topic, place.partition)
        self._contact = host.contact
        self.recent = host.recent
        """The batches that were appended or read just now, for followers."""
        self._takes_append_time = False
        self.times = TimeWatch(place, self.counters)
        self._waiters = Waiters()
        self.cleaner = Cleaner(place, log, replica, host.metrics, host.disk, self._waiters.wake_replicas)
        self._tasks = LogTasks(place, log, self.cleaner, host.disk, host.metrics.fsync_seconds)
        ports = Ports(self._tasks, host.streams, LoopClock(host.contact), self._waiters)
        self.shell = PartitionShell(key, place, replica, ports)
        self.compaction_rules: CompactionRules | None = None
        """None where the topic is not compacted."""
        self.is_draining = False
        """Long polls end with what there is."""

    @property
    def leads(self) -> bool:
        return self.replica.leads

    @property
    def high_watermark(self) -> Offset:
        return self.replica.high_watermark

    @property
    def contact(self) -> Contact:
        """The time, and when the Lease was last renewed."""
        return self._contact()

    def apply(self, state: PartitionState) -> None:
        """The PartitionSet says so."""
        self.shell.apply(state)

    def isr_proposed(self, pending: PendingIsr | None) -> None:
        """These writes may land from now on: told before the PUT is sent. None: nothing is on its way any more."""
        self.shell.isr_proposed(pending)

    def configure(self, spec: TopicSpec) -> None:
        """The Topic says so."""
        self._takes_append_time = spec.timestamp_type is TimestampType.LOG_APPEND_TIME
        self.times.configure(spec)
        self.cleaner.configure(Retention.of_topic(spec))
        self.compaction_rules = CompactionRules.of_topic(spec)
        config = LogConfig.of_topic(spec)
        if config != self.log.config:
            self.log.config = config
        self.shell.configure(InSyncRules.of_topic(spec))

    async def produce(self, batches: list[RawBatch], query: ProduceQuery) -> tuple[Written, LeaderEpoch]:
        """Append and wait for as many acknowledgements as asked for.

        Raises what `append` raises, and what it answers.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        appended = self.append(batches, query, partial(_settle, answer))
        await answer
        return appended

    def append(self, batches: list[RawBatch], query: ProduceQuery, answered: Answered) -> tuple[Written, LeaderEpoch]:
        """Append now, and have it answered once, as `PartitionShell.append` says.

        Raises what that raises, InvalidRequestError for records without a key where the topic is compacted,
        InvalidTimestampError, OutOfOrderSequenceError, FencedProducerError, DiskFullError, StorageFailedError; then
        nothing is answered. A batch that its producer repeats is not appended: it has the place that it has.
        """

        def write(epoch: LeaderEpoch) -> tuple[Written, int, Offset]:
            return self._write(batches, query, epoch)

        return self.shell.append(query, write, answered)

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
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake = partial(_settle, woken, None)
        self.follow(wake)
        try:
            async with asyncio.timeout(timeout_s):
                await woken
        except TimeoutError:
            pass
        finally:
            self.unfollow(wake)

    def follow(self, wake: Wake) -> None:
        """Have `wake` called whenever there may be something new to say to a client, until `unfollow`."""
        self.shell.follow(wake)

    def unfollow(self, wake: Wake) -> None:
        self.shell.unfollow(wake)

    def drain(self) -> None:
        self.is_draining = True
        self._waiters.wake()

    async def checkpoint(self) -> None:
        """Remember the high watermark on disk. Raises DiskFullError, StorageFailedError."""
        high_watermark = self.replica.vouched_high_watermark
        if high_watermark > self.log.high_watermark_checkpoint:
            await self.log.checkpoint_high_watermark(high_watermark)

    async def close(self, reason: str) -> None:
        """Answer everybody, wait for the syncs and the changes in flight, close the log."""
        self.shell.close(reason)
        await self._tasks.finish()
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

    def _write(self, batches: list[RawBatch], query: ProduceQuery, epoch: LeaderEpoch) -> tuple[Written, int, Offset]:
        """Append those that are not repeated. Returns where all lie, the bytes appended, and where all of it ends."""
        if self.compaction_rules is not None:
            check_keys(batches, str(self.place))
        repeated = self.log.producers.repeated([batch.header for batch in batches], self.log.log_end_offset)
        if not query.is_committed:
            self.times.check(batches, wall_ms(), repeated)
        new = [batch for i, batch in enumerate(batches) if i not in repeated] if repeated else batches
        size, written = self._append(new, epoch) if new else (0, None)
        for batch in batches:  # What waits, or is kept for followers, needs them no more.
            batch.times = None
        if written is None or repeated:
            end = Offset(1 + max(each.last_offset for each in repeated.values()))
            return self._with_repeated(written, repeated, len(batches)), size, end
        return written, size, self.log.log_end_offset

    def _append(self, batches: list[RawBatch], epoch: LeaderEpoch) -> tuple[int, Written]:
        size, now_ms = sum(batch.nbytes for batch in batches), wall_ms()
        self.times.note(batches, now_ms)
        if self._takes_append_time:
            for batch in batches:
                batch.take_append_time(now_ms)
        written = self._tasks.append(size, lambda: self.log.append(batches, epoch, now_ms))
        self.counters.bytes_in.inc(size)
        self.counters.batches_in.inc(len(batches))
        self.counters.records_in.inc(written.last_offset - written.first_offset + 1)
        if self._waiters.has_replicas:
            self.recent.appended(self.key, batches)
        return size, written

    def _with_repeated(self, written: Written | None, repeated: Mapping[int, Remembered], count: int) -> Written:
        """Return where each of `count` batches lies, those that were there before among them."""
        self.counters.batches_repeated.inc(len(repeated))
        new = zip(written.base_offsets, written.last_offsets, strict=True) if written is not None else iter(())
        known = {index: (batch.base_offset, batch.last_offset) for index, batch in repeated.items()}
        bases, lasts = zip(*(known[i] if i in known else next(new) for i in range(count)), strict=True)
        return Written(bases[0], lasts[-1], bases, lasts)


def _settle(answer: asyncio.Future[None], error: HeadraceError | None) -> None:
    # Whoever waited may have gone away meanwhile: then the future is cancelled.
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
