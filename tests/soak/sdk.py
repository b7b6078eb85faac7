"""The SDK at full load during a soak: one producer with many batches in flight, one consumer of all partitions.

The producer retries by itself, and is idempotent: a batch whose answer was lost is there once all the same.
"""

from collections import deque
from typing import Any, Final

from headrace import Consumer, Producer
from headrace.core.errors import OffsetOutOfRangeError
from headrace.http2.blocking_transport import BlockingTransport
from tests.soak.journal import ROWS, DamagedBatchError, entries_of, values_of
from tests.soak.member import Member, Place, start_of
from tests.support.hardy_clients import KNOCK_S
from tests.support.history import Entry

_IN_FLIGHT: Final = 100
"""Batches."""
_DELIVERY_TIMEOUT_MS: Final = 60_000


class SdkWriter(Member):
    """Columns to all partitions of a topic, in turns."""

    def __init__(self, places: list[Place], server: str) -> None:
        super().__init__(places[0])
        self.acknowledged: list[Entry] = []
        self._places = places
        self._server = server
        self._sent = 0
        self._on_their_way: deque[tuple[int, bytes, Any]] = deque()

    def _work(self) -> None:
        with Producer(server=self._server, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS) as producer:
            while not self._stopped.is_set():
                self._sent += 1
                partition, name = self._sent % len(self._places), f"s-{self._sent}".encode()
                sending = producer.send_batch(self.place.topic, values=values_of(name), partition=partition)
                self._on_their_way.append((partition, name, sending))
                if len(self._on_their_way) >= _IN_FLIGHT:
                    self._await_oldest()
            while self._on_their_way:
                self._await_oldest()

    def _await_oldest(self) -> None:
        partition, name, sending = self._on_their_way.popleft()
        (written,) = sending.result(2 * _DELIVERY_TIMEOUT_MS / 1000)
        place, rest = divmod(written.base_offset, ROWS)
        if rest or written.record_count != ROWS:
            self.troubles.wrong.append(f"{name!r} was written as {written}")
        self.acknowledged.append(Entry(self._places[partition].number, place, name))


class SdkReader(Member):
    """All partitions from the start, as far as retention lets it."""

    def __init__(self, places: list[Place], server: str) -> None:
        super().__init__(places[0])
        self.seen: list[Entry] = []
        self.skipped: dict[int, list[range]] = {place.number: [] for place in places}
        self.offsets = [0] * len(places)
        """Where it goes on, by partition."""
        self._places = places
        self._server = server

    def _work(self) -> None:
        with Consumer(self.place.topic, server=self._server) as consumer:
            for partition, offset in enumerate(self.offsets):
                consumer.seek(partition, offset)
            while not self._stopped.is_set():
                try:
                    self._read(consumer)
                except OffsetOutOfRangeError:
                    self._skip(consumer)
                self._stopped.wait(KNOCK_S)

    def _read(self, consumer: Consumer) -> None:
        for batch in consumer.batches(follow=False):
            partition, first = batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py()
            try:
                values = batch.column("value").to_pylist()
                self.seen += entries_of(self._places[partition].number, first, values)
            except DamagedBatchError as error:
                self.troubles.wrong.append(f"{self.name}: {error}")
            self.offsets[partition] = first + batch.num_rows
            if self._stopped.is_set():
                return

    def _skip(self, consumer: Consumer) -> None:
        """To where each log begins now."""
        with BlockingTransport() as transport:
            for partition, place in enumerate(self._places):
                start, here = start_of(transport, place), self.offsets[partition]
                if start is not None and start > here:
                    self.skipped[place.number].append(range(here // ROWS, start // ROWS))
                    self.offsets[partition] = start
                    consumer.seek(partition, start)
