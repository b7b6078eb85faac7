"""Reads ahead for an asyncio consumer: what `fetcher` is for threads, with tasks where that has workers.

Owned by one `AsyncConsumer`, from its start to its end. `next_batch` may be cancelled at any time: what has arrived,
and what is on its way, is there for the next call.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.client.async_brokers import AsyncBrokers
from headrace.client.async_fetch_sessions import AsyncFetchSessions
from headrace.client.clock import now_ms
from headrace.client.cursor import Ask, Cursor
from headrace.client.fetcher import as_reading_error
from headrace.client.read_ahead import Added, Answered, Arrival, ReadAhead
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.limits import CONSUMER_REQUESTS_MAX, LEADER_SEARCH_MS
from headrace.core.records.columns import DecodedBatch


class AsyncBetween:
    """What a reader looks at between batches; one that is alone has nothing to look at."""

    async def follow(self) -> None:
        """Partitions may come and go in this."""

    async def is_settled(self) -> bool:
        """Whether no more are to come."""
        return True


ALONE = AsyncBetween()


class AsyncFetcher:
    def __init__(self, brokers: AsyncBrokers, reading: ReadAhead) -> None:
        self._brokers, self._reading = brokers, reading
        self._turns = asyncio.Semaphore(CONSUMER_REQUESTS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived: deque[Arrival] = deque()
        self._news = asyncio.Event()
        self._batches: Iterator[tuple[Cursor, DecodedBatch]] = iter(())
        """The rest of the answer that is being handed out."""
        self.is_asked = False
        """Its user waits for the next batch."""
        self._searching: dict[str, asyncio.Task[None]] = {}
        """Topics whose leaders are asked for."""
        self._searched_ms = 0
        self._sessions = AsyncFetchSessions(brokers, self._arrive)

    async def close(self) -> None:
        self._news.set()
        tasks = [*self._tasks, *self._searching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._sessions.close(), return_exceptions=True)

    def settle(self) -> None:
        """Another reading begins: what was left half-read is fetched again."""
        self._reading.settle()
        self._batches = iter(())

    def drop(self, partition: TopicPartition) -> None:
        """It is not read any more: nothing of it is handed out from now on. The others go on."""
        self._reading.drop(partition)
        self._sessions.drop(partition)

    async def next_batch(self, between: AsyncBetween = ALONE) -> tuple[Cursor, DecodedBatch] | None:
        """Of any partition, cut to what is wanted; None when the plan is done, or reading stops.

        Raises the error of a partition that cannot be read, and StalledError; the next call goes on where this one
        stopped.
        """
        self._reading.handed.came_back()
        self._reading.handed.is_waited_for = self.is_asked = True
        try:
            return await self._next_batch(between)
        finally:
            self._reading.handed.is_waited_for = self.is_asked = False

    async def _next_batch(self, between: AsyncBetween) -> tuple[Cursor, DecodedBatch] | None:
        while True:
            await between.follow()
            if self._reading.handed.stops:
                return None
            found = next(self._batches, None)
            if found is not None:
                return found
            self._start_due()
            self._take_arrived()
            if self._reading.open():
                self._start_due()
                self._batches = self._reading.read()
                await asyncio.sleep(0)  # Others get the loop, however much is there to be read.
            elif self._reading.plan.done and await between.is_settled():
                return None
            else:
                await self._wait()

    def wake(self) -> None:
        """Whoever waits for records looks around."""
        self._news.set()

    def _start_due(self) -> None:
        for ask in self._reading.plan.due(now_ms()):
            partition = ask.cursor.partition
            # Old metadata is read again even while all goes well: there may be more partitions.
            is_known = self._brokers.directory.fresh(partition.topic, now_ms()) is not None
            if not (is_known and self._sessions.ask(ask)):
                self._start(self._fetch(ask), Answered(ask, _cancelled(partition)))
        for partition in self._reading.added():
            self._start(self._find_beginning(partition), Added(partition, _cancelled(partition)))

    def _start(self, work: Coroutine[Any, Any, None], when_cancelled: Arrival) -> None:
        task = asyncio.get_running_loop().create_task(work, name="headrace-fetch")
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, when_cancelled))

    def _done(self, when_cancelled: Arrival, task: asyncio.Task[None]) -> None:
        """A task may be cancelled before it has begun: it says nothing then."""
        self._tasks.discard(task)
        if task.cancelled():
            self._arrive(when_cancelled)

    async def _fetch(self, ask: Ask) -> None:
        partition, reading = ask.cursor.partition, self._reading
        try:
            async with self._turns:
                if await self._sessions.open(ask, reading.fetch_bytes):
                    return
                fetched = await self._brokers.fetch_once(
                    partition, ask.offset, max_bytes=reading.fetch_bytes, wait_ms=reading.wait_ms
                )
            self._arrive(Answered(ask, fetched))
        except Exception as error:
            self._arrive(Answered(ask, as_reading_error(partition, error)))

    async def _find_beginning(self, partition: TopicPartition) -> None:
        try:
            self._arrive(Added(partition, await self._brokers.offset(partition, "earliest")))
        except Exception as error:
            self._arrive(Added(partition, as_reading_error(partition, error)))

    def _arrive(self, arrival: Arrival) -> None:
        self._arrived.append(arrival)
        self._news.set()

    def _take_arrived(self) -> None:
        self._news.clear()
        if (
            not self._arrived
        ):  # Before anybody is told that there is no answer; whoever waits may be cancelled each time.
            self._sessions.look()
            self._look_elsewhere()
        while self._arrived:
            self._reading.take(self._arrived.popleft(), now_ms())
        self._reading.check(now_ms())

    async def _wait(self) -> None:
        """For an arrival, or the time to look at the plan again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._reading.patience_s(now_ms())):
                await self._news.wait()

    def _look_elsewhere(self) -> None:
        """Where a leader is silent, ask who leads by now, and go there."""
        if now_ms() - self._searched_ms < LEADER_SEARCH_MS:
            return
        self._searched_ms = now_ms()
        for topic in self._sessions.look_elsewhere() - self._searching.keys():
            task = asyncio.get_running_loop().create_task(self._search(topic), name="headrace-metadata")
            self._searching[topic] = task
            task.add_done_callback(partial(self._searched, topic))

    async def _search(self, topic: str) -> None:
        with suppress(HeadraceError):  # The next look asks again.
            await self._brokers.ask_who_leads(topic)

    def _searched(self, topic: str, task: asyncio.Task[None]) -> None:
        self._searching.pop(topic, None)


def _cancelled(partition: TopicPartition) -> StalledError:
    return StalledError(f"the task that reads {partition} was cancelled: iterate again to go on")
