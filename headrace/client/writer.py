"""What every producer knows and decides, whatever carries it out: options, routes of topics, rows, columns in pieces.

`Writer` is the base of `Producer` and `AsyncProducer`, which add threads or tasks, and the waiting. It does no I/O.
"""

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import update_wrapper
from time import time_ns
from typing import Any, Self

from headrace.client.batches import BATCH_OVERHEAD_BYTES, Batch, Row, row_bytes
from headrace.client.clock import epoch_ms
from headrace.client.columns import Columns, checked_columns
from headrace.client.directory import Directory
from headrace.client.discovery import Servers
from headrace.client.fitting import check_row, check_rows
from headrace.client.iterated import column_pieces, is_iterated
from headrace.client.layout import TopicLayout
from headrace.client.partitioning import Partitioner, Partitioning
from headrace.client.record import TopicPartition
from headrace.client.values import (
    Bytes,
    HeadersInput,
    Time,
    as_bytes,
    as_headers,
    as_timestamp_ms,
    as_topic,
    check_options,
)
from headrace.client.write_options import Acks, CompressionName, WriteOptions, as_compression
from headrace.core.errors import HeadraceError, LocalError
from headrace.core.limits import (
    DELIVERY_TIMEOUT_MS_DEFAULT,
    PRODUCE_TIMEOUT_MS_DEFAULT,
    PRODUCER_BATCH_BYTES_DEFAULT,
    PRODUCER_BUFFER_BYTES_DEFAULT,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """All that `send` needs to know of a topic; replaced whole when its metadata changes."""

    layout: TopicLayout
    partitioning: Partitioning
    places: list[TopicPartition]
    batch_bytes: int


class Writer(ABC):
    """Writes records to topics.

    `server` is any broker's URL (several, separated by commas, are tried in order); without it `HEADRACE_SERVER`, then
    the running `headrace dev`; `ca_file` is the bundle that `https` brokers are verified against, else
    `HEADRACE_CA_FILE`, else the system's roots. `acks`: `all` waits until the record is as safe as the topic promises,
    `1` until the leader has it, `0` for nothing. Records wait `linger_ms` for company; `send` waits once `buffer_bytes`
    are on their way. What cannot be written within `delivery_timeout_ms` fails with the last error.

    A producer with `acks="all"` is idempotent, unless `enable_idempotence` is False: whatever answer is lost and tried
    again, brokers write each record once, in the order of `send`; a record whose future raises may be written or not.
    Without idempotence, a retry after a lost answer may write a batch a second time; it never changes the order.
    """

    def __new__(cls, *_: Any, **options: Any) -> Self:
        check_options(cls.__name__, vars(Writer)["__init__"], options)
        return super().__new__(cls)

    def __init__(  # noqa: PLR0913 - the SDK's own signature: named options, each with its default
        self,
        server: str | Servers | None = None,
        namespace: str | None = None,
        acks: Acks = "all",
        linger_ms: int = 5,
        *,
        batch_bytes: int = PRODUCER_BATCH_BYTES_DEFAULT,
        buffer_bytes: int = PRODUCER_BUFFER_BYTES_DEFAULT,
        compression: CompressionName = "none",
        partitioner: Partitioner | None = None,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS_DEFAULT,
        request_timeout_ms: int = PRODUCE_TIMEOUT_MS_DEFAULT,
        enable_idempotence: bool | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._options = WriteOptions(
            str(acks),
            linger_ms,
            batch_bytes,
            buffer_bytes,
            as_compression(compression),
            partitioner,
            delivery_timeout_ms,
            request_timeout_ms,
            str(acks) == "all" if enable_idempotence is None else enable_idempotence,
        )
        self._routes: dict[str, Route] = {}
        self._directory = self._open(server, namespace, ca_file)

    @abstractmethod
    def _open(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> Directory:
        """Start what carries the records."""

    def _row(self, value: Bytes, key: Bytes, headers: HeadersInput, timestamp_ms: Time | None) -> Row:
        return (
            key if key is None or type(key) is bytes else as_bytes("key", key),
            value if type(value) is bytes else as_bytes("value", value),
            time_ns() // 1_000_000 if timestamp_ms is None else as_timestamp_ms(timestamp_ms),
            as_headers(headers) if headers else (),
        )

    def _checked_size(self, row: Row, route: Route) -> int:
        """Upper bound of the row's size. Raises BatchTooLargeError where no batch can hold it."""
        size = row_bytes(row)
        if size + BATCH_OVERHEAD_BYTES > route.batch_bytes:
            check_row(row, size, route.layout, self._options.compression)
        return size

    def _known_route(self, topic: str) -> Route | None:
        """None: the topic's metadata must be asked for first. What others have learnt is taken over."""
        route = self._routes.get(topic)
        newest = self._directory.newest(topic if route is not None else as_topic(topic))
        if route is not None and (newest is route.layout or newest is None):
            return route
        return None if newest is None else self._take_route(newest)

    def _take_route(self, layout: TopicLayout) -> Route:
        count = len(layout.partitions)
        route = self._routes[layout.topic] = Route(
            layout,
            Partitioning(layout.topic, count, self._options.partitioner, start=random.randrange(count)),
            [TopicPartition(layout.topic, number) for number in range(count)],
            min(self._options.batch_bytes, layout.max_message_bytes),
        )
        return route

    def _pieces(self, values: Any, keys: Any, timestamps_ms: Any) -> Iterator[Columns]:
        """The columns of `send_batch`: whole, or piece by piece where an iterator gives them."""
        now = epoch_ms()
        if not any(map(is_iterated, (values, keys, timestamps_ms))):
            yield checked_columns(values, keys, timestamps_ms, now)
            return
        given = 0
        try:
            for piece in column_pieces(values, keys, timestamps_ms, piece_bytes=self._piece_bytes):
                columns = checked_columns(*piece, now)
                yield columns
                given += len(columns)
        except Exception as error:  # The caller's iterator, or what it gave: whoever catches it may want to go on.
            error.add_note(f"send_batch: the first {given} records were queued before this, and no others")
            raise

    def _divided(
        self, route: Route, columns: Columns, partition: int | None
    ) -> Iterator[tuple[TopicPartition, Any, int]]:
        """Batches of `columns`, ready to be queued: partition, columns, upper bound of the bytes.

        Raises BatchTooLargeError before the first of them where a row fits no batch.
        """
        check_rows(columns, route.layout, self._options.compression)
        for piece in columns.pieces(max(route.batch_bytes, self._piece_bytes)):
            for number, records, size in route.partitioning.divide(piece, partition, route.batch_bytes):
                yield route.places[number], records, size

    @property
    def _piece_bytes(self) -> int:
        return self._options.buffer_bytes // 4


# Whoever asks for the signature (help, editors) is told the options.
update_wrapper(Writer.__new__, Writer.__init__, assigned=(), updated=())


def closed_error() -> LocalError:
    return LocalError("this producer is closed (or was made before a fork): make a new one")


def as_raised(error: HeadraceError) -> HeadraceError:
    """The same for one who waits: an exception that several raise would gather all their tracebacks."""
    return type(error)(error.message, **error.details)


def unsendable(batch: Batch, error: Exception) -> HeadraceError:
    """A batch that a mistake in the SDK stops: it is given up, and the mistake is logged."""
    _log.error("a batch for %s could not be sent", batch.partition, exc_info=error)
    return HeadraceError(f"a batch for {batch.partition} could not be sent: {error!r}")
