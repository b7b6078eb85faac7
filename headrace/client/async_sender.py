"""The asyncio producer's sending: whatever makes a batch due sends it, on the session with its leader.

A task finds the leader of a partition that has no channel yet and opens one; where only other brokers lead to the
leader, it carries the batch as a request. One `AsyncSender` per `AsyncProducer`, on one event loop. There is no
planning task that could die: a new batch, an answer and a timer each call `plan`. All state changes happen between two
awaits, so nothing is locked. While records wait, a timer looks whether anything moves, and every future and waiter is
told where nothing does, or where somebody (the end of the loop, for example) cancels a task that sends or reads.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from headrace.client.async_brokers import AsyncBrokers
from headrace.client.async_deliveries import LoopRows
from headrace.client.async_produce_sessions import AsyncProduceSessions
from headrace.client.batches import Batch
from headrace.client.calls import Buffers
from headrace.client.clock import now_ms
from headrace.client.in_flight import Again, InFlight
from headrace.client.produce_session import Arrived, Outcome, Refused
from headrace.client.record import TopicPartition
from headrace.client.write_options import WriteOptions
from headrace.client.writer import as_raised, closed_error, unsendable
from headrace.core.errors import HeadraceError, LocalError, StalledError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, LEADER_SEARCH_MS, PRODUCER_REQUESTS_MAX

_log = logging.getLogger(__name__)


class AsyncSender:
    def __init__(self, brokers: AsyncBrokers, options: WriteOptions) -> None:
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
