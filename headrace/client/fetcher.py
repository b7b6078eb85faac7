"""Reads ahead for a consumer: what partitions' leaders push over sessions, one answer of each waiting to be read.

The consumer's thread decides (with `ReadAhead`), asks, and takes answers from a queue. Workers find leaders and open
channels to them; where only other brokers lead to a leader, they carry fetches as requests. So all state belongs to the
one thread that uses the consumer. Owned by one `Consumer`, for its lifetime.
"""

from collections.abc import Generator
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue

from headrace.client.brokers import Brokers
from headrace.client.clock import now_ms
from headrace.client.cursor import Ask, Cursor
from headrace.client.fetch_sessions import FetchSessions
from headrace.client.read_ahead import Added, Answered, Arrival, ReadAhead
from headrace.client.record import TopicPartition
from headrace.client.workers import Workers
from headrace.core.errors import HeadraceError
from headrace.core.limits import CONSUMER_REQUESTS_MAX, LEADER_SEARCH_MS
from headrace.core.records.columns import DecodedBatch
from headrace.http2.interrupts import HeldInterrupts


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
