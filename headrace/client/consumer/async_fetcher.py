"""The asyncio consumer's reading ahead: the face of `fetcher` for an event loop, with tasks in place of workers.

An `AsyncConsumer` owns one, from its start to its end. `next_batch` may be cancelled at any time: what has arrived,
and what is on its way, is there for the next call. `AsyncFetchSessions` answers each ask once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Ask, Cursor
from headrace.client.consumer.fetch_session import FetchChannels, FetchSession
from headrace.client.consumer.fetcher import as_reading_error
from headrace.client.consumer.read_ahead import Added, Answered, Arrival, ReadAhead
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.async_brokers import AsyncBrokers, AsyncSessions
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.limits import CONSUMER_REQUESTS_MAX, LEADER_SEARCH_MS
from headrace.core.records.columns import DecodedBatch
from headrace.http2.async_transport import AsyncStream


class AsyncFetchSessions(AsyncSessions[FetchSession]):
    def __init__(self, brokers: AsyncBrokers, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: FetchChannels[AsyncStream] = FetchChannels()

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        asked = self._channels.ask(ask)
        if asked is None:
            return False
        is_taken, answered, stream, data = asked
        if data:
            stream.send(data)
        if answered is not None:
            self._tell(answered)
        return is_taken

    def drop(self, partition: TopicPartition) -> None:
        """It is not read any more."""
        dropped = self._channels.drop(partition)
        if dropped is not None:
            stream, data = dropped
            stream.send(data)

    async def open(self, ask: Ask, window_bytes: int) -> bool:
        """Ask on a channel, a new one where there is none; may connect. False: only requests lead there just now."""
        partition = ask.cursor.partition
        layout = await self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        if self.ask(ask):
            return True
        session, stream = await self._session(url)
        terms = calls.fetch_terms(self._brokers.namespace, layout, partition.partition, ask.offset, window_bytes)
        session.begin(now_ms())
        if data := self._channels.open(ask, session, stream, terms):
            stream.send(data)
        return True

    def look(self) -> None:
        """Answer those who have asked for long; give up sessions of which nothing is heard any more."""
        for session, stream in list(self._streams.values()):
            news = session.look(now_ms())
            if isinstance(news, HeadraceError):
                self._end(session, news)
                stream.cancel()
            else:
                for answered in news:
                    self._tell(answered)

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        session.heard_ms = now_ms()
        self._channels.hear(news)
        known = self._streams.get(session.url)
        if known is not None and known[0] is session and (data := session.outgoing()):
            known[1].send(data)
        for answered in news:
            self._tell(answered)

    def _cancelled(self, session: FetchSession) -> None:
        self._end(
            session, StalledError(f"the task that reads from {session.url} was cancelled: iterate again to go on")
        )


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
