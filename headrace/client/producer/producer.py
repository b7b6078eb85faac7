"""`Producer`: the blocking way to write records.

It owns its connections, its buffer and a thread that sends, from construction to `close`. Every method may be called
from several threads; records that one thread sends to a partition are written in the order of its calls, retries
included.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from headrace.client.clock import now_ms
from headrace.client.producer.batches import ColumnBatch, ColumnsDelivery
from headrace.client.producer.columns import Columns
from headrace.client.producer.deliveries import BatchesDelivery, Delivery
from headrace.client.producer.sender import Sender
from headrace.client.producer.writer import Route, Writer, as_raised, closed_error
from headrace.client.record import Bytes, HeadersInput, Time, TopicPartition
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import StalledError
from headrace.http2.interrupts import HeldInterrupts


class Producer(Writer):
    __doc__ = Writer.__doc__

    def _open(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> Directory:
        self._brokers = Brokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=self._options.delivery_timeout_ms,
            request_timeout_ms=self._options.request_timeout_ms,
        )
        with HeldInterrupts():  # An interrupt in between would leave a thread that nobody ends.
            self._sender = Sender(self._brokers, self._options)
            self._finalizer = weakref.finalize(self, Sender.close, self._sender)
        return self._brokers.directory

    def send(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        *,
        headers: HeadersInput = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> Delivery:
        """Queue one record; the future gives its partition and offset, or raises why it was not acknowledged.

        Text is stored as UTF-8, a value of None is a tombstone. Without `partition` the user's partitioner chooses,
        else the key's murmur2 hash as Kafka's clients compute it, else records without a key take turns. It waits while
        the buffer is full, and for the metadata of a topic that is new to this producer. `timestamp_ms` may be a
        datetime: local time where it has no zone. Raises TypeError, UnknownTopicError, UnknownPartitionError and
        BatchTooLargeError at once.
        """
        row = self._row(value, key, headers, timestamp_ms)
        route = self._known_route(topic) or self._route(topic)
        size = self._checked_size(row, route)
        sender, accumulator = self._sender, self._sender.in_flight.accumulator
        with sender.lock:
            if sender.closed or accumulator.buffered_bytes + size > self._options.buffer_bytes:
                self._wait_for_room(size)
            chosen = route.partitioning
            number = chosen.choose(row[0], row[1], size) if partition is None else chosen.check(partition)
            batch = accumulator.joined_batch(place := route.places[number], size, route.batch_bytes)
            if batch is None:
                batch = accumulator.new_rows(place, size, now_ms())
                delivery = batch.add(row)
                if self._options.linger_ms:
                    sender.work.notify()  # The sender looks when the lock is free, after the row is queued.
                else:
                    sender.is_left = True
                accumulator.put_rows(batch)
            else:
                delivery = batch.add(row)
        if sender.is_left:
            sender.send_now()
        return delivery

    def send_batch(
        self,
        topic: str,
        *,
        values: Any,
        keys: Any = None,
        partition: int | None = None,
        timestamps_ms: Any = None,
    ) -> BatchesDelivery:
        """Queue columns of records; the future gives one BatchMetadata per batch written, by partition and offset.

        `values` and `keys` are lists, Arrow arrays or table columns, pandas Series or NumPy arrays of bytes or text,
        with None for null, or iterators (generators) of such, which are taken piece by piece as the buffer has room;
        `timestamps_ms` is None (now), a number or a datetime for all, or a column of such: datetimes without a zone are
        local time, but Arrow's, NumPy's and pandas' UTC. Records of one partition keep their order. Where some batches
        fail, the future raises the first error, and others may be written. Raises as `send` does, and ValueError for
        columns of different lengths: before anything is queued, but where an iterator gives them, or raises, the pieces
        before are sent; a note of the error says how many records that are.
        """
        return self._send_columns(topic, self._pieces(values, keys, timestamps_ms), partition)

    def send_records(self, topic: str, records: Any, *, partition: int | None = None) -> BatchesDelivery:
        """Do what `send_batch` does, for a pyarrow.RecordBatch with a batch's columns (RECORD_SCHEMA), headers too."""
        return self._send_columns(topic, [Columns.of(records)], partition)

    def send_whole(self, partition: TopicPartition, records: Any, size_bytes: int) -> BatchesDelivery:
        """Send one record batch, as it is: `size_bytes`, which `divided` gives, is known to fit.

        It does not warn of strange times: the stager, which knows the records' topic, does.
        """
        future = BatchesDelivery()
        delivery = ColumnsDelivery(future)
        self._queue(partition, records, size_bytes, delivery, times_seen=True)
        delivery.settle()
        return future

    def divided(
        self, topic: str, records: Any, partition: int | None = None
    ) -> Iterator[tuple[TopicPartition, Any, int]]:
        """Yield the batches that `send_records` would write: partition, columns, upper bound of the bytes."""
        route = self._known_route(topic) or self._route(topic)
        return self._divided(route, Columns.of(records), partition)

    def layout(self, topic: str) -> TopicLayout:
        """Return the topic's metadata; ask a broker where it is not known. Raises UnknownTopicError."""
        return (self._known_route(topic) or self._route(topic)).layout

    def _send_columns(self, topic: str, pieces: Iterable[Columns], partition: int | None) -> BatchesDelivery:
        future = BatchesDelivery()
        delivery = ColumnsDelivery(future)
        for columns in pieces:
            route = self._known_route(topic) or self._route(topic)
            for place, records, size in self._divided(route, columns, partition):
                self._queue(place, records, size, delivery)
        delivery.settle()
        return future

    def _queue(
        self, place: TopicPartition, records: Any, size: int, delivery: ColumnsDelivery, *, times_seen: bool = False
    ) -> None:
        with self._sender.lock:
            self._wait_for_room(size)
            delivery.expect()
            batch = ColumnBatch(place, now_ms(), size, records, delivery, times_seen=times_seen)
            self._sender.work.notify()
            self._sender.in_flight.accumulator.put_columns(batch)

    def flush(self) -> None:
        """Wait until everything that was sent has been written or has failed.

        Raises the first failure whose future nobody has looked at, so that no record is lost in silence,
        StalledError where nothing moves any more, and LocalError in the child of a fork, which cannot know.
        """
        self._sender.flush()
        with self._sender.lock:
            self._sender.in_flight.raise_overlooked()

    def close(self) -> None:
        """Flush, and end the connections. Raises as `flush` does. Safe to call again."""
        if not self._finalizer.alive or self._sender.is_parents:
            return
        try:
            if not self._sender.has_ended:
                self.flush()
        finally:
            self._end()

    def _end(self) -> None:
        """Close the sender. An interrupt leaves the finalizer, so that another call closes the sender."""
        try:
            self._sender.close()
        except Exception:
            self._finalizer.detach()
            raise
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:  # The error on its way matters more than records that were lost with it.
            with suppress(StalledError):
                self._end()

    def _route(self, topic: str) -> Route:
        return self._brokers.run(self._new_route(self._brokers, self._sender, topic))

    def _wait_for_room(self, size_bytes: int) -> None:
        """Wait until `size_bytes` fit. The caller holds the lock."""
        sender = self._sender
        while not sender.closed and not sender.in_flight.has_room(size_bytes):
            sender.in_flight.accumulator.close_batches()
            sender.work.notify()
            sender.wait_for_progress()
        if sender.closed:
            raise closed_error() if sender.broken is None else as_raised(sender.broken)
