"""The batches on the producer's side: rows that `send` adds one by one, or columns that came whole.

A batch belongs to one partition. Its producer fills it; its sender empties it, encodes it and calls `delivered` or
`failed` exactly once. Byte counts are upper bounds of the encoded size, so that a batch that fits by them fits the
topic's `maxMessageBytes`. `deliveries` tells the outcome to threads; `async_sender` tells it to tasks.
"""

from abc import ABC, abstractmethod
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np

from headrace.client.record import BatchMetadata, Headers, TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.records.arrays import bytes_array, long_numbers, number_array
from headrace.core.records.arrow_message import RecordTimes, times_in
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import NOT_IDEMPOTENT, Compression, ProducerNumbers
from headrace.core.records.small_batches import are_few, encode_rows

BATCH_OVERHEAD_BYTES = 2560
"""The bytes of the header, Arrow's message metadata, the padding of 15 buffers to 64 bytes and of the batch to 64."""
ROW_OVERHEAD_BYTES = 21
"""The bytes of three 4-byte ends (key, value, headers), the timestamp, and a byte for both validity bits."""
HEADER_OVERHEAD_BYTES = 9

Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
"""The key, value, timestamp in ms and headers. It is a plain tuple: millions are made, and none is kept."""


def row_bytes(row: Row) -> int:
    """Return an upper bound of the bytes that the row adds to its batch."""
    key, value, _, headers = row
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
    """A batch that `send` fills. Each face's class has `add`, which gives each row its delivery."""

    partition: TopicPartition
    opened_ms: int
    size_bytes: int = BATCH_OVERHEAD_BYTES
    attempts: int = 0
    sent_ms: int = 0
    """The time when the first attempt began."""
    attempt_ms: int = 0
    """The time when the last attempt began."""
    number: int = 0
    """The place of the batch among all batches of its partition."""
    numbers: ProducerNumbers = NOT_IDEMPOTENT
    """The numbers by which a broker recognizes the batch (`accumulator.Sequences`)."""
    times_seen: bool = False
    """Whether the times of the records were checked for a warning to their writer."""
    may_be_written: bool = False
    """Whether an attempt may have written it: one had no answer, or none that says for sure."""
    record_count: int = 0
    _is_torn: bool = False
    """Whether a row is being added, or an interrupt has stopped that: such a row does not count."""
    _values: list[bytes | None] = field(default_factory=list)
    _times_ms: list[int] = field(default_factory=list)
    _keys: list[bytes | None] = field(default_factory=list)
    """The keys: shorter than the values, or empty, where the last rows have no key; so are the headers."""
    _headers: list[Headers] = field(default_factory=list)

    def append(self, row: Row) -> int:
        """Add the row, and return its number in the batch."""
        key, value, timestamp_ms, headers = row
        number = self.record_count
        if self._is_torn:
            self._mend()
        self._is_torn = True
        self._values.append(value)
        self._times_ms.append(timestamp_ms)
        if key is not None:
            self._keys.extend([None] * (number - len(self._keys)))
            self._keys.append(key)
        if headers:
            self._headers.extend([()] * (number - len(self._headers)))
            self._headers.append(headers)
        self.record_count = number + 1
        self._is_torn = False
        return number

    def _mend(self) -> None:
        for column in (self._values, self._times_ms, self._keys, self._headers):
            del column[self.record_count :]
        self._is_torn = False

    def encoded(self, compression: Compression) -> list[bytes | memoryview]:
        """Return the bytes of the batch, in pieces. Raises what `encode_batch` does, and errors of wrong values."""
        if self._is_torn:
            self._mend()
        values: Any = self._values
        keys: Any = self._keys
        is_plain = not self._headers and compression is Compression.NONE and len(keys) in (0, len(values))
        if is_plain and are_few(values, keys, self.size_bytes):
            return encode_rows(values, keys, self._times_ms, self.numbers)
        return encode_batch(self.records(), compression=compression, numbers=self.numbers)

    def times(self) -> RecordTimes:
        return times_in(memoryview(array("q", self._times_ms)))

    def records(self) -> Any:
        """Return the rows as a pyarrow.RecordBatch of RECORD_SCHEMA."""
        keys, headers = self._keys, self._headers
        some_keys = bytes_array(keys + [None] * (self.record_count - len(keys))) if keys else None
        some_headers = headers + [()] * (self.record_count - len(headers)) if headers else None
        times_ms = number_array(np.array(self._times_ms, np.int64))
        return record_columns(bytes_array(self._values), some_keys, timestamps_ms=times_ms, headers=some_headers)

    def forget_rows(self) -> None:
        """Drop the rows after their outcome is told: a delivery that is kept does not keep the bytes of others."""
        self._values, self._times_ms, self._keys, self._headers = [], [], [], []

    @abstractmethod
    def delivered(self, base_offset: int) -> None:
        """Tell that the batch is written, with its first row at `base_offset` (-1: no broker said where)."""

    @abstractmethod
    def failed(self, error: HeadraceError) -> None: ...

    @abstractmethod
    def overlooked(self) -> int:
        """Return the number of failures that nobody has asked for."""

    @property
    def has_callbacks(self) -> bool:
        """Whether telling the outcome runs callbacks of the user."""
        return False


class ColumnsFuture(Protocol):
    """The future that `send_batch` gives to its caller."""

    @property
    def is_overlooked(self) -> bool: ...
    @property
    def has_callbacks(self) -> bool: ...
    def done(self) -> bool: ...
    def set_result(self, result: tuple[BatchMetadata, ...], /) -> None: ...
    def set_exception(self, exception: HeadraceError, /) -> None: ...


@dataclass(slots=True, eq=False)
class ColumnsDelivery:
    """The batches of one `send_batch`, gathered: its caller expects them, the sender settles them."""

    future: ColumnsFuture
    written: list[BatchMetadata] = field(default_factory=list)
    error: HeadraceError | None = None
    _waiting: int = 1
    """The number of batches that have neither arrived nor failed, and one for the caller, which may still add some."""
    _lock: Lock = field(default_factory=Lock)

    def expect(self) -> None:
        with self._lock:
            self._waiting += 1

    def settle(self) -> None:
        with self._lock:
            self._waiting -= 1
            if self._waiting:
                return
        if self.future.done():  # It was cancelled: nobody waits for it.
            return
        with suppress(SystemExit):  # A callback may raise it, and it would end a thread that others need.
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
    number: int = 0
    numbers: ProducerNumbers = NOT_IDEMPOTENT
    times_seen: bool = False
    may_be_written: bool = False

    @property
    def record_count(self) -> int:
        return int(self.columns.num_rows)

    def times(self) -> RecordTimes:
        return times_in(long_numbers(self.columns.column(2)).data)

    def records(self) -> Any:
        return self.columns

    def encoded(self, compression: Compression) -> list[bytes | memoryview]:
        return encode_batch(self.columns, compression=compression, numbers=self.numbers)

    def delivered(self, base_offset: int) -> None:
        self.delivery.written.append(BatchMetadata(*self.partition, base_offset, self.record_count))
        self.delivery.settle()

    def failed(self, error: HeadraceError) -> None:
        self.delivery.error = self.delivery.error or error
        self.delivery.settle()

    def overlooked(self) -> int:
        return self.record_count if self.delivery.future.is_overlooked else 0

    @property
    def has_callbacks(self) -> bool:
        return self.delivery.future.has_callbacks


Batch = RowBatch | ColumnBatch
