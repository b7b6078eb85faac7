"""The writers of one partition of the commits topic on this broker: how they are asked, and what is done for them.

The mechanism of a coordinator whose partition is led here is in `coordinator_shell`. Looks at stages, rolls forward and
cleans in tasks of its own, which end with its term. `PartitionAccess` reads, writes and cleans partitions that are led
here or by another broker, and holds nothing.

`RollForward` carries committed batches from the staging topic into their partitions, for as long as it takes. One task
for each writer's batch, several partitions at a time (`slots`, of all coordinators of this broker). Each share is
written in order, as one producer with sequences from 0 (`core.staging.writers`): records that were written before, by
this coordinator or one before it, are known again there, and the rest goes on from them. A share whose answer no retry
changes is dropped, and told: the topic was deleted and made anew, or the stages are gone.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter
from typing import Any, TypeAlias, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace.core.errors import (
    CorruptBatchError,
    HeadraceError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StaleTopicError,
)
from headrace.core.limits import PRODUCE_TIMEOUT_MS_DEFAULT, STAGING_LOOK_INTERVAL_MS
from headrace.core.log.epochs import Fence
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.raw import RawBatch, renumbered, stored_times
from headrace.core.records.time_rules import TimeRules
from headrace.core.staging.decisions import (
    Clean,
    Decision,
    Span,
    StagedBatch,
    StagedShare,
    WriterRecord,
    decode,
    encode,
)
from headrace.core.staging.writer_machine import (
    CommitAsked,
    Look,
    Roll,
    RolledForward,
    SpansSeen,
    StagingSeen,
    StateAsked,
    Status,
    WriterEvent,
    WriterMachine,
    WriterNotice,
)
from headrace.core.staging.writers import ProducerIdentity, WriterName, producer_of, staging_partitions
from headrace.core.types import Acks, Offset, PartitionId, TopicName, TopicUid
from headrace_broker.clock import wall_ms
from headrace_broker.cluster.locator import Elsewhere
from headrace_broker.coordinators.coordinator_log import EntryCodec
from headrace_broker.coordinators.coordinator_shell import CoordinatorShell
from headrace_broker.http.proxy import Proxy, delete_there, edge_there, fetch_there, produce_there
from headrace_broker.partition.fetch import find_offset
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import DeleteQuery, Edge, OffsetsQuery, Place, ProduceQuery

ROLL_BYTES = 4 << 20
"""The bytes of one request to a partition's leader, or of one batch, whatever its size."""
ROLL_RETRY_MS_MIN = 100
ROLL_RETRY_MS_MAX = 5_000
"""The longest pause after a write that failed: it is tried for as long as it takes, because it is committed."""
Locate = Callable[[Place, Fence], Partition | Elsewhere]
_log = logging.getLogger(__name__)
COMMITS_LOG = EntryCodec(encode, decode)
WriterShell: TypeAlias = CoordinatorShell[WriterRecord, WriterEvent, Status, WriterNotice]


class WriterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.writers = Gauge("headrace_broker_writers", "Writers that this broker decides for.", registry=registry)
        self._rolling = Gauge(
            "headrace_broker_writer_batches_rolling",
            "Committed batches that are on their way into their partitions.",
            registry=registry,
        )
        self._committed = Counter(
            "headrace_broker_writer_records_committed_total",
            "Records of staged commits that were carried into their partitions, or dropped with these.",
            registry=registry,
        )
        self._seconds = Histogram(
            "headrace_broker_writer_roll_seconds",
            "Time from the decision until a batch is in all of its partitions.",
            registry=registry,
        )

    @contextmanager
    def rolling(self, decision: Decision) -> Iterator[None]:
        started = perf_counter()
        with self._rolling.track_inprogress():
            yield
        self._seconds.observe(perf_counter() - started)
        self._committed.inc(sum(batch.record_count for batch in decision.staged()))


