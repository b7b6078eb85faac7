"""The blocking consumer's reading ahead: leaders push answers over sessions, and one of each partition waits.

The consumer's thread decides (with `ReadAhead`), asks, and takes answers from a queue. Workers find leaders and open
channels to them; where only other brokers lead to a leader, they carry fetches as requests. So all reading state
belongs to the one thread that uses the consumer. `FetchSessions` keeps the channels under its lock and sends under it
too; it answers each ask once, from the thread that has the answer. A `Consumer` owns one fetcher for its lifetime.
"""

from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Ask, Cursor
from headrace.client.consumer.fetch_session import FetchChannels, FetchSession
from headrace.client.consumer.read_ahead import Added, Answered, Arrival, ReadAhead
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.blocking_sessions import BlockingSessions
from headrace.client.transport.brokers import Brokers, Workers
from headrace.core.errors import HeadraceError
from headrace.core.limits import CONSUMER_REQUESTS_MAX, LEADER_SEARCH_MS
from headrace.core.records.columns import DecodedBatch
from headrace.http2.blocking_transport import BlockingStream
from headrace.http2.interrupts import HeldInterrupts


class FetchSessions(BlockingSessions[FetchSession]):
    def __init__(self, brokers: Brokers, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: FetchChannels[BlockingStream] = FetchChannels()

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        with self._lock:
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
        with self._lock:
            dropped = self._channels.drop(partition)
            if dropped is not None:
                stream, data = dropped
                stream.send(data)

    def open(self, ask: Ask, window_bytes: int) -> bool:
        """Ask on a channel, a new one where there is none; may connect. False: only requests lead there just now."""
        partition = ask.cursor.partition
        layout = self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        if self.ask(ask):
            return True
        session, stream = self._session(url)
        terms = calls.fetch_terms(self._brokers.namespace, layout, partition.partition, ask.offset, window_bytes)
        with self._lock:
            session.begin(now_ms())
            if data := self._channels.open(ask, session, stream, terms):
                stream.send(data)
        return True

    def look(self) -> None:
        """Answer those who have asked for long; give up sessions of which nothing is heard any more."""
        for session, stream in list(self._streams.values()):
            with self._lock:
                news = session.look(now_ms())
            if isinstance(news, HeadraceError):
                self._end(session, news)
                stream.cancel()
            else:
                for answered in news:
                    self._tell(answered)

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        with self._lock:
            session.heard_ms = now_ms()
            self._channels.hear(news)
            known = self._streams.get(session.url)
            if known is not None and known[0] is session and (data := session.outgoing()):
                known[1].send(data)
        for answered in news:
            self._tell(answered)


class Between:
    """What a reader looks at between batches; one that is alone has nothing to look at."""

    def follow(self) -> None:
        """Partitions may come and go in this."""

    def is_settled(self) -> bool:
        """Whether no more are to come."""
        return True


ALONE = Between()


class Fetcher:
    def __init__(self, brokers: Brokers, reading: ReadAhead) -> None:
        self._brokers, self._reading = brokers, reading
        self._workers = Workers("headrace-fetch", CONSUMER_REQUESTS_MAX)
        self._arrived: SimpleQueue[Arrival | None] = SimpleQueue()
        """None: somebody who waits shall look around."""
        self._sessions = FetchSessions(brokers, self._arrived.put)
        self._searching: set[str] = set()
        """Topics whose leaders a worker asks for."""
        self._searched_ms = 0

    def close(self) -> None:
        self._workers.stop()
        self._brokers.close()

    def batches(self, between: Between = ALONE) -> Generator[tuple[Cursor, DecodedBatch]]:
        """Batches of all partitions as they come, each cut to what is wanted, until the plan is done, or reading stops.

        Raises the error of a partition that cannot be read, and StalledError; the next call goes on where this one
        stopped.
        """
        handed = self._reading.handed
        handed.is_waited_for = True
        try:
            while not self._stops():
                between.follow()
                self._start_due()
                is_called = self._take_arrived(wait=False)
                if self._reading.open():
                    self._start_due()
                    with closing(self._reading.read()) as batches:
                        while not self._stops() and (found := next(batches, None)) is not None:
                            yield found
                            handed.came_back()
                            handed.is_waited_for = True
                            between.follow()
                elif self._reading.plan.done and between.is_settled():
                    return
                elif not is_called:
                    self._take_arrived(wait=True)
        finally:
            handed.is_waited_for = False

    def _stops(self) -> bool:
        return self._reading.handed.stops

    def wake(self) -> None:
        """Whoever waits for records looks around. From any thread."""
        self._arrived.put(None)

    def drop(self, partition: TopicPartition) -> None:
        """It is not read any more: nothing of it is handed out from now on. The others go on."""
        self._reading.drop(partition)
        self._sessions.drop(partition)

    def _start_due(self) -> None:
        with HeldInterrupts():  # What is half-sent would break the connection for all.
            self._ask()

    def _ask(self) -> None:
        for ask in self._reading.plan.due(now_ms()):
            # Old metadata is read again even while all goes well: there may be more partitions.
            is_known = self._brokers.directory.fresh(ask.cursor.partition.topic, now_ms()) is not None
            if not (is_known and self._sessions.ask(ask)):
                self._workers.submit(partial(self._fetch, ask, self._reading.fetch_bytes, self._reading.wait_ms))
        for partition in self._reading.added():
            self._workers.submit(partial(self._find_beginning, partition))

    def _fetch(self, ask: Ask, max_bytes: int, wait_ms: int) -> None:
        """On a worker's thread, as all that follows."""
        partition = ask.cursor.partition
        try:
            if self._sessions.open(ask, max_bytes):
                return
            fetched = self._brokers.fetch_once(partition, ask.offset, max_bytes=max_bytes, wait_ms=wait_ms)
            self._arrived.put(Answered(ask, fetched))
        except Exception as error:
            self._arrived.put(Answered(ask, as_reading_error(partition, error)))

    def _look_elsewhere(self) -> None:
        """Where a leader is silent, ask who leads by now, and go there."""
        if now_ms() - self._searched_ms < LEADER_SEARCH_MS:
            return
        self._searched_ms = now_ms()
        for topic in self._sessions.look_elsewhere() - self._searching:
            self._searching.add(topic)
            self._workers.submit(partial(self._search, topic))

    def _search(self, topic: str) -> None:
        try:
            with suppress(HeadraceError):  # The next look asks again.
                self._brokers.ask_who_leads(topic)
        finally:
            self._searching.discard(topic)

    def _find_beginning(self, partition: TopicPartition) -> None:
        try:
            self._arrived.put(Added(partition, self._brokers.offset(partition, "earliest")))
        except Exception as error:
            self._arrived.put(Added(partition, as_reading_error(partition, error)))

    def _take_arrived(self, *, wait: bool) -> bool:
        """Everything that has arrived; with `wait`, at least one answer, or the time to look at the plan again.

        Whether somebody has called to look around.
        """
        is_called = False
        patience_s = self._reading.patience_s(now_ms()) if wait else None
        while True:
            try:
                arrival = self._arrived.get_nowait() if patience_s is None else self._arrived.get(timeout=patience_s)
            except Empty:
                self._sessions.look()
                self._look_elsewhere()
                self._reading.check(now_ms())
                return is_called
            patience_s = None
            if arrival is None:
                is_called = True
            else:
                self._reading.take(arrival, now_ms())


def as_reading_error(partition: TopicPartition, error: Exception) -> HeadraceError:
    """Expected failures as they are."""
    if isinstance(error, HeadraceError):
        return error
    return HeadraceError(f"reading {partition} failed: {error!r}")
