"""The part of a producer that needs no I/O: options, the routes of topics, the partitioner, and the checks of records.

`Writer` is the base of `Producer` and `AsyncProducer`, which add threads or tasks, and the waiting.
`ProducerOptions` checks each option once, with one sentence for each that breaks a rule.

`Partitioning` chooses a record's partition: by the user's function, by the key's hash, or without a key by the sticky
partition, which changes every `STICKY_BYTES`. The hash is Kafka's murmur2, so keys land where a Kafka user expects
them. A `partition=` of the caller comes before all of this; it is checked here too. There is one `Partitioning` for
each layout of a topic; the callers' threads share only the sticky partition, where any answer will do.

A record that may be too large for its topic is encoded as a batch of its own, and that size decides.
"""

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from operator import index
from time import time_ns
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.client.clock import epoch_ms
from headrace.client.producer.batches import BATCH_OVERHEAD_BYTES, Batch, Row, row_bytes
from headrace.client.producer.columns import (
    Columns,
    by_partition,
    checked_columns,
    column_pieces,
    cut,
    is_iterated,
    row_sizes,
)
from headrace.client.record import (
    Bytes,
    HeadersInput,
    Time,
    TopicPartition,
    as_bytes,
    as_headers,
    as_timestamp_ms,
    as_topic,
    check_options,
)
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.client.transport.errands import BrokerErrands, Errand
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import BatchTooLargeError, HeadraceError, LocalError, UnknownPartitionError
from headrace.core.limits import (
    DELIVERY_TIMEOUT_MS_DEFAULT,
    PRODUCE_TIMEOUT_MS_DEFAULT,
    PRODUCER_BATCH_BYTES_DEFAULT,
    PRODUCER_BUFFER_BYTES_DEFAULT,
)
from headrace.core.murmur2 import partition_for_key
from headrace.core.partitioner import NO_KEY, StickyRoundRobin, partitions_for_keys
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import Compression

