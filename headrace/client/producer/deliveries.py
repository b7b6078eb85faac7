"""The futures of sent records, in programs with threads: real `concurrent.futures.Future`s.

A record's `Delivery` is its place in its batch and nothing else: the batch keeps the outcome, the waiters and the
callbacks of all its records, so that a million records are told by as many fields as there are batches. (A future of
Python's own makes a lock, a condition and two lists for each, which costs more than everything else that `send` does.)
`concurrent.futures.wait` and `as_completed` are therefore answered from the batch.

Deliveries are made under the producer's lock. The thread that has an outcome tells it once, under the batch's
condition.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, Protocol, TypeAlias

from headrace.client.producer.batches import Row, RowBatch
from headrace.client.producer.writer import as_raised
from headrace.client.record import BatchMetadata, RecordMetadata, TopicPartition
from headrace.core.errors import HeadraceError

_log = logging.getLogger(__name__)
_Callback: TypeAlias = Callable[[Any], object]


class Carrier(Protocol):
    """The stream that a batch's answer comes by."""

    def wait_with(self, is_done: Callable[[], bool], wait: Callable[[], None], timeout_s: float | None) -> None:
        """Return when `is_done`, or when `wait` returns; this thread may read the stream meanwhile."""


class Delivery(Future[RecordMetadata]):
    """The future of one record. A record that is sent cannot be called back: `cancel` gives False."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: "ThreadRows", row: int) -> None:
        self._batch = batch
        self._row = row

    def result(self, timeout: float | None = None) -> RecordMetadata:
        outcome = self._outcome(timeout)
        if isinstance(outcome, HeadraceError):
            raise as_raised(outcome)
        return self._metadata(outcome)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        outcome = self._outcome(timeout)
        return outcome if isinstance(outcome, HeadraceError) else None

    def add_done_callback(self, fn: _Callback) -> None:
        batch = self._batch
        with batch.condition:
            batch.looked_at.add(self._row)
            if batch.outcome is None:
                batch.callbacks.append((fn, self))
                return
        self.call(fn)

    def call(self, callback: _Callback) -> None:
        """Call the callback. Its error is logged and forgotten, as `concurrent.futures` does."""
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of %r raised", self)

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return self._batch.outcome is not None

    def __repr__(self) -> str:
        outcome = self._batch.outcome
        if outcome is None:
            return f"<Delivery to {self._batch.partition}: on its way>"
        told = outcome if isinstance(outcome, HeadraceError) else self._metadata(outcome)
        return f"<Delivery to {self._batch.partition}: {told!r}>"

    def _outcome(self, timeout: float | None) -> int | HeadraceError:
        outcome = self._batch.outcome
        if outcome is None:
            outcome = self._batch.wait(self._row, timeout)
        elif isinstance(outcome, HeadraceError):
            self._batch.looked_at.add(self._row)
        return outcome

    def _metadata(self, base_offset: int) -> RecordMetadata:
        topic, partition = self._batch.partition
        return RecordMetadata(topic, partition, base_offset + self._row if base_offset >= 0 else -1)

    # -- what concurrent.futures itself looks at: to type checkers ordinary attributes, which it reads and never sets --

    _state: str = property(lambda self: "FINISHED" if self.done() else "PENDING")  # type: ignore[assignment]
    _condition: Condition = property(lambda self: self._batch.condition)  # type: ignore[assignment]
    _waiters: list[Any] = property(lambda self: self._batch.waiters.setdefault(self, []))  # type: ignore[assignment]
    _result: Any = property(lambda self: self._told()[0])
    _exception: Any = property(lambda self: self._told()[1])

    def _told(self) -> tuple[RecordMetadata | None, HeadraceError | None]:
        outcome = self._batch.outcome
        if isinstance(outcome, HeadraceError):
            return None, outcome
        return None if outcome is None else self._metadata(outcome), None


@dataclass(slots=True, eq=False)
class ThreadRows(RowBatch):
    condition: Condition = field(default_factory=Condition)
    outcome: int | HeadraceError | None = None
    """The offset of the first record (-1: no broker said where), or the error; None until the outcome is known."""
    looked_at: set[int] = field(default_factory=set)
    """The rows whose outcome a thread has asked for, or waits for."""
    waiters: dict[Delivery, list[Any]] = field(default_factory=dict)
    """The waiters of `concurrent.futures.wait`, by the delivery that they wait for."""
    callbacks: list[tuple[_Callback, Delivery]] = field(default_factory=list)
    carrier_of: Callable[[TopicPartition], Carrier | None] = lambda _: None

    def add(self, row: Row) -> Delivery:
        return Delivery(self, self.append(row))

    def wait(self, row: int, timeout_s: float | None) -> int | HeadraceError:
        """Wait for the outcome and return it. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.looked_at.add(row)
        carrier = self.carrier_of(self.partition)
        if carrier is None:
            self._wait_until(deadline)
        else:
            carrier.wait_with(self._is_told, lambda: self._wait_until(deadline), timeout_s)
        assert self.outcome is not None, "waited for"
        return self.outcome

    def _is_told(self) -> bool:
        return self.outcome is not None

    def _wait_until(self, deadline: float | None) -> None:
        with self.condition:
            while self.outcome is None:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError
                self.condition.wait(left_s)

    def delivered(self, base_offset: int) -> None:
        self._tell(base_offset)

    def failed(self, error: HeadraceError) -> None:
        self._tell(error)

    def _tell(self, outcome: int | HeadraceError) -> None:
        with self.condition:
            self.outcome = outcome
            for delivery, waiters in self.waiters.items():
                for waiter in waiters:
                    (waiter.add_exception if isinstance(outcome, HeadraceError) else waiter.add_result)(delivery)
            self.condition.notify_all()
        for callback, delivery in self.callbacks:
            with suppress(SystemExit):  # It would end a thread that others need.
                delivery.call(callback)
        self.callbacks.clear()
        self.forget_rows()

    def overlooked(self) -> int:
        return self.record_count - len(self.looked_at)

    @property
    def has_callbacks(self) -> bool:
        return bool(self.callbacks)


class BatchesDelivery(Future[tuple[BatchMetadata, ...]]):
    """The future of one `send_batch`, which knows whether anybody asked for it."""

    is_overlooked = True
    has_callbacks = False

    def cancel(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> tuple[BatchMetadata, ...]:
        self.is_overlooked = False
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.is_overlooked = False
        return super().exception(timeout)

    def add_done_callback(self, fn: Any) -> None:
        self.is_overlooked, self.has_callbacks = False, True
        super().add_done_callback(fn)
