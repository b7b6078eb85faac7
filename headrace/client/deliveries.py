"""How those who sent records hear of them, in programs with threads: real `concurrent.futures.Future`s.

Made under the producer's lock, finished by the thread that wrote their batch.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count, repeat
from threading import Condition
from typing import Any, TypeVar

from headrace.client.batches import Row, RowBatch
from headrace.client.record import RecordMetadata
from headrace.core.errors import HeadraceError

T = TypeVar("T")
R = TypeVar("R")


class Delivery(Future[T]):
    """A future that knows whether anybody asked for it: `flush` raises the failures that nobody has looked at.

    All futures of a batch share one condition. `concurrent.futures.Future` makes a lock and a condition for each, which
    would cost more than everything else that `send` does; so its fields are set here without it. What is sent cannot be
    called back: `cancel` gives False.
    """

    looked_at = False
    _state = "PENDING"
    _result: Any = None
    _exception: BaseException | None = None

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    @property
    def is_overlooked(self) -> bool:
        return not self.looked_at

    def cancel(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> T:
        self.looked_at = True
        return self._patiently(super().result, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.looked_at = True
        return self._patiently(super().exception, timeout)

    def add_done_callback(self, fn: Any) -> None:
        self.looked_at = True
        super().add_done_callback(fn)

    def _patiently(self, ask: Callable[[float | None], R], timeout: float | None) -> R:
        """`ask` again where another future of the same batch woke us."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return ask(left)
            except TimeoutError:
                if left == 0.0 and not self.done():
                    raise


def finish(deliveries: Sequence[Delivery[T]], results: Iterable[T]) -> None:
    """What `set_result` would do to each, at a fifth of its cost: they share their condition, so one notice does."""
    condition = deliveries[0]._condition
    with condition:
        for delivery, result in zip(deliveries, results, strict=True):
            delivery._result, delivery._state = result, "FINISHED"
            for waiter in delivery._waiters:
                waiter.add_result(delivery)
        condition.notify_all()
    for delivery in deliveries:
        if delivery._done_callbacks:
            delivery._invoke_callbacks()  # type: ignore[attr-defined]  # Future's own, which the stubs leave out


@dataclass(slots=True, eq=False)
class ThreadRows(RowBatch):
    deliveries: list[Delivery[RecordMetadata]] = field(default_factory=list)
    """Of each row."""
    condition: Condition = field(default_factory=Condition)

    def add(self, row: Row, size_bytes: int) -> Delivery[RecordMetadata]:
        delivery: Delivery[RecordMetadata] = Delivery(self.condition)
        self.rows.append(row)
        self.deliveries.append(delivery)
        self.size_bytes += size_bytes
        return delivery

    def delivered(self, base_offset: int) -> None:
        topic, partition = self.partition
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        written = map(RecordMetadata, repeat(topic, len(self.rows)), repeat(partition), offsets)
        finish(self.deliveries, written)

    def failed(self, error: HeadraceError) -> None:
        for delivery in self.deliveries:
            delivery.set_exception(error)

    def overlooked(self) -> int:
        return sum(delivery.is_overlooked for delivery in self.deliveries)