STICKY_BYTES = 64 << 10
"""The bytes after which records without a key go to the next partition (KIP-794)."""
PARTITION_CACHE_KEYS_MAX = 1 << 16
"""The number of keys whose partitions a client process remembers: keys repeat, and hashing is `send`'s dearest step."""


Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""The user's function: `partitioner(topic, key, value, partition_count)` gives the partition's number."""

_partition_for_key = lru_cache(maxsize=PARTITION_CACHE_KEYS_MAX)(partition_for_key)
Acks: TypeAlias = Literal["all", "1", "0"] | int
CompressionName: TypeAlias = Literal["none", "lz4", "zstd"]
_ACKS: Final = ("all", "1", "0")
_log = logging.getLogger(__name__)


class Partitioning:
    def __init__(self, topic: str, partition_count: int, partitioner: Partitioner | None, *, start: int) -> None:
        """Choose partitions of one topic. `start`, any number, spreads producers over the partitions."""
        self.topic, self.partition_count = topic, partition_count
        self._partitioner = partitioner
        self._sticky = StickyRoundRobin(partition_count, sticky_bytes=STICKY_BYTES, start=start)

    def choose(self, key: bytes | None, value: bytes | None, record_bytes: int) -> int:
        if self._partitioner is not None:
            return self._chosen_by_user(key, value)
        if key is not None:
            return _partition_for_key(key, self.partition_count)
        return self._sticky.partition_for(record_bytes)

    def check(self, partition: int) -> int:
        """Return the number. Raises UnknownPartitionError where the topic does not have it, TypeError for no number."""
        if not hasattr(partition, "__index__"):
            raise TypeError(f"partition is {type(partition).__name__}, not int: give its number, or leave it out")
        if not 0 <= partition < self.partition_count:
            raise UnknownPartitionError(
                f"partition {partition} of {self.topic} does not exist: it has {self.partition_count}, numbered from 0",
                partitions=self.partition_count,
            )
        return partition

    def divide(self, records: Any, partition: int | None, batch_bytes: int) -> Iterator[tuple[int, Any, int]]:
        """Yield columns (RECORD_SCHEMA) as (partition, slice, upper bound of its bytes), each slice one batch."""
        if partition is not None:
            groups: Iterator[tuple[int, Any]] = iter([(self.check(partition), records)])
        elif self._partitioner is None and records.column("key").null_count == records.num_rows:
            groups = iter([(NO_KEY, records)])
        else:
            groups = by_partition(records, self._partitions_of(records))
        for group, rows in groups:
            for batch, size_bytes in cut(rows, batch_bytes):
                yield (self._sticky.partition_for(size_bytes) if group == NO_KEY else group), batch, size_bytes

    def _partitions_of(self, records: Any) -> npt.NDArray[np.int64]:
        if self._partitioner is None:
            partitions = partitions_for_keys(records.column("key"), self.partition_count)
            return self._without_gaps(partitions, records)
        # A function of the user's own cannot see columns: this one path runs Python for each row.
        pairs = zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
        return np.fromiter((self._chosen_by_user(key, value) for key, value in pairs), np.int64, records.num_rows)

    def _without_gaps(self, partitions: npt.NDArray[np.int64], records: Any) -> npt.NDArray[np.int64]:
        """Give records without a key the partitions that `choose` would: they keep their place among the others."""
        keyless = np.flatnonzero(partitions == NO_KEY)
        if len(keyless):
            sizes = row_sizes(records.column("value"), records.column("key"))[keyless]
            shares = (np.cumsum(sizes) - sizes) // STICKY_BYTES
            starts = np.flatnonzero(np.diff(shares, prepend=-1))
            chosen = [self._sticky.partition_for(int(size)) for size in np.add.reduceat(sizes, starts)]
            partitions[keyless] = np.repeat(chosen, np.diff(starts, append=len(keyless)))
        return partitions

    def _chosen_by_user(self, key: bytes | None, value: bytes | None) -> int:
        assert self._partitioner is not None, "only asked where the user gave a function"
        answer = self._partitioner(self.topic, key, value, self.partition_count)
        try:
            partition = index(answer)
        except TypeError:
            partition = -1
        if not 0 <= partition < self.partition_count:
            raise LocalError(
                f"the partitioner gave {answer!r} for {self.topic}: it must give a whole number"
                f" from 0 to {self.partition_count - 1}"
            )
        return partition


_COMPRESSIONS: Final[Mapping[str, Compression]] = {c.name.lower(): c for c in Compression}


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: str
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int
    compression: Compression
    partitioner: Partitioner | None
    delivery_timeout_ms: int
    request_timeout_ms: int
    is_idempotent: bool = False

    def __post_init__(self) -> None:
        _choice("acks", self.acks, _ACKS)
        if self.is_idempotent and self.acks != "all":
            raise ValueError(
                f"enable_idempotence=True needs acks='all', acks is {self.acks!r}: who does not wait until a record is"
                " safe cannot know whether to repeat it; leave one of the two out"
            )
        _at_least("linger_ms", self.linger_ms, 0)
        _at_least("batch_bytes", self.batch_bytes, 2 * BATCH_OVERHEAD_BYTES)
        _at_least("buffer_bytes", self.buffer_bytes, self.batch_bytes)
        _at_least("request_timeout_ms", self.request_timeout_ms, 1)
        _at_least("delivery_timeout_ms", self.delivery_timeout_ms, 1)


def as_compression(name: str) -> Compression:
    _choice("compression", name, _COMPRESSIONS)
    return _COMPRESSIONS[name]


def _choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise LocalError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} is {type(value).__name__}, not int: it must be at least {least}")
    if value < least:
        raise LocalError(f"{name} is {value}: it must be at least {least}")


def check_row(row: Row, size_bytes: int, layout: TopicLayout, compression: Compression) -> None:
    """Raise BatchTooLargeError for a row that no batch can hold. `size_bytes` is the upper bound of `row_bytes`."""
    if size_bytes + BATCH_OVERHEAD_BYTES > layout.max_message_bytes:
        key, value, timestamp_ms, headers = row
        single = record_columns([value], [key], timestamps_ms=timestamp_ms, headers=[headers] if headers else None)
        _check_fits(single, "the record", layout, compression)


def check_rows(columns: Columns, layout: TopicLayout, compression: Compression) -> None:
    """Check columns as `check_row` checks a row: the error names the first row that is too large."""
    for number in columns.large_rows(layout.max_message_bytes - BATCH_OVERHEAD_BYTES):
        _check_fits(columns.records(number, 1), f"the record in row {number}", layout, compression)


def _check_fits(single: Any, what: str, layout: TopicLayout, compression: Compression) -> None:
    size = sum(len(buffer) for buffer in encode_batch(single, compression=compression))
    if size > layout.max_message_bytes:
        raise BatchTooLargeError(
            f"{what} takes {size} bytes as a batch of its own, and {layout.topic} takes {layout.max_message_bytes}:"
            " split it, or raise spec.maxMessageBytes of the topic",
            limit=layout.max_message_bytes,
        )


@dataclass(frozen=True, slots=True)
class Route:
    """The facts of a topic that `send` needs; it is replaced whole when the topic's metadata changes."""

    layout: TopicLayout
    partitioning: Partitioning
    places: list[TopicPartition]
    batch_bytes: int


