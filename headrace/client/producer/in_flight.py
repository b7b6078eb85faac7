"""The batches on their way, and the verdict on each outcome. Pure.

    due ──> in flight ──> arrived
                ├──> failed ──> waits, goes again
                ├──> refused for its sequence ──> surely not written: goes again with other numbers
                │                            └──> else, it may be written: given up
                └──> given up ──> remembered until `overlooked` tells of it

A channel (`produce_session`) may have several batches in flight, as many as `pipeline` allows: `Arrived` for each in
order, or `Refused` for all from the first that is not done. Batches that are sent again in this order never pass one
another. To send a batch under
other numbers is safe only where no attempt with the old ones can still be on its way. Senders ask `InFlight.judge`
about an outcome and carry the verdict out, under the producer's lock or on its loop. Invariant: `stalled` gives an
error only when nothing has moved for longer than all time limits together. `TimeWarnings` logs (`headrace.client`)
records whose times their topic treats in a way that a user may not expect: once per topic and reason, and a count.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, NamedTuple, TypeAlias

from headrace.client.clock import Watchdog, epoch_ms
from headrace.client.producer.accumulator import Accumulator, Due, Rows
from headrace.client.producer.batches import Batch
from headrace.client.producer.writer import ProducerOptions, unsendable
from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Buffers
from headrace.client.transport.metadata import TopicLayout
from headrace.client.transport.retry import Failure, RetryPolicy, StopTrying, Trouble, TryAgain
from headrace.core.errors import (
    FencedProducerError,
    HeadraceError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RemoteError,
    RequestTimedOutError,
    StaleTopicError,
    StalledError,
    StorageFailedError,
)
from headrace.core.limits import CLIENT_STALL_CHECK_MS, CLIENT_STALL_SLACK_MS, PRODUCER_BATCHES_REMEMBERED
from headrace.core.records.arrow_message import RecordTimes
from headrace.core.records.header import NO_PRODUCER
from headrace.core.records.time_rules import Reason, Strange

PRODUCER_PIPELINE_BATCHES_MAX = 8
"""The number of batches of one partition that are on their way over a session: enough that neither side waits."""
FAILED_BATCHES_KEPT_MAX = 100
"""The number of failures that `flush` can still report; older ones are known to their futures alone."""


_log = logging.getLogger("headrace.client")
_LEAVE_OPEN = (NotLeaderError, StorageFailedError, RequestTimedOutError)
_MISNUMBERED = (OutOfOrderSequenceError, FencedProducerError)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Records for one topic that are strange for one reason."""

    topic: str
    reason: Reason


@dataclass(slots=True)
class TimeWarnings:
    _counted: Counter[_Seen] = field(default_factory=Counter)
    _told: dict[_Seen, int] = field(default_factory=dict)
    """The count at the last warning."""
    _retention_ms: dict[str, int | None] = field(default_factory=dict)
    """The retention by topic, as it was when its records were looked at."""

    def look(self, layout: TopicLayout | None, times: RecordTimes, now_ms: int) -> None:
        """Look at records that are about to be written to the topic for the first time; `now_ms` is since 1970."""
        if layout is None or layout.time_rules is None:
            return
        for reason, records in layout.time_rules.strange([times], now_ms):
            seen = _Seen(layout.topic, reason)
            self._retention_ms[layout.topic] = layout.time_rules.retention_ms
            self._counted[seen] += records
            if seen not in self._told:
                self._tell(seen)

    def sum_up(self) -> None:
        """Warn of records that came after the first warning."""
        for seen, count in [*self._counted.items()]:
            if count > self._told.get(seen, 0):
                self._tell(seen, " in all")

    def _tell(self, seen: _Seen, so_far: str = "") -> None:
        count = self._told[seen] = self._counted[seen]
        told = Strange(seen.reason, count).warning(self._retention_ms[seen.topic])
        _log.warning("records for %s%s: %s", seen.topic, so_far, told)


