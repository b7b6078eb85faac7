"""The readers of ranges in Spark's Python workers: clients of brokers that stay for the tasks that follow.

Spark uses a worker process for many tasks, one after the other: connecting anew for each would cost more than a small
task. `reader_of` lends a client of this process that is not in use, and takes it back. A client has read ahead when
Spark asks. Each task reads the very topic that the driver saw: one that was created again under its name is refused.
Called by `tasks`; loads nothing of PySpark.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Cursor
from headrace.client.consumer.fetcher import Between, Fetcher
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.transport.brokers import Brokers
from headrace.core.errors import OffsetOutOfRangeError, StaleTopicError, UnreadableBatchError
from headrace.core.limits import PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.records.columns import DecodedBatch
from headrace.spark.errors import LossPolicy
from headrace.spark.offsets import OffsetRange, SourcePartition
from headrace.spark.options import Connection

SPARK_PREFETCH_BYTES = 32 << 20
"""The bytes that a task asks for ahead of Spark."""
SPARK_STILL_MS_MAX = 3_000
"""The time after which a task that has got nothing checks whether the records that it waits for are still there."""
SPARK_IDLE_READERS_MAX = 4
"""The number of clients that a Python worker of Spark keeps for its next tasks, of one cluster."""


class StillThere(Between):
    """A check that runs where nothing comes: from time to time it reads whether what is waited for can come at all."""

    def __init__(self, brokers: Brokers, cursor: Cursor, end: int) -> None:
        self._brokers, self._cursor, self._end = brokers, cursor, end
        self._seen, self._since_ms = cursor.position, now_ms()

    def follow(self) -> None:
        """Follow the log. Raises OffsetOutOfRangeError where it ends below what was there when the query was
        planned."""
        if self._cursor.position != self._seen:
            self._seen, self._since_ms = self._cursor.position, now_ms()
        elif now_ms() - self._since_ms > SPARK_STILL_MS_MAX:
            self._since_ms = now_ms()
            latest = self._brokers.run(self._brokers.offset(self._cursor.partition, "latest"))
            if latest < self._end:
                raise OffsetOutOfRangeError(f"{self._cursor.partition} ends at {latest}", highWatermark=latest)


class RangeReader:
    """A client for one range after the other."""

    def __init__(self, connection: Connection) -> None:
        self._brokers = Brokers(
            connection.servers(),
            connection.namespace,
            timeout_ms=connection.timeout_ms,
            request_timeout_ms=min(connection.timeout_ms, PRODUCE_TIMEOUT_MS_DEFAULT),
        )
        self._reading = ReadAhead(
            self._brokers.directory,
            {},
            self._brokers.trouble,
            growing=(),
            timeout_ms=connection.timeout_ms,
            prefetch_bytes=SPARK_PREFETCH_BYTES,
        )
        self._fetcher = Fetcher(self._brokers, self._reading)

    def close(self) -> None:
        self._fetcher.close()

    def batches(self, wanted: OffsetRange, loss: LossPolicy) -> Generator[DecodedBatch]:
        """Yield the range's records, by offset; what is gone is left out where `loss` allows that."""
        partition = wanted.partition
        self._pin(partition)
        cursor = self._reading.plan.add(partition.place, wanted.start)
        cursor.end = wanted.end
        try:
            while not cursor.done:
                yield from self._some(cursor, wanted, loss)
        except StaleTopicError:
            loss.recreated(partition.topic)
        finally:
            self._fetcher.drop(partition.place)

    def _pin(self, partition: SourcePartition) -> None:
        """Pin the client to the topic that the driver saw, with the partitions that it saw."""
        directory = self._brokers.directory
        directory.pin_anew(partition.topic, partition.uid)
        known = directory.newest(partition.topic)
        if known is not None and partition.number >= len(known.partitions):
            directory.forget(partition.topic)

    def _some(self, cursor: Cursor, wanted: OffsetRange, loss: LossPolicy) -> Generator[DecodedBatch]:
        """Yield records up to the end, or to a place where records are gone: the cursor is moved beyond it."""
        still_there = StillThere(self._brokers, cursor, wanted.end)
        try:
            with closing(self._fetcher.batches(still_there)) as found:
                for _, batch in found:
                    yield batch
        except OffsetOutOfRangeError as error:
            cursor.move(_beyond_loss(cursor, wanted, error, loss))
        except UnreadableBatchError as error:
            cursor.move(_beyond_unreadable(wanted, error, loss))


def _beyond_loss(cursor: Cursor, wanted: OffsetRange, error: OffsetOutOfRangeError, loss: LossPolicy) -> int:
    """Return where to continue: at the beginning of what is left, or nowhere. Raises DataLossError."""
    at, start = cursor.position, error.details.get("logStartOffset")
    if isinstance(start, int) and start > at:
        go_on = min(start, wanted.end)
        loss.lost(
            f"offsets {at} to {go_on} of {wanted.partition} are gone: retention, or somebody, has deleted them",
            f"at {go_on}",
        )
        return go_on
    end = error.details.get("highWatermark", "an offset below that")
    loss.lost(f"offsets {at} to {wanted.end} of {wanted.partition} are gone: its log ends at {end}", "without them")
    return wanted.end


def _beyond_unreadable(wanted: OffsetRange, error: UnreadableBatchError, loss: LossPolicy) -> int:
    """Return where to continue behind a batch that cannot be decoded. Raises DataLossError."""
    go_on = min(int(str(error.details["nextOffset"])), wanted.end)
    why = error.__cause__ if isinstance(error.__cause__, UnreadableBatchError) else error
    loss.lost(f"of {wanted.partition}, {why.message}", f"at {go_on}")
    return go_on


_idle: dict[tuple[int, Connection], list[RangeReader]] = defaultdict(list)
"""The unused clients of this process. A fork does not take over its parent's: they are kept by process."""


@contextmanager
def reader_of(connection: Connection) -> Iterator[RangeReader]:
    """Yield a client that is used here alone. After an error it is not used again."""
    idle = _idle[os.getpid(), connection]
    reader = idle.pop() if idle else RangeReader(connection)
    try:
        yield reader
    except GeneratorExit:  # Spark has enough.
        _give_back(idle, reader)
        raise
    except BaseException:
        reader.close()
        raise
    _give_back(idle, reader)


def _give_back(idle: list[RangeReader], reader: RangeReader) -> None:
    if len(idle) < SPARK_IDLE_READERS_MAX:
        idle.append(reader)
    else:
        reader.close()
