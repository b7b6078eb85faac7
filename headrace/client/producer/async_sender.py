"""The asyncio producer's sending: every event that makes a batch due sends it, on its leader's session.

A task finds the leader of a partition that has no channel yet and opens one; where only other brokers lead to the
leader, it carries the batch as a request. An `AsyncProducer` owns one `AsyncSender`, on one event loop. No planning
task exists that could die: a new batch, an answer and a timer each call `plan`. All state changes happen between two
awaits, so nothing is locked. While records wait, a timer checks whether anything moves; every future and waiter is
told where nothing does, or where a task that sends or reads is cancelled (by the end of the loop, for example).

Senders of records learn the outcome by real `asyncio.Future`s (`AsyncDelivery`), made and finished on the loop. A sent
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
from headrace.client.producer.batches import Row, RowBatch
from headrace.client.producer.in_flight import InFlight, Outcome
from headrace.client.producer.send_errands import SendErrands
from headrace.client.producer.writer import ProducerOptions, as_raised, closed_error
from headrace.client.record import RecordMetadata
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.errands import Errand
from headrace.core.errors import HeadraceError, LocalError, StalledError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, LEADER_SEARCH_MS

T = TypeVar("T")
_log = logging.getLogger(__name__)


class AsyncDelivery(asyncio.Future[T]):
    """A future that knows whether anybody asked for it: `flush` raises the failures that nobody has looked at."""

    looked_at = False
    """Whether anybody has asked for the outcome, or waits for it."""
    has_callbacks = False
    """Always False here: the loop calls the callbacks, in its own time."""

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
        """Whether nobody sees a failure: nobody has looked, or the future was cancelled."""
        return self.cancelled() or not self.looked_at

    def set_exception(self, exception: Any, /) -> None:
        super().set_exception(exception)
        super().exception()  # `flush` reports failures that nobody has looked at, not asyncio at the future's end.


@dataclass(slots=True, eq=False)
class LoopRows(RowBatch):
    deliveries: list[AsyncDelivery[RecordMetadata]] = field(default_factory=list)
    """The future of each row."""
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


class AsyncSender(SendErrands[AsyncBrokers, LoopRows]):
    def __init__(self, brokers: AsyncBrokers, options: ProducerOptions) -> None:
        self.lock = brokers.new_guard()
        self.in_flight = InFlight(options, LoopRows, brokers.trouble, brokers.directory.newest)
        super().__init__(brokers, options)
        self.ended = False
        self.check_loop = brokers.check_loop
        self._tasks: set[asyncio.Task[None]] = set()
        self.room = asyncio.Lock()
        """The lock of the first task that waits for room: woken all at once, thousands would plan for each answer."""
        self._progress = asyncio.Event()
        """Set and cleared at once: tasks that wait look again."""
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
                with suppress(RuntimeError):  # A closed loop runs no callbacks.
                    batch.failed(error)

    # -- what the producer asks --------------------------------------------------------------------------------------

    async def wait_for_room(self, size_bytes: int) -> None:
        """Wait until `size_bytes` fit. Raises LocalError when closed, StalledError."""
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
        """Take nothing more, and wake the tasks that wait for room."""
        self.closed = True
        self._moved()

    async def end(self) -> None:
        """Give up the batches that are left, and end the connections. Safe to call again."""
        self.ended = True
        self._break(LocalError("this producer was closed before all was written: its close was cancelled"))
        for timer in (self._timer, self._watching):
            if timer is not None:
                timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._brokers.close()

    # -- planning ----------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Start the batches that are due, and set timers for those that are due later."""
        if self.broken is not None:
            return
        while (due := self.in_flight.due(now_ms())).send or due.expired:
            for batch in due.send:
                self._carry(batch)
            for batch, error in due.expired:
                self._give_up(batch, error)
        self._set_timers()

    def _start(self, errand: Errand[None], when_cancelled: Callable[[], object]) -> None:
        task = asyncio.get_running_loop().create_task(self._brokers.run(errand), name="headrace-produce")
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, when_cancelled))

    def _done(self, when_cancelled: Callable[[], object], task: asyncio.Task[None]) -> None:
        """Note that the task has ended. A task that is cancelled before it has begun reports nothing itself."""
        self._tasks.discard(task)
        if task.cancelled():
            when_cancelled()

    def _look_again(self) -> None:
        self.plan()

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

    def _break(self, error: HeadraceError) -> None:
        """Tell all futures and waiters that nothing moves any more, once."""
        lost = self.in_flight.accumulator.waiting_batches()
        if self.broken is not None or not lost:
            return
        self.broken, self.closed = error, True
        for batch in lost:
            batch.failed(error)
        _log.error("%s", error.message)
        self._moved()

    def _tell(self, outcomes: list[Outcome]) -> None:
        """Carry out the outcomes of batches on channels."""
        for outcome in outcomes:
            self._carry_out(outcome)
        self.plan()

    def _moved(self) -> None:
        self._progress.set()
        self._progress.clear()
