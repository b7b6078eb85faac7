"""Records that travel together, on the producer's side: rows that `send` adds one by one, or columns that came whole.

A batch belongs to one partition, is filled by its producer and emptied by its sender, which encodes it and tells
`delivered` or `failed` exactly once. Byte counts are upper bounds of the encoded size, so that a batch that fits by
them fits the topic's `maxMessageBytes`. How those who sent the records hear of it is `deliveries` for threads and
`async_deliveries` for tasks.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from typing import Any, Protocol, TypeAlias

from headrace.client.record import BatchMetadata, Headers, TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.records.columns import record_columns

BATCH_OVERHEAD_BYTES = 2560
"""Header, Arrow's message metadata, the padding of 15 buffers to 64 bytes each and of the batch to 64."""
ROW_OVERHEAD_BYTES = 21
"""Three 4-byte ends (key, value, headers), the timestamp, and a byte for both validity bits."""
HEADER_OVERHEAD_BYTES = 9

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
class RowBatch(ABC):
    """What `send` fills. Whoever makes one adds `add`, which gives each row its delivery."""

    partition: TopicPartition
    opened_ms: int
    size_bytes: int = BATCH_OVERHEAD_BYTES
    attempts: int = 0
    sent_ms: int = 0
    """When the first attempt began."""
    attempt_ms: int = 0
    """When the last one did."""
    rows: list[Row] = field(default_factory=list)

    def records(self) -> Any:
        """A pyarrow.RecordBatch of RECORD_SCHEMA."""
        keys, values, timestamps_ms, headers = zip(*self.rows, strict=True)
        some_headers = headers if any(headers) else None
        return record_columns(values, keys, timestamps_ms=timestamps_ms, headers=some_headers)

    @abstractmethod
    def delivered(self, base_offset: int) -> None:
        """It is written, its first row at `base_offset` (-1: nobody said where)."""

    @abstractmethod
    def failed(self, error: HeadraceError) -> None: ...

    @abstractmethod
    def overlooked(self) -> int:
        """How many failures nobody has asked for."""


class ColumnsFuture(Protocol):
    """What `send_batch` gives to its caller."""

    @property
    def is_overlooked(self) -> bool: ...
    def done(self) -> bool: ...
    def set_result(self, result: tuple[BatchMetadata, ...], /) -> None: ...
    def set_exception(self, exception: HeadraceError, /) -> None: ...


@dataclass(slots=True, eq=False)
class ColumnsDelivery:
    """Gathers the batches that one `send_batch` became: its caller expects them, the sender settles them."""

    future: ColumnsFuture
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
        if self.future.done():  # Cancelled: nobody waits for it.
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
    sent_ms: int = 0
    attempt_ms: int = 0

    def records(self) -> Any:
        return self.columns

    def delivered(self, base_offset: int) -> None:
        self.delivery.written.append(BatchMetadata(*self.partition, base_offset, self.columns.num_rows))
        self.delivery.settle()

    def failed(self, error: HeadraceError) -> None:
        self.delivery.error = self.delivery.error or error
        self.delivery.settle()

    def overlooked(self) -> int:
        return self.columns.num_rows if self.delivery.future.is_overlooked else 0


Batch = RowBatch | ColumnBatch
