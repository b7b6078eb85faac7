"""What becomes of batches on their way: sent, tried again, given up; and what is left to be said of it. Pure.

    due ──> in flight ──> arrived
                ├──> failed ──> waits, goes again
                └──> given up ──> remembered until `overlooked` tells of it

Invariant: where `stalled` gives an error, nothing has moved for longer than all time limits together, and whoever waits
must be told. Owned by one sender, called under its producer's lock (or on its loop).
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Generic

from headrace.client.accumulator import Accumulator, Due, Rows
from headrace.client.batches import Batch
from headrace.client.record import TopicPartition
from headrace.client.retry import Failure, GiveUp, RetryPolicy, TryAgain
from headrace.client.trouble import Trouble
from headrace.client.watchdog import Watchdog
from headrace.client.write_options import WriteOptions
from headrace.core.errors import HeadraceError, StaleTopicError, StalledError
from headrace.core.limits import (
    CLIENT_STALL_CHECK_MS,
    CLIENT_STALL_SLACK_MS,
    FAILED_BATCHES_KEPT_MAX,
    PRODUCER_PIPELINE_BATCHES_MAX,
)


class InFlight(Generic[Rows]):
    def __init__(
        self, options: WriteOptions, make_rows: Callable[[TopicPartition, int], Rows], trouble: Trouble
    ) -> None:
        timeout_ms = options.delivery_timeout_ms
        self.accumulator = Accumulator(make_rows, linger_ms=options.linger_ms, timeout_ms=timeout_ms)
        self.watchdog = Watchdog(timeout_ms + options.request_timeout_ms + CLIENT_STALL_SLACK_MS)
        self._buffer_bytes = options.buffer_bytes
        self._failed: deque[tuple[Batch, HeadraceError]] = deque(maxlen=FAILED_BATCHES_KEPT_MAX)
        # A topic that was created again is another place for the same records: producers go on.
        self._policy = RetryPolicy(timeout_ms, (StaleTopicError,), trouble)
        self._trouble = trouble
        self._random = Random()
        self._looked_ms = 0

    def has_room(self, size_bytes: int) -> bool:
        """A record larger than the buffer waits for all others."""
        buffered = self.accumulator.buffered_bytes
        return not buffered or buffered + size_bytes <= self._buffer_bytes

    def due(self, now_ms: int) -> Due:
        return self.accumulator.due(now_ms)

    def arrived(self, batch: Batch) -> None:
        self.watchdog.moved()
        self.accumulator.arrived(batch)

    def decide(self, batch: Batch, error: HeadraceError, now_ms: int) -> TryAgain | GiveUp:
        """Then `put_back` or `given_up`."""
        batch.attempts += 1
        failure = Failure(_what(batch), error, batch.attempts, batch.opened_ms, batch.sent_ms)
        return self._policy.decide(failure, now_ms, self._random)

    def put_back(self, batches: Sequence[Batch], error: HeadraceError | None = None, at_ms: int = 0) -> None:
        """The first of them has failed; without an error, it was only late."""
        self.watchdog.moved()
        self.accumulator.put_back(batches, error, at_ms)

    def pipeline(self, partition: TopicPartition) -> None:
        """A channel is open to its leader."""
        self.accumulator.pipeline(partition, PRODUCER_PIPELINE_BATCHES_MAX)

    def given_up(self, batch: Batch, error: HeadraceError) -> None:
        """Its deliveries have been told."""
        self.watchdog.moved()
        self.accumulator.given_up(batch, error)
        self._failed.append((batch, error))

    def overlooked(self) -> HeadraceError | None:
        """The first failure that nobody has looked at, told once."""
        counted = [(batch.overlooked(), error) for batch, error in self._failed]
        self._failed.clear()
        overlooked = [(count, error) for count, error in counted if count]
        if not overlooked:
            return None
        total, first = sum(count for count, _ in overlooked), overlooked[0][1]
        return type(first)(
            f"{total} record{' was' if total == 1 else 's were'} not written: {first.message}", **first.details
        )

    def stalled(self, now_ms: int) -> StalledError | None:
        """Tells of requests that have no answer, too. May be asked at any time, and looks once a second."""
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


def _what(batch: Batch) -> str:
    return f"records for {batch.partition}"
