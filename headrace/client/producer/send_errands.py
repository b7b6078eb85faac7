"""The sending of batches that are due, for threads and for an event loop: the way of each, and its outcome.

A batch goes on the channel of its partition where there is one, else by an errand that finds the leader and opens one;
where only other brokers lead to the leader, the errand carries the batch as a request. `SendErrands` is the base of
`Sender` and `AsyncSender`, which start errands in the background, say when a batch is due, and wake the waiters.
`lock` guards `in_flight`; futures are resolved outside of it, before their batch leaves the accumulator, so that
`flush` returns only after every future is done. No I/O.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from headrace.client.clock import now_ms
from headrace.client.producer.accumulator import Rows
from headrace.client.producer.batches import Batch
from headrace.client.producer.in_flight import Again, Arrived, InFlight, Outcome, Refused
from headrace.client.producer.produce_session import ProduceSessions
from headrace.client.producer.writer import ProducerOptions, unsendable
from headrace.client.transport.calls import Buffers
from headrace.client.transport.errands import B, Errand, alone
from headrace.core.errors import HeadraceError
from headrace.core.limits import PRODUCER_REQUESTS_MAX


class SendErrands(ABC, Generic[B, Rows]):
    in_flight: InFlight[Rows]
    lock: Any

    def __init__(self, brokers: B, options: ProducerOptions) -> None:
        self.closed = False
        """Whether it takes no more records."""
        self.broken: HeadraceError | None = None
        """The error after which nothing moves any more; None: all is well."""
        self._brokers, self._options = brokers, options
        self._sessions = ProduceSessions(brokers, options.acks, self._tell, self._cancelled)
        self._turns = brokers.new_turns(PRODUCER_REQUESTS_MAX)
        self._answered: set[Batch] = set()
        """The batches whose deliveries are being told, by the thread or task that has their answer."""
        self._refreshing: set[str] = set()
        """The topics whose metadata is being read."""

    @abstractmethod
    def _start(self, errand: Errand[None], when_cancelled: Callable[[], object]) -> None:
        """Carry the errand out in the background. `when_cancelled` is called if the errand is cancelled."""

    @abstractmethod
    def _tell(self, outcomes: list[Outcome]) -> None:
        """Take the outcomes of batches on channels: `_carry_out` each."""

    @abstractmethod
    def _cancelled(self, what: str) -> None:
        """Note that a task was cancelled from outside; the sentence `what` names it."""

    @abstractmethod
    def _look_again(self) -> None:
        """Look again: a batch may be due by now."""

    @abstractmethod
    def _moved(self) -> None:
        """Wake the waiters: a batch arrived or was given up. The caller holds the lock."""

    # -- sending -----------------------------------------------------------------------------------------------------

    def _carry(self, batch: Batch) -> None:
        """Send the batch on the channel of its partition, or by an errand where there is none."""
        partition = batch.partition
        if self._sessions.has_channel(partition):
            self._maybe_refresh(partition.topic)
            encoded = self._encoded(batch)
            if encoded is None or self._sessions.produce(batch, encoded):
                return
        with self.lock:
            may_go = self.in_flight.accumulator.may_go(batch)
            if not may_go:  # The channel has just failed: earlier batches come back too, and go first.
                self.in_flight.put_back(Again([batch]))
        if may_go:
            cancelled = partial(self._cancelled, f"a task that sends to {partition} was cancelled")
            self._start(alone(self._turns, self._attempt(batch)), cancelled)

    def _attempt(self, batch: Batch) -> Errand[None]:
        encoded = self._encoded(batch)
        if encoded is None:
            return
        try:
            is_sent, base_offset = (yield from self._sessions.open(batch, encoded)), 0
            if not is_sent:
                base_offset = yield from self._brokers.produce_once(batch.partition, encoded, self._options.acks)
        except HeadraceError as error:
            self._carry_out(Refused.request(batch, error))
        except Exception as error:
            self._give_up(batch, unsendable(batch, error))
        else:
            if is_sent:
                with self.lock:
                    self.in_flight.pipeline(batch.partition)
            else:
                self._carry_out(Arrived(batch, base_offset))
        self._look_again()

    def _encoded(self, batch: Batch) -> Buffers | None:
        """Return the bytes of the batch. None: it cannot be encoded, and was given up."""
        try:
            return self.in_flight.encoded(batch)
        except HeadraceError as error:
            self._give_up(batch, error)
        return None

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _maybe_refresh(self, topic: str) -> None:
        """Read old metadata again: channels go on without it, but there may be more partitions by now."""
        if topic not in self._refreshing and self._brokers.directory.fresh(topic, now_ms()) is None:
            self._ask(topic, self._refresh(topic))

    def _refresh(self, topic: str) -> Errand[None]:
        try:
            with suppress(HeadraceError):  # The next batch asks again.
                yield from self._brokers.layout_once(topic)
        finally:
            self._refreshing.discard(topic)

    def _look_elsewhere(self) -> bool:
        """Look up the present leader where a leader is silent, and go there. Return whether one is silent."""
        silent = self._sessions.look_elsewhere()
        for topic in silent - self._refreshing:
            self._ask(topic, self._search(topic))
        return bool(silent)

    def _search(self, topic: str) -> Errand[None]:
        try:
            with suppress(HeadraceError):  # The next look asks again.
                yield from self._brokers.ask_who_leads(topic)
                self._sessions.look_elsewhere()
        finally:
            self._refreshing.discard(topic)

    def _ask(self, topic: str, errand: Errand[None]) -> None:
        self._refreshing.add(topic)
        self._start(errand, partial(self._refreshing.discard, topic))

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def _carry_out(self, outcome: Outcome) -> None:
        verdict = self.in_flight.judge(outcome, now_ms())
        if verdict.forget is not None:
            self._brokers.directory.forget(verdict.forget)
        if verdict.again is not None:
            with self.lock:
                self.in_flight.put_back(verdict.again)
        if verdict.failed is not None:
            self._give_up(*verdict.failed)
        if verdict.delivered is not None:
            self._arrived(*verdict.delivered)
        if verdict.again is not None:
            self._look_again()

    def _arrived(self, batch: Batch, base_offset: int) -> None:
        if not self._is_ours(batch):
            return
        batch.delivered(base_offset)
        with self.lock:
            self._answered.discard(batch)
            self.in_flight.arrived(batch)
            self._moved()

    def _give_up(self, batch: Batch, error: HeadraceError) -> None:
        if not self._is_ours(batch):
            return
        batch.failed(error)
        with self.lock:
            self._answered.discard(batch)
            self.in_flight.given_up(batch, error)
            self._moved()

    def _is_ours(self, batch: Batch) -> bool:
        """Return whether the deliveries of the batch are still to be told: each is told once."""
        with self.lock:
            if self.broken is None:
                self._answered.add(batch)
            return self.broken is None
