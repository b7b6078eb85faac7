"""`Producer`: the blocking way to write records.

Owns its connections, its buffer and a thread that sends, from construction to `close`. Every method may be called from
several threads; what one thread sends to a partition is written in the order of its calls, retries included.
"""

import random
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from headrace.client.accumulator import Accumulator
from headrace.client.batches import (
    BATCH_OVERHEAD_BYTES,
    ColumnBatch,
    ColumnsDelivery,
    Delivery,
    row_bytes,
)
from headrace.client.brokers import Brokers, now_ms
from headrace.client.columns import batch_columns, pieces
from headrace.client.discovery import Servers
from headrace.client.fitting import check_row, check_rows
from headrace.client.layout import TopicLayout
from headrace.client.partitioning import Partitioner, Partitioning
from headrace.client.record import BatchMetadata, RecordMetadata, TopicPartition
from headrace.client.sender import Sender
from headrace.client.values import Bytes, HeadersInput, as_bytes, as_headers, as_timestamp_ms, as_topic
from headrace.core.errors import LocalError
from headrace.core.limits import (
    DELIVERY_TIMEOUT_MS_DEFAULT,
    PRODUCE_TIMEOUT_MS_DEFAULT,
    PRODUCER_BATCH_BYTES_DEFAULT,
    PRODUCER_BUFFER_BYTES_DEFAULT,
)
from headrace.core.records.header import Compression

Acks = Literal["all", "1", "0"] | int
_COMPRESSIONS: Final[Mapping[str, Compression]] = {c.name.lower(): c for c in Compression}
_ACKS: Final = ("all", "1", "0")


@dataclass(frozen=True, slots=True)
class _Route:
    """All that `send` needs to know of a topic; replaced whole when its metadata changes."""

    layout: TopicLayout
    partitioning: Partitioning
    places: list[TopicPartition]
    batch_bytes: int


