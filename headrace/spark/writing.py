"""The writing of DataFrames: its options, what tasks do with their rows, and what the driver does when all are done.

    exactly once     each task stages its rows (`client.producer.staging`); the driver's `commit` is one decision, by
                     which a batch of the query is in its topics once, whatever was run again before or after
    at least once    each task writes its rows; `commit` has nothing left to do

A streaming query commits as the writer that its id names, and its batches by their numbers: both are in its checkpoint.
A batch job commits as a writer of its own that has one batch, or as its options name it. Spark pickles the writers:
they hold plain values alone.

Rows have the columns value (text or binary), key, headers (array<struct<key, value>>), topic and partition, as Spark's
Kafka sink has them. Names are compared as Spark does, whatever their case; two that differ in nothing else, as
`spark.sql.caseSensitive` allows, are refused.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self, cast, get_args
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from headrace.client.clock import epoch_ms
from headrace.client.producer.producer import Producer
from headrace.client.producer.staging import Commits, Staged, Stager
from headrace.client.producer.writer import CompressionName
from headrace.client.record import as_topic
from headrace.core.errors import HeadraceError, LocalError
from headrace.core.records.columns import record_columns
from headrace.core.staging.writers import writer_name_problem
from headrace.spark.options import CONNECTION_OPTIONS, Connection, check_names, choice, optional_number, text
from headrace.spark.schema import SOURCE_COLUMNS

_OF_SPARK = ("checkpointLocation", "queryName")
"""The options that Spark passes on."""
WRITE_OPTIONS = (*CONNECTION_OPTIONS, *_OF_SPARK, "topic", "deliveryGuarantee", "compression", "txnAppId", "txnVersion")
_BYTES = (BinaryType, StringType)
_WRITTEN = ("key", "value", "headers", "topic", "partition")
_log = logging.getLogger("headrace.spark")


class Guarantee(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    """The guarantee by which a batch's writes become visible by one decision, whatever was tried before."""
    AT_LEAST_ONCE = "at-least-once"
    """The guarantee by which rows are written as they come: a repeated task may write them twice."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The name of a batch job's write, so that its repetition is known: by options as those of Delta Lake."""

    app_id: str
    version: int

    @classmethod
    def of(cls, options: Mapping[str, str], guarantee: Guarantee) -> Self | None:
        """Return the transaction; None where options name none. Raises LocalError."""
        app_id, version = text(options, "txnAppId"), optional_number(options, "txnVersion", least=0)
        if app_id is None and version is None:
            return None
        if app_id is None or version is None:
            missing = "txnAppId" if app_id is None else "txnVersion"
            raise LocalError(f"{missing} is missing: txnAppId and txnVersion name a write together")
        if guarantee is not Guarantee.EXACTLY_ONCE:
            raise LocalError(f"txnAppId is {app_id!r}, but deliveryGuarantee={guarantee} writes what is repeated again")
        problem = writer_name_problem("txnAppId", app_id)
        if problem is not None:
            raise LocalError(problem)
        return cls(app_id, version)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: Connection
    topic: str | None
    """The topic for all rows; else each row has its own."""
    guarantee: Guarantee
    compression: CompressionName = "none"
    transaction: Transaction | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        check_names(options, WRITE_OPTIONS, "the options of writing")
        topic = text(options, "topic")
        guarantee = choice(options, "deliveryGuarantee", *Guarantee)
        compression = cast("CompressionName", choice(options, "compression", *get_args(CompressionName)))
        to = None if topic is None else as_topic(topic)
        transaction = Transaction.of(options, Guarantee(guarantee))
        return cls(Connection.of(options), to, Guarantee(guarantee), compression, transaction)


_KNOWN = frozenset(name.lower() for name in (*_WRITTEN, *SOURCE_COLUMNS))


