"""Writing: what tasks do with their rows, and what the driver does when all of them are done.

    exactly once     each task stages its rows (`client.staging`); the driver's `commit` is one decision, by which a
                     batch of the query is in its topics once, whatever was run again before or after
    at least once    each task writes its rows; `commit` has nothing left to do

A streaming query commits as the writer that its id names, and its batches by their numbers: both are in its checkpoint.
A batch job commits as a writer of its own that has one batch, or as its options name it. Spark pickles the writers:
they hold plain values alone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.clock import epoch_ms
from headrace.client.producer.producer import Producer
from headrace.client.producer.staging import Commits, Staged, Stager
from headrace.core.errors import HeadraceError, LocalError
from headrace.spark.options import Connection
from headrace.spark.rows import portions
from headrace.spark.write_options import Guarantee, WriteOptions

_log = logging.getLogger("headrace.spark")


class CommitFailedError(HeadraceError):
    """A batch of a query could not be committed: nothing of it is visible, or it is and that could not be heard."""

    code = "CommitFailed"


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    writer: str
    staged: Staged | None
    """None where it has written by itself."""


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one batch, of a writer that nobody else is, or that options `txnAppId` and `txnVersion` name."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        named = options.transaction
        self._writer, self._batch = (f"batch-{uuid4()}", 0) if named is None else (named.app_id, named.version)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(self._options, self._writer, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        once = self._options.transaction is None
        commit_batch(self._options.connection, self._writer, self._batch, messages, once=once)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: made anew for each micro-batch, so only messages carry anything from tasks to the driver."""

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
    """In a task. Raises what makes the task fail; Spark may run it again then."""
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
    """On the driver. Raises CommitFailedError; then Spark runs the batch again, and it counts once all the same."""
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
