"""The fetches of a consumer, for threads and for an event loop: each ask, the way that it takes, and its outcome.

An ask goes on the channel of its partition where there is one, else by an errand that finds the leader and opens a
channel; where only other brokers lead to a leader, the errand carries the fetch as a request. `FetchErrands` is the
base of `Fetcher` and `AsyncFetcher`, which start errands in the background, and wait. No I/O.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Ask
from headrace.client.consumer.fetch_session import FetchSessions
from headrace.client.consumer.read_ahead import Added, Answered, Arrival, ReadAhead
from headrace.client.record import TopicPartition
from headrace.client.transport.errands import B, Errand, alone
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.limits import CONSUMER_REQUESTS_MAX, LEADER_SEARCH_MS


class FetchErrands(ABC, Generic[B]):
    def __init__(self, brokers: B, reading: ReadAhead) -> None:
        self.reading = reading
        self._brokers = brokers
        self._sessions = FetchSessions(brokers, self._arrive)
        self._turns = brokers.new_turns(CONSUMER_REQUESTS_MAX)
        """The turns of the fetches that are no asks on channels."""
        self._searching: set[str] = set()
        """The topics whose leaders are being looked up."""
        self._searched_ms = 0

    @abstractmethod
    def _arrive(self, arrival: Arrival) -> None:
        """Keep the arrival for the reader, which may wait for it. Any thread may call it."""

    @abstractmethod
    def wake(self) -> None:
        """Wake the reader that waits for records: it looks around."""

    @abstractmethod
    def _start(self, errand: Errand[None], when_cancelled: Callable[[], object]) -> None:
        """Carry the errand out in the background. `when_cancelled` is called if the errand is cancelled."""

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading the partition: nothing of it is handed out from now on. The others go on."""
        self.reading.drop(partition)
        self._sessions.drop(partition)

    def _ask(self) -> None:
        """Start all fetches that are due."""
        reading = self.reading
        for ask in reading.plan.due(now_ms()):
            partition = ask.cursor.partition
            # Old metadata is read again even while all goes well: there may be more partitions.
            is_known = self._brokers.directory.fresh(partition.topic, now_ms()) is not None
            if not (is_known and self._sessions.ask(ask)):
                errand = alone(self._turns, self._fetch(ask, reading.fetch_bytes, reading.wait_ms))
                self._start(errand, partial(self._arrive, Answered(ask, _cancelled(partition))))
        for partition in reading.added():
            missed = Added(partition, _cancelled(partition))
            self._start(self._find_beginning(partition), partial(self._arrive, missed))

    def _fetch(self, ask: Ask, max_bytes: int, wait_ms: int) -> Errand[None]:
        partition = ask.cursor.partition
        try:
            if (yield from self._sessions.open(ask, max_bytes)):
                return
            fetched = yield from self._brokers.fetch_once(partition, ask.offset, max_bytes=max_bytes, wait_ms=wait_ms)
            self._arrive(Answered(ask, fetched))
        except Exception as error:
            self._arrive(Answered(ask, as_reading_error(partition, error)))

    def _find_beginning(self, partition: TopicPartition) -> Errand[None]:
        try:
            offset = yield from self._brokers.offset(partition, "earliest")
            self._arrive(Added(partition, offset))
        except Exception as error:
            self._arrive(Added(partition, as_reading_error(partition, error)))

    def _look_at_sessions(self) -> None:
        """Look at the sessions after a while without an arrival."""
        self._sessions.look()
        self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        """Look up the present leader where a leader is silent, and go there."""
        if now_ms() - self._searched_ms < LEADER_SEARCH_MS:
            return
        self._searched_ms = now_ms()
        for topic in self._sessions.look_elsewhere() - self._searching:
            self._searching.add(topic)
            self._start(self._search(topic), partial(self._searching.discard, topic))

    def _search(self, topic: str) -> Errand[None]:
        try:
            with suppress(HeadraceError):  # The next look asks again.
                yield from self._brokers.ask_who_leads(topic)
        finally:
            self._searching.discard(topic)


def as_reading_error(partition: TopicPartition, error: Exception) -> HeadraceError:
    """Return expected failures as they are, and others as an error that says what failed."""
    if isinstance(error, HeadraceError):
        return error
    return HeadraceError(f"reading {partition} failed: {error!r}")


def _cancelled(partition: TopicPartition) -> StalledError:
    return StalledError(f"the task that reads {partition} was cancelled: iterate again to go on")