class PartitionAccess:
    """The access to partitions. Each call raises what the partition's leader says, and what `locate` raises."""

    def __init__(self, locate: Locate, proxy: Proxy) -> None:
        self._locate = locate
        self._proxy = proxy

    async def spans(
        self, topic: TopicName, uid: TopicUid, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, Span]:
        """Return what each of these holds that is committed."""
        numbers, fence = [*partitions], Fence(topic_uid=uid)
        spans = await asyncio.gather(*(self._span(Place(topic, number), fence) for number in numbers))
        return dict(zip(numbers, spans, strict=True))

    async def read(self, place: Place, uid: TopicUid, offset: Offset) -> memoryview:
        """Read whole batches, from the one that begins at `offset`."""
        fence = Fence(topic_uid=uid)
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            return await fetch_there(self._proxy, target, offset, 1, fence)
        buffers = await target.log.read(offset, max_bytes=1, up_to=target.high_watermark)
        return buffers[0] if buffers else memoryview(b"")

    async def produce(self, place: Place, uid: TopicUid, batches: Sequence[RawBatch]) -> None:
        """Write these, until all that must have them have acknowledged them, those that were there before included.

        They are committed: they are taken whatever bounds the topic sets by now.
        """
        fence = Fence(topic_uid=uid)
        query = ProduceQuery(Acks.ALL, PRODUCE_TIMEOUT_MS_DEFAULT, fence, is_committed=True)
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            body = [buffer for batch in batches for buffer in batch.buffers]
            await produce_there(self._proxy, target, query, body)
        else:
            await target.produce([*batches], query)

    async def delete_before(self, place: Place, uid: TopicUid, before: Offset) -> None:
        fence = Fence(topic_uid=uid)
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            await delete_there(self._proxy, target, before, fence)
        else:
            await target.delete_records(DeleteQuery(before, fence))

    async def _span(self, place: Place, fence: Fence) -> Span:
        return Span(await self._edge(place, Edge.EARLIEST, fence), await self._edge(place, Edge.LATEST, fence))

    async def _edge(self, place: Place, edge: Edge, fence: Fence) -> Offset:
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            return await edge_there(self._proxy, target, edge, fence)
        found = await find_offset(target, OffsetsQuery(edge, fence))
        assert found.offset is not None, "both ends are known, or an error is raised"
        return found.offset


class StagesLostError(Exception):
    """The stages of a committed batch cannot be read any more."""


class RollForward:
    def __init__(self, access: PartitionAccess, staging: TopicName, slots: asyncio.Semaphore) -> None:
        self._access = access
        self._staging = staging
        self._slots = slots

    async def roll(self, writer: WriterName, decision: Decision) -> tuple[str, ...]:
        """Carry all of it where it belongs. Return the partitions that were dropped, with reasons."""
        producer = producer_of(writer, decision.batch, decision.since_ms)
        shares = (self._give(writer, share, producer, decision.staging_uid) for share in decision.shares)
        return tuple(why for why in await asyncio.gather(*shares) if why)

    async def _give(
        self, writer: WriterName, share: StagedShare, producer: ProducerIdentity, staging_uid: TopicUid
    ) -> str:
        """Carry one share into its partition. Return why it was dropped; empty where it was not."""
        place = Place(TopicName(writer.namespace, share.topic), share.key.partition)
        sequences = [0, *accumulate(batch.record_count for batch in share.batches)]
        at, pause_ms = 0, ROLL_RETRY_MS_MIN
        while at < len(share.batches):
            try:
                async with self._slots:
                    batches = await self._read(share.batches[at:], sequences[at:], producer, staging_uid)
                    await self._access.produce(place, share.key.uid, batches)
            except StaleTopicError as error:
                return f"{place}: {error.message}"
            except StagesLostError as error:
                _log.error("%s: %d committed records are lost: %s", place, sequences[-1] - sequences[at], error)
                return f"{place}: {error}"
            except OutOfOrderSequenceError as error:
                at = self._resumed(place, error, sequences)
            except HeadraceError as error:
                _log.warning("%s: a committed batch of %s must wait: %s", place, writer, error.message)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, ROLL_RETRY_MS_MAX)
            else:
                at, pause_ms = at + len(batches), ROLL_RETRY_MS_MIN
        return ""

    def _resumed(self, place: Place, error: OutOfOrderSequenceError, sequences: Sequence[int]) -> int:
        """Return the batch to go on from: the last one that the partition has goes again, to be acknowledged."""
        expected = error.details.get("expectedSequence")
        assert isinstance(expected, int), "brokers say it"
        _log.info("%s: goes on from sequence %d", place, expected)
        return max(0, bisect_left(sequences, expected) - 1)

    async def _read(
        self, staged: Sequence[StagedBatch], sequences: Sequence[int], producer: ProducerIdentity, uid: TopicUid
    ) -> list[RawBatch]:
        """Read the next batches, as many as go into one request. Raise StagesLostError, and what reading raises."""
        batches: list[RawBatch] = []
        size = 0
        for batch, sequence in zip(staged, sequences, strict=False):
            if batches and size + batches[-1].nbytes > ROLL_BYTES:
                break
            batches.append(await self._read_one(batch, uid, ProducerNumbers(*producer, sequence)))
            size += batches[-1].nbytes
        return batches

    async def _read_one(self, batch: StagedBatch, uid: TopicUid, numbers: ProducerNumbers) -> RawBatch:
        place = Place(self._staging, batch.partition)
        try:
            return renumbered(await self._access.read(place, uid, batch.base_offset), numbers)
        except (StaleTopicError, OffsetOutOfRangeError, CorruptBatchError) as error:
            raise StagesLostError(f"its stages are gone: {error.message}") from error