class Portion(NamedTuple):
    """The rows that go to one topic."""

    topic: str
    records: Any
    """The records, a pyarrow.RecordBatch of RECORD_SCHEMA."""
    partition: int | None
    """The partition; None: the producer chooses."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check the schema on the driver. Raises LocalError that names the column, and what to select instead."""
    kinds: dict[str, DataType] = {}
    for field in schema.fields:
        name = field.name
        if name.lower() in kinds:
            same = [repr(other) for other in schema.names if other.lower() == name.lower()]
            raise LocalError(f"columns {' and '.join(same)} have the same name: select one of them")
        kinds[name.lower()] = field.dataType
        if name.lower() not in _KNOWN:
            raise LocalError(
                f"column {name!r} is none of {', '.join(_WRITTEN)}: select these alone, for example"
                ' df.selectExpr("to_json(struct(*)) AS value")'
            )
    if "value" not in kinds:
        raise LocalError(
            'there is no column value: select one, for example df.selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in kinds:
        raise LocalError("nothing says where to: give option topic, or select a column topic")
    for name, wanted in (("key", _BYTES), ("value", _BYTES), ("topic", (StringType,)), ("partition", (IntegerType,))):
        if name in kinds and not isinstance(kinds[name], wanted):
            raise _wrong(name, kinds[name], " or ".join(kind.typeName() for kind in wanted))
    if "headers" in kinds and not _are_headers(kinds["headers"]):
        raise _wrong("headers", kinds["headers"], "array<struct<key: string, value: binary>>")


def portions(batch: Any, topic: str | None, now_ms: int) -> Iterator[Portion]:
    """Yield the rows of one of Spark's Arrow batches, those of one topic and partition in their order.

    Raises LocalError for a row without a topic, or with a header without a key.
    """
    columns = {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}
    keys, headers = columns.get("key"), columns.get("headers")
    records = record_columns(
        _binary(columns["value"]),
        None if keys is None or keys.null_count == len(keys) else _binary(keys),
        timestamps_ms=now_ms,
        headers=None if headers is None else _headers(headers),
    )
    for name, rows in _by_topic(columns.get("topic"), topic, len(batch)):
        some = records if rows is None else records.filter(rows)
        partitions = columns.get("partition")
        if partitions is None or partitions.null_count == len(partitions):
            yield Portion(name, some, None)
        else:
            yield from _by_partition(name, some, partitions if rows is None else partitions.filter(rows))


def _by_topic(column: Any, topic: str | None, count: int) -> Iterator[tuple[str, Any]]:
    """Yield each topic with a mask of its rows; None: all of them."""
    if topic is not None:
        yield topic, None
        return
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise LocalError(f"topic is null in row {row} of {count}: give option topic, or a topic in every row")
    names = pc.unique(column).to_pylist()
    for name in names:
        yield name, None if len(names) == 1 else pc.equal(column, name)


def _by_partition(topic: str, records: Any, partitions: Any) -> Iterator[Portion]:
    for number in pc.unique(partitions).to_pylist():
        mask = pc.is_null(partitions) if number is None else pc.fill_null(pc.equal(partitions, number), False)  # noqa: FBT003
        yield Portion(topic, records.filter(mask), number)


def _binary(column: Any) -> Any:
    return column.cast(pa.binary())


def _headers(column: Any) -> Any:
    """Return `array<struct<key, value>>`, which may have nulls, as HEADERS_TYPE."""
    entries = column.flatten()
    if not len(entries):
        return None
    names, values = entries.field(0), entries.field(1)
    if names.null_count or entries.null_count:
        raise LocalError("headers has an entry without a key: give each header one")
    items = pa.StructArray.from_arrays([names, _binary(values)], names=["name", "value"])
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
    return pa.ListArray.from_arrays(ends, items)


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return len(fields) == 2 and isinstance(fields[0].dataType, StringType) and isinstance(fields[1].dataType, _BYTES)


def _wrong(name: str, kind: DataType, wanted: str) -> LocalError:
    return LocalError(f"column {name} is {kind.simpleString()}: it must be {wanted}; cast it")


class CommitFailedError(HeadraceError):
    """A batch of a query could not be committed: nothing of it is visible, or it is and the answer was lost."""

    code = "CommitFailed"


@dataclass
class Written(WriterCommitMessage):
    """The message of a task to the driver."""

    writer: str
    staged: Staged | None
    """The staged batches; None where it has written by itself."""


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`: one batch, under a name of its own, or that of the options `txnAppId` and
    `txnVersion`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        named = options.transaction
        self._writer, self._batch = (f"batch-{uuid4()}", 0) if named is None else (named.app_id, named.version)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(self._options, self._writer, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        once = self._options.transaction is None
        commit_batch(self._options.connection, self._writer, self._batch, messages, once=once)


class StreamingWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`, made anew for each micro-batch, so only messages carry anything from tasks to the
    driver."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise LocalError("this task does not know its query's id: a streaming sink is run by Spark alone")
        return write_rows(self._options, query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        writers = {message.writer for message in messages if isinstance(message, Written)}
        if len(writers) == 1:
            commit_batch(self._options.connection, writers.pop(), batchId, messages)
        elif messages:
            raise CommitFailedError(f"tasks of batch {batchId} say {sorted(writers)} of their query: they must agree")


def write_rows(options: WriteOptions, writer: str, batches: Iterator[Any]) -> Written:
    """Write rows in a task. Raises what makes the task fail; Spark may run it again then."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        with _producer_of(options) as producer:
            for batch in batches:
                for topic, records, partition in portions(batch, options.topic, epoch_ms()):
                    producer.send_records(topic, records, partition=partition)
            producer.flush()
        return Written(writer, None)
    with _stager_of(options, writer) as stager:
        for batch in batches:
            for topic, records, partition in portions(batch, options.topic, epoch_ms()):
                stager.stage(topic, records, partition)
        return Written(writer, stager.finish())


def commit_batch(
    connection: Connection,
    writer: str,
    batch: int,
    messages: list[WriterCommitMessage | None],
    *,
    once: bool = False,
) -> None:
    """Commit on the driver. Raises CommitFailedError; then Spark runs the batch again, and it counts once all the
    same."""
    written = [message for message in messages if isinstance(message, Written)]
    staged = [message.staged for message in written if message.staged is not None]
    if not staged:
        return
    if len(written) != len(messages):
        raise CommitFailedError(f"batch {batch}: {len(messages) - len(written)} of {len(messages)} tasks say nothing")
    try:
        with Commits(writer, connection.servers(), connection.namespace) as commits:
            status = commits.commit(batch, staged, once=once)
    except HeadraceError as error:
        raise CommitFailedError(f"batch {batch} of {writer}: {error.message}") from error
    if not status.is_done:
        _log.warning("batch %d of %s is committed, and still on its way into its partitions", batch, writer)
    for why in status.dropped:
        _log.error("batch %d of %s is committed, and a part of it is lost: %s", batch, writer, why)


@contextmanager
def _producer_of(options: WriteOptions) -> Iterator[Producer]:
    connection = options.connection
    with Producer(
        connection.servers(),
        connection.namespace,
        compression=options.compression,
        delivery_timeout_ms=connection.timeout_ms,
    ) as producer:
        yield producer


@contextmanager
def _stager_of(options: WriteOptions, writer: str) -> Iterator[Stager]:
    connection, context = options.connection, TaskContext.get()
    task = 0 if context is None else context.partitionId()
    with Stager(
        writer, connection.servers(), connection.namespace, task=task, compression=options.compression
    ) as stager:
        yield stager