class Producer:
    """Writes records to topics.

    `server` is any broker's URL (several, separated by commas, are tried in order); without it `HEADRACE_SERVER`, then
    the running `headrace dev`; `ca_file` is the bundle that `https` brokers are verified against, else
    `HEADRACE_CA_FILE`, else the system's roots. `acks`: `all` waits until the record is as safe as the topic promises, `1` until the
    leader has it, `0` for nothing. Records wait `linger_ms` for company; `send` waits once `buffer_bytes` are on their
    way. What cannot be written within `delivery_timeout_ms` fails with the last error.

    A retry after an answer that was lost may write a batch a second time; it never changes the order of records. (Each
    record exactly once comes with idempotent producers, which come with replication.)
    """

    def __init__(  # noqa: PLR0913 - the SDK's own signature: named options, each with its default
        self,
        server: str | Servers | None = None,
        namespace: str | None = None,
        acks: Acks = "all",
        linger_ms: int = 5,
        *,
        batch_bytes: int = PRODUCER_BATCH_BYTES_DEFAULT,
        buffer_bytes: int = PRODUCER_BUFFER_BYTES_DEFAULT,
        compression: Literal["none", "lz4", "zstd"] = "none",
        partitioner: Partitioner | None = None,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS_DEFAULT,
        request_timeout_ms: int = PRODUCE_TIMEOUT_MS_DEFAULT,
        ca_file: str | None = None,
    ) -> None:
        _choice("compression", compression, _COMPRESSIONS)
        _choice("acks", str(acks), _ACKS)
        _at_least("linger_ms", linger_ms, 0)
        _at_least("batch_bytes", batch_bytes, 2 * BATCH_OVERHEAD_BYTES)
        _at_least("buffer_bytes", buffer_bytes, batch_bytes)
        _at_least("request_timeout_ms", request_timeout_ms, 1)
        _at_least("delivery_timeout_ms", delivery_timeout_ms, 1)
        self._compression = _COMPRESSIONS[compression]
        self._batch_bytes, self._buffer_bytes = batch_bytes, buffer_bytes
        self._partitioner = partitioner
        self._routes: dict[str, _Route] = {}
        self._brokers = Brokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._accumulator = Accumulator(linger_ms=linger_ms, timeout_ms=delivery_timeout_ms)
        self._sender = Sender(
            self._brokers,
            self._accumulator,
            acks=str(acks),
            compression=self._compression,
            timeout_ms=delivery_timeout_ms,
        )
        self._finalizer = weakref.finalize(self, Sender.close, self._sender)

    def send(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        *,
        headers: HeadersInput = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery[RecordMetadata]:
        """Queue one record; the future gives its partition and offset, or raises why it was not written.

        Text is stored as UTF-8, a value of None is a tombstone. Without `partition` the user's partitioner chooses,
        else the key's murmur2 hash as Kafka's clients compute it, else records without a key take turns. Waits while
        the buffer is full, and for the metadata of a topic that is new to this producer. Raises TypeError,
        UnknownTopicError, UnknownPartitionError and BatchTooLargeError at once.
        """
        row = (
            as_bytes("key", key),
            as_bytes("value", value),
            time.time_ns() // 1_000_000 if timestamp_ms is None else as_timestamp_ms(timestamp_ms),
            as_headers(headers) if headers else (),
        )
        route = self._route(topic)
        size = row_bytes(*row)
        if size + BATCH_OVERHEAD_BYTES > route.batch_bytes:
            check_row(row, size, route.layout, self._compression)
        with self._sender.lock:
            self._wait_for_room(size)
            number = (
                route.partitioning.choose(row[0], row[1], size)
                if partition is None
                else route.partitioning.check(partition)
            )
            batch, opened = self._accumulator.open_batch(
                route.places[number], size, batch_bytes=route.batch_bytes, now_ms=now_ms()
            )
            if opened:
                self._sender.work.notify()
            return batch.add(row, size)

    def send_batch(
        self,
        topic: str,
        *,
        values: Any,
        keys: Any = None,
        partition: int | None = None,
        timestamps_ms: Any = None,
    ) -> Delivery[tuple[BatchMetadata, ...]]:
        """Queue columns of records; the future gives one BatchMetadata per batch written, by partition and offset.

        `values` and `keys` are lists, Arrow arrays or table columns, pandas Series or NumPy arrays of bytes or text,
        with None for null; `timestamps_ms` is None (now), a number, or a column of numbers or times. Records of one
        partition keep their order. Where some batches fail, the future raises the first error, and others may be
        written. Raises as `send` does, and ValueError for columns of different lengths.
        """
        records = batch_columns(values, keys, timestamps_ms, time.time_ns() // 1_000_000)
        route = self._route(topic)
        check_rows(records, route.layout, self._compression)
        delivery = ColumnsDelivery()
        for piece in pieces(records, max(route.batch_bytes, self._buffer_bytes // 4)):
            for number, columns, size in route.partitioning.divide(piece, partition, route.batch_bytes):
                with self._sender.lock:
                    self._wait_for_room(size)
                    delivery.expect()
                    batch = ColumnBatch(route.places[number], now_ms(), size, columns, delivery)
                    self._accumulator.add_columns(batch)
                    self._sender.work.notify()
        delivery.settle()
        return delivery.future

    def flush(self) -> None:
        """Wait until everything that was sent has been written or has failed.

        Raises the first failure whose future nobody has looked at, so that no record is lost in silence.
        """
        self._sender.flush()
        with self._sender.lock:
            failed = [(batch.overlooked(), error) for batch, error in self._sender.failed]
            self._sender.failed.clear()
        overlooked = [(count, error) for count, error in failed if count]
        if overlooked:
            total, first = sum(count for count, _ in overlooked), overlooked[0][1]
            raise type(first)(f"{total} records were not written: {first.message}", **first.details)

    def close(self) -> None:
        """Flush, and end the connections. Raises as `flush` does. Safe to call again."""
        try:
            self.flush()
        finally:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:  # The error on its way matters more than records that were lost with it.
            self._finalizer()

    def _route(self, topic: str) -> "_Route":
        route = self._routes.get(topic)
        # The workers keep metadata fresh; what they learnt is taken over, but never waited for.
        newest = self._brokers.known_layout(topic if route is not None else as_topic(topic))
        if route is not None and (newest is route.layout or newest is None):
            return route
        layout = newest or self._brokers.layout(topic)
        count = len(layout.partitions)
        route = self._routes[topic] = _Route(
            layout,
            Partitioning(topic, count, self._partitioner, start=random.randrange(count)),
            [TopicPartition(topic, number) for number in range(count)],
            min(self._batch_bytes, layout.max_message_bytes),
        )
        return route

    def _wait_for_room(self, size_bytes: int) -> None:
        """Under the lock: until `size_bytes` fit; a record larger than the buffer waits for all others."""
        accumulator = self._accumulator
        while not self._sender.closed:
            if not accumulator.buffered_bytes or accumulator.buffered_bytes + size_bytes <= self._buffer_bytes:
                return
            accumulator.close_batches()
            self._sender.work.notify()
            self._sender.progress.wait()
        raise LocalError("this producer is closed (or was made before a fork): make a new one")


def _choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise LocalError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} is {type(value).__name__}, not int: it must be at least {least}")
    if value < least:
        raise LocalError(f"{name} is {value}: it must be at least {least}")