class Arrived(NamedTuple):
    """An acknowledged batch: it is as safe as its acks ask for."""

    batch: Batch
    base_offset: int


class Refused(NamedTuple):
    """The end of a channel, or a failed request, with the error of the first batch; the others are sent again."""

    partition: TopicPartition
    error: HeadraceError
    batches: list[Batch]
    may_be_written: bool
    """Whether this attempt may have written batches. False: it has written none, and never will."""

    @classmethod
    def request(cls, batch: Batch, error: HeadraceError) -> "Refused":
        return cls(batch.partition, error, [batch], leaves_open(error))


Outcome: TypeAlias = Arrived | Refused


def leaves_open(error: HeadraceError) -> bool:
    """Return whether a batch with this error may be written all the same (docs/protocol.md, "Problems")."""
    is_brokers = isinstance(error, RemoteError) and type(error) is not RemoteError
    return not is_brokers or isinstance(error, _LEAVE_OPEN)


@dataclass(frozen=True, slots=True)
class Again:
    """Batches to put back: the first has failed by `error`; without one, they were behind a batch that was given up."""

    batches: Sequence[Batch]
    error: HeadraceError | None = None
    at_ms: int = 0
    renumber: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The steps to take for an outcome, in this order."""

    forget: str | None = None
    """The topic whose metadata is to be read again."""
    again: Again | None = None
    failed: tuple[Batch, HeadraceError] | None = None
    """The batch whose failure is to be told; then `given_up`."""
    delivered: tuple[Batch, int] | None = None
    """The batch whose success is to be told, with its base offset (-1: no broker said where); then `arrived`."""


class InFlight(Generic[Rows]):
    def __init__(
        self,
        options: ProducerOptions,
        make_rows: Callable[[TopicPartition, int], Rows],
        trouble: Trouble,
        newest: Callable[[str], TopicLayout | None] = lambda _: None,
    ) -> None:
        """Begin with nothing on its way. `newest` gives the known metadata of a topic."""
        timeout_ms = options.delivery_timeout_ms
        self._random = Random()
        self._options = options
        self.accumulator = Accumulator(
            make_rows,
            linger_ms=options.linger_ms,
            timeout_ms=timeout_ms,
            producer_id=self._random.getrandbits(63) if options.is_idempotent else NO_PRODUCER,
        )
        self.watchdog = Watchdog(timeout_ms + options.request_timeout_ms + CLIENT_STALL_SLACK_MS)
        self._failed: deque[tuple[Batch, HeadraceError]] = deque(maxlen=FAILED_BATCHES_KEPT_MAX)
        # A topic that was created again is another place for the same records: producers go on.
        self._policy = RetryPolicy(timeout_ms, (StaleTopicError, *_MISNUMBERED), trouble)
        self._trouble = trouble
        self._newest = newest
        self.time_warnings = TimeWarnings()
        self._looked_ms = 0

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a record fits into the buffer; one that is larger than it fits when the buffer is empty."""
        buffered = self.accumulator.buffered_bytes
        return not buffered or buffered + size_bytes <= self._options.buffer_bytes

    def due(self, now_ms: int) -> Due:
        return self.accumulator.due(now_ms)

    def encoded(self, batch: Batch) -> Buffers:
        """Return the bytes of the batch, and warn of strange times when it goes for the first time.

        Raises HeadraceError, and nothing else: the batch cannot be sent, and is to be given up.
        """
        try:
            if not batch.times_seen:
                batch.times_seen = True
                self.time_warnings.look(self._newest(batch.partition.topic), batch.times(), epoch_ms())
            return batch.encoded(self._options.compression)
        except HeadraceError:
            raise
        except Exception as error:
            raise unsendable(batch, error) from error

    def judge(self, outcome: Outcome, now_ms: int) -> Verdict:
        if isinstance(outcome, Arrived):
            offset = -1 if self._options.acks == "0" else outcome.base_offset
            return Verdict(delivered=(outcome.batch, offset))
        topic, error, batches, may_be_written = outcome.partition.topic, *outcome[1:]
        if not batches:
            return Verdict(forget=topic)
        first, *behind = batches
        for batch in batches:
            batch.may_be_written = batch.may_be_written or may_be_written
        match self.decide(first, error, now_ms):
            case TryAgain(at_ms, refresh):
                again = Again(batches, error, at_ms, renumber=isinstance(error, _MISNUMBERED))
                return Verdict(topic if refresh else None, again)
            case StopTrying(last):
                return Verdict(None, Again(behind) if behind else None, (first, last))

    def arrived(self, batch: Batch) -> None:
        self.watchdog.moved()
        self.accumulator.arrived(batch)

    def decide(self, batch: Batch, error: HeadraceError, now_ms: int) -> TryAgain | StopTrying:
        """Decide what becomes of a failed batch; the caller then calls `put_back` or `given_up`."""
        batch.attempts += 1
        if isinstance(error, _MISNUMBERED) and batch.may_be_written:
            return StopTrying(_left_open(batch, error))
        failure = Failure(_what(batch), error, batch.attempts, batch.opened_ms, batch.sent_ms)
        return self._policy.decide(failure, now_ms, self._random)

    def put_back(self, again: Again) -> None:
        self.watchdog.moved()
        self.accumulator.put_back(again.batches, again.error, again.at_ms)
        if again.renumber:
            self.accumulator.renumber(again.batches[0])

    def pipeline(self, partition: TopicPartition) -> None:
        """Allow more batches in flight while a channel is open; with idempotence as many as brokers remember."""
        is_idempotent = self._options.is_idempotent
        depth = PRODUCER_BATCHES_REMEMBERED if is_idempotent else PRODUCER_PIPELINE_BATCHES_MAX
        self.accumulator.pipeline(partition, depth)

    def given_up(self, batch: Batch, error: HeadraceError) -> None:
        """Take out a batch whose deliveries have been told its failure."""
        self.watchdog.moved()
        self.accumulator.given_up(batch, error)
        self._failed.append((batch, error))

    def raise_overlooked(self) -> None:
        """Raise the first failure that nobody has looked at, once."""
        overlooked = self.overlooked()
        if overlooked is not None:
            raise overlooked

    def overlooked(self) -> HeadraceError | None:
        """Return the first failure that nobody has looked at, once."""
        counted = [(batch.overlooked(), error) for batch, error in self._failed]
        self._failed.clear()
        overlooked = [(count, error) for count, error in counted if count]
        if not overlooked:
            return None
        total, first = sum(count for count, _ in overlooked), overlooked[0][1]
        return type(first)(
            f"{total} record{' was' if total == 1 else 's were'} not acknowledged: {first.message}", **first.details
        )

    def stalled(self, now_ms: int) -> StalledError | None:
        """Return the error of a stalled producer, and warn of requests without an answer.

        It may be called at any time, and looks once a second.
        """
        if now_ms - self._looked_ms < CLIENT_STALL_CHECK_MS:
            return None
        self._looked_ms = now_ms
        for batch in () if self.watchdog.was_away(now_ms) else self.accumulator.in_flight():
            self._trouble.tell_unanswered(_what(batch), batch.attempt_ms, now_ms)
        if not self.watchdog.is_stalled(now_ms, should_move=self.accumulator.should_move(now_ms)):
            return None
        return StalledError(
            f"this producer has stalled: {self.accumulator.buffered_bytes} bytes wait, and for {self.watchdog.still_s}"
            " no request has ended; make a new producer"
        )


def _left_open(batch: Batch, error: HeadraceError) -> HeadraceError:
    return type(error)(
        f"{_what(batch)} may be written or not: an earlier attempt was not answered, and the broker misses what came"
        f" before: {error.message}",
        **error.details,
    )


def _what(batch: Batch) -> str:
    return f"records for {batch.partition}"