class WriterCoordinator:
    def __init__(
        self,
        partition: Partition,
        access: PartitionAccess,
        staging: TopicName,
        roll_forward: RollForward,
        metrics: WriterMetrics,
        rules_of: Callable[[TopicUid], TimeRules | None],
    ) -> None:
        """`rules_of` gives what a topic says of the times of its records; None where it says nothing."""
        self.machine = WriterMachine()
        self.shell: WriterShell = CoordinatorShell(partition, self.machine, COMMITS_LOG, self)
        self._access = access
        self._staging = staging
        self._roll_forward = roll_forward
        self._metrics = metrics
        self._rules_of = rules_of
        self.staging_uid: TopicUid | None = None
        """The uid of the staging topic, as it was seen last."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of this term."""

    def ask(self, asked: CommitAsked | StateAsked) -> "asyncio.Future[Status]":
        """Return the answer to come. It raises what the request is refused with."""
        return self.shell.ask(asked.request, asked, f"writer {asked.writer}")

    # -- `NoticeHandler` -----------------------------------------------------------------------------------------------

    def began(self, took_s: float) -> None:
        self._start(self._keep_looking(), f"clean up after {self.shell.label}")

    def notice(self, notice: WriterNotice) -> None:
        match notice:
            case Look():
                self._start(self._look(notice), f"look at stages for {self.shell.label}")
            case Roll(writer):
                self._start(self._roll(notice), f"roll {writer} forward")
            case Clean():
                self._start(self._clean(notice), f"clean stages of {self.shell.label}")
            case _:
                assert_never(notice)

    def answered(self, request: int, reply: Status) -> None:
        """Do nothing else about it."""

    def ended(self) -> None:
        for task in self._tasks:
            task.cancel()

    # -- tasks, which end with the term --------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %r", task.get_name(), error, exc_info=error)
            self.shell.fail(f"it failed to {task.get_name()}")

    async def _look(self, order: Look) -> None:
        seen: dict[PartitionId, Span] | HeadraceError
        try:
            seen = await self._access.spans(self._staging, order.decision.staging_uid, order.partitions)
            for share in order.decision.shares:
                await self._check_times(share, order.decision.staging_uid)
        except HeadraceError as error:
            seen = error
        self.shell.step(SpansSeen(order.request, seen))

    async def _check_times(self, share: StagedShare, staging_uid: TopicUid) -> None:
        """Check the times of staged records before the decision: what is decided is written, whatever its topic takes.
        Raise InvalidTimestampError."""
        rules, first = self._rules_of(share.key.uid), 0
        if rules is None or not rules.has_bounds:
            return
        label = f"{share.topic}/{share.key.partition}"
        for number, batch in enumerate(share.batches):
            try:
                stored = await self._access.read(Place(self._staging, batch.partition), staging_uid, batch.base_offset)
                if stored:
                    rules.check_times(stored_times(stored), wall_ms(), label, batch=number, first=first)
            except OffsetOutOfRangeError:
                return  # The spans show that it is not there.
            first += batch.record_count

    async def _roll(self, order: Roll) -> None:
        with self._metrics.rolling(order.decision):
            dropped = await self._roll_forward.roll(order.writer, order.decision)
        for why in dropped:
            _log.error("batch %d of %s: %s", order.decision.batch, order.writer, why)
        self.shell.step(RolledForward(order.writer, order.decision.batch, dropped))

    async def _clean(self, order: Clean) -> None:
        if self.staging_uid is not None:
            try:
                await self._access.delete_before(Place(self._staging, order.partition), self.staging_uid, order.before)
            except HeadraceError as error:
                _log.info("staging partition %d is cleaned later: %s", order.partition, error.message)

    async def _keep_looking(self) -> None:
        """Look now and then what can be deleted, until the term is over."""
        mine = staging_partitions(self.shell.partition.place.partition)
        while True:
            await asyncio.sleep(STAGING_LOOK_INTERVAL_MS / 1000)
            if self.staging_uid is not None:
                await self._see(map(PartitionId, mine), self.staging_uid)

    async def _see(self, partitions: Iterable[PartitionId], uid: TopicUid) -> None:
        try:
            spans = await self._access.spans(self._staging, uid, partitions)
        except HeadraceError as error:
            _log.debug("%s: its stages cannot be looked at: %s", self.shell.label, error)
        else:
            self.shell.step(StagingSeen(spans))
