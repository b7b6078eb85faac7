"""The asyncio producer's sending: every event that makes a batch due sends it, on its leader's session.

A task finds the leader of a partition that has no channel yet and opens one; where only other brokers lead to the
leader, it carries the batch as a request. An `AsyncProducer` owns one `AsyncSender`, on one event loop. No planning
task exists that could die: a new batch, an answer and a timer each call `plan`. All state changes happen between two
awaits, so nothing is locked. While records wait, a timer checks whether anything moves; every future and waiter is
told where nothing does, or where somebody (the end of the loop, for example) cancels a task that sends or reads.

Senders of records hear of them by real `asyncio.Future`s (`AsyncDelivery`), made and finished on the loop. A sent
record cannot be called back: cancelling its future, or the task that awaits it, ends the waiting alone, and `flush`
raises if the record fails.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from typing import Any, Self, TypeVar

from headrace.client.clock import now_ms
from headrace.client.producer.batches import Batch, Row, RowBatch
from headrace.client.producer.in_flight import (
    Again,
    Arrived,
    InFlight,
    Outcome,
    ProduceChannel,
    ProduceSession,
    Refused,
)
from headrace.client.producer.writer import ProducerOptions, as_raised, closed_error, unsendable
from headrace.client.record import RecordMetadata, TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.async_brokers import AsyncBrokers, AsyncSessions
from headrace.client.transport.calls import Buffers
from headrace.core.errors import HeadraceError, LocalError, StalledError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, LEADER_SEARCH_MS, PRODUCER_REQUESTS_MAX
from headrace.http2.async_transport import AsyncStream

T = TypeVar("T")


class AsyncDelivery(asyncio.Future[T]):
    """A future that knows whether anybody asked for it: `flush` raises the failures that nobody has looked at."""

    looked_at = False
    """Somebody has asked, or waits."""
    has_callbacks = False
    """The loop calls them, in its own time."""

    def __await__(self) -> Generator[Any, None, T]:
        self.looked_at = True
        return super().__await__()

    def result(self) -> T:
        self.looked_at = True
        return super().result()

    def exception(self) -> BaseException | None:
        self.looked_at = True
        return super().exception()

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        self.looked_at = True
        super().add_done_callback(fn, context=context)

    @property
    def is_overlooked(self) -> bool:
        """Whoever cancelled it will not see a failure either."""
        return self.cancelled() or not self.looked_at

    def set_exception(self, exception: Any, /) -> None:
        super().set_exception(exception)
        super().exception()  # Not asyncio, at the future's end, but `flush` reports what nobody has looked at.


@dataclass(slots=True, eq=False)
class LoopRows(RowBatch):
    deliveries: list[AsyncDelivery[RecordMetadata]] = field(default_factory=list)
    """Of each row."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def add(self, row: Row) -> AsyncDelivery[RecordMetadata]:
        delivery: AsyncDelivery[RecordMetadata] = AsyncDelivery(loop=self.loop)
        self.append(row)
        self.deliveries.append(delivery)
        return delivery

    def delivered(self, base_offset: int) -> None:
        topic, partition = self.partition
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        written = map(RecordMetadata, repeat(topic, self.record_count), repeat(partition), offsets)
        for delivery, metadata in zip(self.deliveries, written, strict=True):
            if not delivery.done():
                delivery.set_result(metadata)

    def failed(self, error: HeadraceError) -> None:
        for delivery in self.deliveries:
            if not delivery.done():
                delivery.set_exception(error)

    def overlooked(self) -> int:
        return sum(delivery.is_overlooked for delivery in self.deliveries)


class AsyncProduceSessions(AsyncSessions[ProduceSession]):
    def __init__(
        self,
        brokers: AsyncBrokers,
        acks: str,
        tell: Callable[[list[Outcome]], None],
        stopped: Callable[[str], None],
    ) -> None:
        """`stopped` hears, in a sentence, that somebody from outside has ended the reading of answers."""
        super().__init__(brokers, ProduceSession)
        self._acks, self._tell, self._stopped = acks, tell, stopped
        self._channels: dict[TopicPartition, tuple[ProduceSession, ProduceChannel, AsyncStream]] = {}

    def has_channel(self, partition: TopicPartition) -> bool:
        session, channel, _ = self._channels.get(partition, (None, None, None))
        return session is not None and channel is not None and session.is_open(channel)

    def produce(self, batch: Batch, encoded: Buffers) -> None:
        """Send it on the channel of its partition, which `has_channel`."""
        _, channel, stream = self._channels[batch.partition]
        stream.send(*channel.produce(batch, encoded))

    async def open(self, batch: Batch, encoded: Buffers) -> bool:
        """Send it as the first of a new channel; may connect. False: only requests lead to its partition just now."""
        partition = batch.partition
        layout = await self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        session, stream = await self._session(url)
        timeout_ms = self._brokers.request_timeout_ms
        terms = calls.produce_terms(self._brokers.namespace, layout, partition.partition, self._acks, timeout_ms)
        channel, opening = session.open(partition, terms)
        self._channels[partition] = (session, channel, stream)
        stream.send(opening, *channel.produce(batch, encoded))
        return True

    def end_overdue(self) -> None:
        """Give up the sessions in which an answer is missing for longer than its time limit."""
        limit_ms = self._brokers.request_timeout_ms + calls.ANSWER_SLACK_MS
        for session, stream in list(self._streams.values()):
            oldest_ms = session.oldest_ms()
            if oldest_ms is not None and now_ms() - oldest_ms > limit_ms:
                self._end(session, calls.overdue_error(session.url, limit_ms))
                stream.cancel()

    def _hear(self, session: ProduceSession, news: list[Outcome]) -> None:
        if news:
            self._tell(news)

    def _cancelled(self, session: ProduceSession) -> None:
        self._stopped(f"a task that reads the answers of {session.url} was cancelled")


