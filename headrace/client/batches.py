"""Records that travel together, on the producer's side: rows that `send` adds one by one, or columns that came whole.

A batch belongs to one partition, is filled under the producer's lock, and is emptied by the sender's thread, which
encodes it and tells `delivered` or `failed` exactly once. Byte counts are upper bounds of the encoded size, so that a
batch that fits by them fits the topic's `maxMessageBytes`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count, repeat
from operator import attrgetter
from threading import Condition, Lock
from typing import Any, TypeAlias, TypeVar

from headrace.client.record import BatchMetadata, Headers, RecordMetadata, TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.records.columns import record_columns

BATCH_OVERHEAD_BYTES = 2560
"""Header, Arrow's message metadata, the padding of 15 buffers to 64 bytes each and of the batch to 64."""
ROW_OVERHEAD_BYTES = 21
"""Three 4-byte ends (key, value, headers), the timestamp, and a byte for both validity bits."""
HEADER_OVERHEAD_BYTES = 9

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


Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp in ms, headers. A plain tuple: millions are made."""


def row_bytes(key: bytes | None, value: bytes | None, _timestamp_ms: int, headers: Headers) -> int:
    """Upper bound of what the row adds to its batch."""
    size = ROW_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


@dataclass(slots=True, eq=False)
class RowBatch:
    """What `send` fills."""

    partition: TopicPartition
    opened_ms: int
    size_bytes: int = BATCH_OVERHEAD_BYTES
    attempts: int = 0
    rows: list[Row] = field(default_factory=list)
    deliveries: list[Delivery[RecordMetadata]] = field(default_factory=list)
    """Of each row."""
    condition: Condition = field(default_factory=Condition)

    def add(self, row: Row, size_bytes: int) -> Delivery[RecordMetadata]:
        delivery: Delivery[RecordMetadata] = Delivery(self.condition)
        self.rows.append(row)
        self.deliveries.append(delivery)
        self.size_bytes += size_bytes
        return delivery

    def records(self) -> Any:
        """A pyarrow.RecordBatch of RECORD_SCHEMA."""
        keys, values, timestamps_ms, headers = zip(*self.rows, strict=True)
        some_headers = headers if any(headers) else None
        return record_columns(values, keys, timestamps_ms=timestamps_ms, headers=some_headers)

    def delivered(self, base_offset: int) -> None:
        topic, partition = self.partition
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        written = map(RecordMetadata, repeat(topic, len(self.rows)), repeat(partition), offsets)
        finish(self.deliveries, written)

    def failed(self, error: HeadraceError) -> None:
        for delivery in self.deliveries:
            delivery.set_exception(error)

    def overlooked(self) -> int:
        """How many failures nobody has asked for."""
        return sum(not delivery.looked_at for delivery in self.deliveries)


@dataclass(slots=True, eq=False)
class ColumnsDelivery:
    """Gathers the batches that one `send_batch` became: its caller expects them, the sender's thread settles them."""

    future: Delivery[tuple[BatchMetadata, ...]] = field(default_factory=lambda: Delivery(Condition()))
    written: list[BatchMetadata] = field(default_factory=list)
    error: HeadraceError | None = None
    _waiting: int = 1
    """Batches that have neither arrived nor failed, and one for the caller who may still add some."""
    _lock: Lock = field(default_factory=Lock)

    def expect(self) -> None:
        with self._lock:
            self._waiting += 1

    def settle(self) -> None:
        with self._lock:
            self._waiting -= 1
            if self._waiting:
                return
        if self.error is None:
            self.future.set_result(tuple(sorted(self.written, key=attrgetter("partition", "base_offset"))))
        else:
            self.future.set_exception(self.error)


@dataclass(slots=True, eq=False)
class ColumnBatch:
    """A part of `send_batch`'s columns, ready to be encoded."""

    partition: TopicPartition
    opened_ms: int
    size_bytes: int
    columns: Any
    """A pyarrow.RecordBatch of RECORD_SCHEMA."""
    delivery: ColumnsDelivery
    attempts: int = 0

    def records(self) -> Any:
        return self.columns

    def delivered(self, base_offset: int) -> None:
        self.delivery.written.append(BatchMetadata(*self.partition, base_offset, self.columns.num_rows))
        self.delivery.settle()

    def failed(self, error: HeadraceError) -> None:
        self.delivery.error = self.delivery.error or error
        self.delivery.settle()

    def overlooked(self) -> int:
        return 0 if self.delivery.future.looked_at else self.columns.num_rows


Batch = RowBatch | ColumnBatch