class Taking(Protocol):
    """A sender, which takes records until it is closed or broken."""

    closed: bool

    @property
    def broken(self) -> HeadraceError | None: ...


class Writer(ABC):
    """Writes records to topics.

    `server` is any broker's URL (several, separated by commas, are tried in order); without it `HEADRACE_SERVER`, then
    the running `headrace dev`; `ca_file` is the bundle that `https` brokers are verified against, else
    `HEADRACE_CA_FILE`, else the system's roots. `acks`: `all` waits until the record is as safe as the topic promises,
    `1` until the leader has it, `0` for nothing. Records wait `linger_ms` for company; `send` waits once `buffer_bytes`
    are on their way. A record that cannot be written within `delivery_timeout_ms` fails with the last error.

    A producer with `acks="all"` is idempotent, unless `enable_idempotence` is False: brokers write each record once, in
    the order of `send`, after lost answers and retries too; a record whose future raises may be written or not.
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
        self._options = ProducerOptions(
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
        """Start the sender of the records, and return the directory."""

    def _row(self, value: Bytes, key: Bytes, headers: HeadersInput, timestamp_ms: Time | None) -> Row:
        return (
            key if key is None or type(key) is bytes else as_bytes("key", key),
            value if type(value) is bytes else as_bytes("value", value),
            time_ns() // 1_000_000 if timestamp_ms is None else as_timestamp_ms(timestamp_ms),
            as_headers(headers) if headers else (),
        )

    def _checked_size(self, row: Row, route: Route) -> int:
        """Return an upper bound of the row's size. Raises BatchTooLargeError where no batch can hold the row."""
        size = row_bytes(row)
        if size + BATCH_OVERHEAD_BYTES > route.batch_bytes:
            check_row(row, size, route.layout, self._options.compression)
        return size

    def _known_route(self, topic: str) -> Route | None:
        """Return the topic's route, with metadata that others have learnt. None: a broker must be asked first."""
        route = self._routes.get(topic)
        newest = self._directory.newest(topic if route is not None else as_topic(topic))
        if route is not None and (newest is route.layout or newest is None):
            return route
        return None if newest is None else self._take_route(newest)

    def _new_route(self, brokers: BrokerErrands, sender: Taking, topic: str) -> Errand[Route]:
        """Ask for a topic's metadata and return its route. Raises LocalError where the producer is closed."""
        if sender.closed and sender.broken is None:
            raise closed_error()
        layout = yield from brokers.layout(topic)
        return self._take_route(layout)

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
        """Yield the columns of `send_batch`: whole, or piece by piece where an iterator gives them."""
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
        except Exception as error:  # The caller's iterator or its entries failed: the caller may want to go on.
            error.add_note(f"send_batch: the first {given} records were queued before this, and no others")
            raise

    def _divided(
        self, route: Route, columns: Columns, partition: int | None
    ) -> Iterator[tuple[TopicPartition, Any, int]]:
        """Yield batches of `columns`, ready to be queued: partition, columns, upper bound of the bytes.

        Raises BatchTooLargeError before the first of them where a row fits no batch.
        """
        check_rows(columns, route.layout, self._options.compression)
        for piece in columns.pieces(max(route.batch_bytes, self._piece_bytes)):
            for number, records, size in route.partitioning.divide(piece, partition, route.batch_bytes):
                yield route.places[number], records, size

    @property
    def _piece_bytes(self) -> int:
        return self._options.buffer_bytes // 4


# `help` and editors that ask for the signature find the options.
update_wrapper(Writer.__new__, Writer.__init__, assigned=(), updated=())


def closed_error() -> LocalError:
    return LocalError("this producer is closed (or was made before a fork): make a new one")


def as_raised(error: HeadraceError) -> HeadraceError:
    """Return a copy of the error to raise: one exception that several raise would gather all their tracebacks."""
    return type(error)(error.message, **error.details)


def unsendable(batch: Batch, error: Exception) -> HeadraceError:
    """Log a mistake in the SDK that stops a batch, and return the error with which the batch is given up."""
    _log.error("a batch for %s could not be sent", batch.partition, exc_info=error)
    return HeadraceError(f"a batch for {batch.partition} could not be sent: {error!r}")