_log = logging.getLogger(__name__)


class AsyncSender:
    def __init__(self, brokers: AsyncBrokers, options: ProducerOptions) -> None:
        self.closed = False
        """Nothing more is taken."""
        self.broken: HeadraceError | None = None
        """Nothing moves any more."""
        self.ended = False
        self.in_flight: InFlight[LoopRows] = InFlight(options, LoopRows, brokers.trouble, brokers.directory.newest)
        self.check_loop = brokers.check_loop
        self._brokers, self._options = brokers, options
        self._sessions = AsyncProduceSessions(brokers, options.acks, self._tell, self._cancelled)
        self._turns = asyncio.Semaphore(PRODUCER_REQUESTS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        """Topics whose metadata is asked for."""
        self.room = asyncio.Lock()
        """Held by the first of those who wait for room: woken all at once, thousands would plan for each answer."""
        self._progress = asyncio.Event()
        """Set and cleared at once: whoever waits looks again."""
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None

    def __del__(self) -> None:
        lost = [] if self.broken is not None else self.in_flight.accumulator.waiting_batches()
        if lost:
            _log.error(
                "an AsyncProducer was never closed, and its event loop has ended: %d records were not acknowledged,"
                " for %s; use it in `async with`, or await its close()",
                sum(batch.record_count for batch in lost),
                ", ".join(sorted({str(batch.partition) for batch in lost})),
            )
            error = LocalError(
                "this producer was never closed, and its event loop has ended: nobody waits for an answer"
            )
            for batch in lost:
                with suppress(RuntimeError):  # A loop that is closed calls nobody back.
                    batch.failed(error)

    # -- what the producer asks --------------------------------------------------------------------------------------

    async def wait_for_room(self, size_bytes: int) -> None:
        """Until `size_bytes` fit. Raises LocalError when closed, StalledError."""
        async with self.room:
            while not self.closed and not self.in_flight.has_room(size_bytes):
                self.in_flight.accumulator.close_batches()
                self.plan()
                if not self.in_flight.has_room(size_bytes):
                    await self._progress.wait()
        if self.closed:
            raise closed_error() if self.broken is None else as_raised(self.broken)

    async def flush(self) -> None:
        """Wait until everything that is queued now has arrived or failed. Raises StalledError."""
        accumulator = self.in_flight.accumulator
        waiting = set(map(id, accumulator.waiting_batches()))
        accumulator.close_batches()
        self.plan()
        while self.broken is None and not waiting.isdisjoint(map(id, accumulator.waiting_batches())):
            await self._progress.wait()
        if self.broken is not None:
            raise as_raised(self.broken)
        self.in_flight.time_warnings.sum_up()

    def refuse(self) -> None:
        """Take nothing more, and tell those who wait for room."""
        self.closed = True
        self._moved()

    async def end(self) -> None:
        """Give up what is left, and end the connections. Safe to call again."""
        self.ended = True
        self._break(LocalError("this producer was closed before all was written: its close was cancelled"))
        for timer in (self._timer, self._watching):
            if timer is not None:
                timer.cancel()
        tasks = [*self._tasks, *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, self._sessions.close(), return_exceptions=True)
        finally:
            await self._brokers.close()

    # -- planning ----------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Start what is due, and see to it that what is due later is started then."""
        if self.broken is not None:
            return
        while (due := self.in_flight.due(now_ms())).send or due.expired:
            for batch in due.send:
                self._carry(batch)
            for batch, error in due.expired:
                self._give_up(batch, error)
        self._set_timers()

    def _carry(self, batch: Batch) -> None:
        """On the channel of its partition, or by a task where there is none."""
        if self._sessions.has_channel(batch.partition):
            self._maybe_refresh(batch.partition.topic)
            encoded = self._encoded(batch)
            if encoded is not None:
                self._sessions.produce(batch, encoded)
            return
        if not self.in_flight.accumulator.may_go(batch):  # The channel is over: what went before goes first.
            self.in_flight.put_back(Again([batch]))
            return
        task = asyncio.get_running_loop().create_task(self._attempt(batch), name="headrace-produce")
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, batch.partition))

    def _maybe_refresh(self, topic: str) -> None:
        """Channels go on without metadata; but there may be more partitions by now."""
        if topic not in self._refreshing and self._brokers.directory.fresh(topic, now_ms()) is None:
            task = asyncio.get_running_loop().create_task(self._refresh(topic), name="headrace-metadata")
            self._refreshing[topic] = task
            task.add_done_callback(lambda _: self._refreshing.pop(topic, None))

    async def _refresh(self, topic: str) -> None:
        with suppress(HeadraceError):  # The next batch asks again.
            await self._brokers.layout_once(topic)

    def _done(self, partition: TopicPartition, task: asyncio.Task[None]) -> None:
        """A task may be cancelled before it has begun: it says nothing then."""
        self._tasks.discard(task)
        if task.cancelled():
            self._cancelled(f"a task that sends to {partition} was cancelled")

    def _cancelled(self, what: str) -> None:
        self._break(StalledError(f"{what}: make a new AsyncProducer"))

    def _set_timers(self) -> None:
        loop, next_due_ms = asyncio.get_running_loop(), self.in_flight.accumulator.next_due_ms()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_due_ms is not None:
            self._timer = loop.call_later(max(0, next_due_ms - now_ms()) / 1000, self.plan)
        if self._watching is None and self.in_flight.accumulator.buffered_bytes:
            self._watching = loop.call_later(CLIENT_STALL_CHECK_MS / 1000, self._watch)

    def _watch(self) -> None:
        self._watching = None
        self._sessions.end_overdue()
        is_searching = self._look_elsewhere()
        stalled = self.in_flight.stalled(now_ms())
        if stalled is not None:
            self._break(stalled)
        elif self.in_flight.accumulator.buffered_bytes:
            interval_ms = LEADER_SEARCH_MS if is_searching else CLIENT_STALL_CHECK_MS
            self._watching = asyncio.get_running_loop().call_later(interval_ms / 1000, self._watch)

    def _look_elsewhere(self) -> bool:
        """Where a leader is silent, ask who leads by now, and go there. Whether one is."""
        silent = self._sessions.look_elsewhere()
        for topic in silent - self._refreshing.keys():
            task = asyncio.get_running_loop().create_task(self._search(topic), name="headrace-metadata")
            self._refreshing[topic] = task
            task.add_done_callback(partial(self._searched, topic))
        return bool(silent)

    async def _search(self, topic: str) -> None:
        with suppress(HeadraceError):  # The next look asks again.
            await self._brokers.ask_who_leads(topic)
            self._sessions.look_elsewhere()

    def _searched(self, topic: str, task: asyncio.Task[None]) -> None:
        self._refreshing.pop(topic, None)

    def _break(self, error: HeadraceError) -> None:
        """Tell everybody that nothing moves any more, once."""
        lost = self.in_flight.accumulator.waiting_batches()
        if self.broken is not None or not lost:
            return
        self.broken, self.closed = error, True
        for batch in lost:
            batch.failed(error)
        _log.error("%s", error.message)
        self._moved()

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _attempt(self, batch: Batch) -> None:
        encoded = self._encoded(batch)
        if encoded is None:
            return
        try:
            async with self._turns:
                if await self._sessions.open(batch, encoded):
                    self.in_flight.pipeline(batch.partition)
                else:
                    base_offset = await self._brokers.produce_once(batch.partition, encoded, self._options.acks)
                    self._carry_out(Arrived(batch, base_offset))
        except HeadraceError as error:
            self._carry_out(Refused.request(batch, error))
        except Exception as error:
            self._give_up(batch, unsendable(batch, error))
        self.plan()

    def _encoded(self, batch: Batch) -> Buffers | None:
        """None: it cannot be, and was given up."""
        try:
            return self.in_flight.encoded(batch)
        except HeadraceError as error:
            self._give_up(batch, error)
        return None

    def _tell(self, outcomes: list[Outcome]) -> None:
        """What has come of batches on channels."""
        for outcome in outcomes:
            self._carry_out(outcome)
        self.plan()

    def _carry_out(self, outcome: Outcome) -> None:
        verdict = self.in_flight.judge(outcome, now_ms())
        if verdict.forget is not None:
            self._brokers.directory.forget(verdict.forget)
        if verdict.again is not None:
            self.in_flight.put_back(verdict.again)
        if verdict.failed is not None:
            self._give_up(*verdict.failed)
        if verdict.delivered is not None:
            self._arrived(*verdict.delivered)

    def _arrived(self, batch: Batch, base_offset: int) -> None:
        if self.broken is None:
            batch.delivered(base_offset)
            self.in_flight.arrived(batch)
            self._moved()

    def _give_up(self, batch: Batch, error: HeadraceError) -> None:
        if self.broken is None:
            batch.failed(error)
            self.in_flight.given_up(batch, error)
            self._moved()

    def _moved(self) -> None:
        self._progress.set()
        self._progress.clear()
