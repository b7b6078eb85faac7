"""Records of `headrace produce` on their way: in columns where many are at hand, one by one where they trickle.

Columns cost a tenth of what records cost, and a record that somebody types must not wait for a second one: so whoever
reads the input says when he is about to wait for more (`send_all`), and what was read by then goes. Used by one thread.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.cli.deliveries import Deliveries
from headrace.cli.line_formats import InputRecord
from headrace.cli.progress import Tally
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer

_RECORDS_AT_ONCE_MAX, _BYTES_AT_ONCE_MAX = 10_000, 1 << 20
"""Of one call: enough to be worth it, few enough to spread over partitions."""
_COLUMNS_FROM = 50
"""Fewer records are sent one by one: the producer's linger makes batches of them, columns would be a batch each. So are
those with headers, which columns do not have."""


@dataclass(slots=True)
class Sending:
    producer: "Producer"
    topic: str
    partition: int | None
    deliveries: Deliveries
    tally: Tally
    keyed: int = 0
    """Records with a key."""
    _read: list[InputRecord] = field(default_factory=list)
    _read_bytes: int = 0

    def add(self, record: InputRecord) -> None:
        """Raises the first failure of what was sent before."""
        self._read.append(record)
        self._read_bytes += len(record.value or b"")
        if len(self._read) >= _RECORDS_AT_ONCE_MAX or self._read_bytes >= _BYTES_AT_ONCE_MAX:
            self.send_all()

    def send_all(self) -> None:
        """All that was added, and not sent yet. Raises as `add` does."""
        read, size_bytes = self._read, self._read_bytes
        self._read, self._read_bytes = [], 0
        keys = [record.key for record in read]
        keyed = len(keys) - keys.count(None)
        by_columns = len(read) >= _COLUMNS_FROM and not any(record.headers for record in read)
        if not by_columns or not self._send_columns(read, keys if keyed else None):
            for record in read:
                self._send(record)
        self.keyed += keyed
        self.tally.records += len(read)
        self.tally.bytes += size_bytes

    def _send_columns(self, records: list[InputRecord], keys: list[bytes | None] | None) -> bool:
        """False where one of them is too large: nothing is sent then."""
        values, times = [record.value for record in records], [record.timestamp_ms for record in records]
        try:
            future = self.producer.send_batch(
                self.topic,
                values=values,
                keys=keys,
                partition=self.partition,
                timestamps_ms=None if None in times else times,
            )
        except HeadraceError as error:
            if error.status != 413:
                raise
            return False
        self.deliveries.add(future, len(records))
        return True

    def _send(self, record: InputRecord) -> None:
        try:
            future = self.producer.send(
                self.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=self.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except HeadraceError as error:
            if error.status != 413:
                raise
            raise type(error)(f"line {record.line}: {error.message}", **error.details) from error
        self.deliveries.add(future, 1)
