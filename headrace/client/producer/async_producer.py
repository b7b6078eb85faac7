"""`AsyncProducer`: the way to write records from an event loop.

It owns its connections, its buffer and the tasks that send, from its first use to `close`, on one event loop. Records
that one task sends to a partition are written in the order of its calls, retries included.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from headrace.client.clock import now_ms
from headrace.client.producer.async_sender import AsyncDelivery, AsyncSender
from headrace.client.producer.batches import ColumnBatch, ColumnsDelivery
from headrace.client.producer.writer import Route, Writer
from headrace.client.record import BatchMetadata, Bytes, HeadersInput, RecordMetadata, Time
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.core.errors import HeadraceError

ASYNC_SEND_BURST_RECORDS = 256
"""The number of sends in a row without a wait; then the event loop has its turn, or nothing would leave."""


class AsyncProducer(Writer):
    __doc__ = Writer.__doc__

    def _open(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> Directory:
        self._brokers = AsyncBrokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=self._options.delivery_timeout_ms,
            request_timeout_ms=self._options.request_timeout_ms,
        )
        self._sender = AsyncSender(self._brokers, self._options)
        self._burst_records = 0
        """The number of records sent since the loop had its turn."""
        return self._brokers.directory

    async def send(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        *,
        headers: HeadersInput = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> AsyncDelivery[RecordMetadata]:
        """Queue one record; the future gives its partition and offset, or raises why it was not acknowledged.

        It works as `Producer.send`; it waits while the buffer is full, for the metadata of a topic that is new to this
        producer, and now and then for the event loop. If it is cancelled it has sent nothing; cancelling the future
        does not call its record back.
        """
        row = self._row(value, key, headers, timestamp_ms)
        sender, accumulator = self._sender, self._sender.in_flight.accumulator
        sender.check_loop()
        self._burst_records += 1
        if self._burst_records >= ASYNC_SEND_BURST_RECORDS:
            self._burst_records = 0
            await asyncio.sleep(0)
        route = self._known_route(topic) or await self._route(topic)
        size = self._checked_size(row, route)
        if sender.closed or sender.room.locked() or not sender.in_flight.has_room(size):
            await sender.wait_for_room(size)
        chosen = route.partitioning
        number = chosen.choose(row[0], row[1], size) if partition is None else chosen.check(partition)
        batch = accumulator.joined_batch(place := route.places[number], size, route.batch_bytes)
        if batch is not None:
            return batch.add(row)
        batch = accumulator.new_rows(place, size, now_ms())
        delivery = batch.add(row)
        accumulator.put_rows(batch)
        sender.plan()
        return delivery

    async def send_batch(
        self,
        topic: str,
        *,
        values: Any,
        keys: Any = None,
        partition: int | None = None,
        timestamps_ms: Any = None,
    ) -> AsyncDelivery[tuple[BatchMetadata, ...]]:
        """Queue columns of records, and return the future of one BatchMetadata per batch, by partition and offset.

        It works as `Producer.send_batch`. If it is cancelled it sends the records that it has queued so far, no more.
        """
        sender = self._sender
        sender.check_loop()
        future: AsyncDelivery[tuple[BatchMetadata, ...]] = AsyncDelivery(loop=asyncio.get_running_loop())
        delivery = ColumnsDelivery(future)
        for columns in self._pieces(values, keys, timestamps_ms):
            route = self._known_route(topic) or await self._route(topic)
            for place, records, size in self._divided(route, columns, partition):
                await asyncio.sleep(0)
                await sender.wait_for_room(size)
                delivery.expect()
                sender.in_flight.accumulator.put_columns(ColumnBatch(place, now_ms(), size, records, delivery))
                sender.plan()
        delivery.settle()
        return future

    async def flush(self) -> None:
        """Wait until everything that was sent has been written or has failed.

        Raises the first failure whose future nobody has looked at, so that no record is lost in silence, and
        StalledError where nothing moves any more.
        """
        self._sender.check_loop()
        await self._sender.flush()
        self._sender.in_flight.raise_overlooked()

    async def close(self) -> None:
        """Flush, and end the connections. Raises as `flush` does. Safe to call again.

        If it is cancelled it ends at once, and the futures of records that were not written yet raise an error.
        """
        if self._sender.ended:
            return
        self._sender.check_loop()
        self._sender.refuse()
        try:
            await self.flush()
        finally:
            await self._sender.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        with suppress(HeadraceError):  # The error on its way matters more than records that were lost with it.
            await self.close()

    async def _route(self, topic: str) -> Route:
        return await self._brokers.run(self._new_route(self._brokers, self._sender, topic))
