"""The asyncio consumer's reading ahead: the face of `fetch_errands` for an event loop, with a task for each errand.

An `AsyncConsumer` owns one, from its start to its end. `next_batch` may be cancelled at any time: what has arrived,
and what is on its way, is there for the next call.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Cursor
from headrace.client.consumer.fetch_errands import FetchErrands
from headrace.client.consumer.read_ahead import Arrival, ReadAhead
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.errands import Errand
from headrace.core.records.columns import DecodedBatch


class AsyncBetween:
    """The checks of a reader between batches; a reader without a group has none."""

    async def follow(self) -> None:
        """Follow the group: partitions may come and go here."""

    async def is_settled(self) -> bool:
        """Return whether no more partitions will come."""
        return True


class AsyncFetcher(FetchErrands[AsyncBrokers]):
    def __init__(self, brokers: AsyncBrokers, reading: ReadAhead) -> None:
        super().__init__(brokers, reading)
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived: deque[Arrival] = deque()
        self._news = asyncio.Event()
        self._batches: Iterator[tuple[Cursor, DecodedBatch]] = iter(())
        """The rest of the answer that is being handed out."""
        self.is_asked = False
        """The user waits for the next batch."""

    async def close(self) -> None:
        self._news.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def settle(self) -> None:
        """Begin another reading: a batch that was left half-read is fetched again."""
        self.reading.settle()
        self._batches = iter(())

    async def next_batch(self, between: AsyncBetween) -> tuple[Cursor, DecodedBatch] | None:
        """Return the next batch of any partition, cut to what is wanted; None when the plan is done, or reading stops.

        Raises the error of a partition that cannot be read, and StalledError; the next call goes on where this one
        stopped.
        """
        self.reading.handed.came_back()
        self.reading.handed.is_waited_for = self.is_asked = True
        try:
            return await self._next_batch(between)
        finally:
            self.reading.handed.is_waited_for = self.is_asked = False

    async def _next_batch(self, between: AsyncBetween) -> tuple[Cursor, DecodedBatch] | None:
        while True:
            await between.follow()
            if self.reading.handed.stops:
                return None
            found = next(self._batches, None)
            if found is not None:
                return found
            self._ask()
            self._take_arrived()
            if self.reading.open():
                self._ask()
                self._batches = self.reading.read()
                await asyncio.sleep(0)  # Other tasks get the loop, however much there is to read.
            elif self.reading.plan.done and await between.is_settled():
                return None
            else:
                await self._wait()

    def wake(self) -> None:
        """Wake the task that waits for records: it looks around."""
        self._news.set()

    def _start(self, errand: Errand[None], when_cancelled: Callable[[], object]) -> None:
        task = asyncio.get_running_loop().create_task(self._brokers.run(errand), name="headrace-fetch")
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, when_cancelled))

    def _done(self, when_cancelled: Callable[[], object], task: asyncio.Task[None]) -> None:
        """Note that the task has ended. A task that is cancelled before it has begun reports nothing itself."""
        self._tasks.discard(task)
        if task.cancelled():
            when_cancelled()

    def _arrive(self, arrival: Arrival) -> None:
        self._arrived.append(arrival)
        self._news.set()

    def _take_arrived(self) -> None:
        self._news.clear()
        if (
            not self._arrived
        ):  # Before anybody is told that there is no answer; whoever waits may be cancelled each time.
            self._look_at_sessions()
        while self._arrived:
            self.reading.take(self._arrived.popleft(), now_ms())
        self.reading.check(now_ms())

    async def _wait(self) -> None:
        """Wait for an arrival, or for the time to look at the plan again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.reading.patience_s(now_ms())):
                await self._news.wait()
