"""`Consumer`: the blocking way to read records, with positions that the reader owns.

Owns its connections and what was read ahead, from construction to `close`. Used by one thread at a time, as a file is.
"""

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeAlias

from headrace.client import frames
from headrace.client.brokers import Brokers
from headrace.client.cursor import Cursor
from headrace.client.discovery import Servers
from headrace.client.fetcher import Fetcher
from headrace.client.record import Record, TopicPartition
from headrace.client.values import as_topic
from headrace.core.errors import LocalError, OffsetOutOfRangeError, UnknownPartitionError
from headrace.core.limits import (
    CONSUMER_PREFETCH_BYTES_DEFAULT,
    DELIVERY_TIMEOUT_MS_DEFAULT,
    PRODUCE_TIMEOUT_MS_DEFAULT,
)
from headrace.core.records.columns import DecodedBatch

Start: TypeAlias = str | int | datetime
"""`earliest`, `latest`, an offset, or a time."""


class Consumer:
    """Reads records of one or more topics; iterate it for `Record`s, or `batches()` for columns.

    `start` is where reading begins in every partition: `earliest`, `latest`, an offset, or a datetime (the first record
    at or after it); `latest` means the end as it is now, when the consumer is made. `partitions` restricts it to some
    partitions of its topic (a mapping by topic where there are several); partitions that are added to a topic later are
    not read. `server` and `ca_file` as for `Producer`. What cannot be read for `timeout_ms` raises the last error; iterating again
    goes on where it stopped.

    Raises UnknownTopicError, UnknownPartitionError, and LocalError with the remedy for anything else that is wrong.
    """

    def __init__(  # noqa: PLR0913 - the SDK's own signature: named options, each with its default
        self,
        *topics: str,
        group: str | None = None,
        start: Start = "earliest",
        partitions: Iterable[int] | Mapping[str, Iterable[int]] | None = None,
        server: str | Servers | None = None,
        namespace: str | None = None,
        timeout_ms: int = DELIVERY_TIMEOUT_MS_DEFAULT,
        prefetch_bytes: int = CONSUMER_PREFETCH_BYTES_DEFAULT,
        ca_file: str | None = None,
    ) -> None:
        _check_topics(topics, group)
        self._topics = topics
        self._brokers = Brokers(
            server, namespace, ca_file=ca_file, timeout_ms=timeout_ms, request_timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT
        )
        finalizer = weakref.finalize(self, Brokers.close, self._brokers)
        try:
            chosen = self._assign(partitions)
            positions = self._offsets_at(chosen, start)
        except BaseException:
            finalizer()
            raise
        self._fetcher = Fetcher(self._brokers, positions, timeout_ms=timeout_ms, prefetch_bytes=prefetch_bytes)
        self._cursors = self._fetcher.plan.cursors
        self._reading: Iterator[Record] | None = None
        self._last: Record | None = None
        """The record handed out last, while its batch is not done: positions lie right behind it."""
        finalizer.detach()
        self._finalizer = weakref.finalize(self, Fetcher.close, self._fetcher)
        self._pid = os.getpid()

    # -- reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """Records for ever, waiting for new ones; a loop that was left goes on where it stopped."""
        if self._reading is None:
            self._reading = self.records()
        return self._reading

    def records(self, *, follow: bool = True) -> Iterator[Record]:
        """Records of all partitions, by offset within each. Without `follow`, up to the ends as they are now."""
        return self._records_of(self._begin(follow))

    def _records_of(self, batches: Iterator[tuple[Cursor, DecodedBatch]]) -> Iterator[Record]:
        try:
            for cursor, batch in batches:
                turn = cursor.turn
                for self._last in frames.records(cursor.partition, batch):
                    yield self._last
                    if cursor.turn != turn:
                        break
                self._last = None
        finally:
            self._reading = None
            self._settle()

    def batches(self, *, follow: bool = True) -> Iterator[Any]:
        """As `records`, as pyarrow.RecordBatches, each of one partition and at least one row.

        Columns: key, value (binary), timestamp_ms (int64), headers (list of name and value), topic (dictionary),
        partition (int32), offset (int64). Keys and values are not copied on their way from the network.
        """
        return (frames.columns(cursor.partition, batch) for cursor, batch in self._begin(follow))

    def _begin(self, follow: bool) -> Iterator[tuple[Cursor, DecodedBatch]]:
        if not self._finalizer.alive or self._pid != os.getpid():
            raise LocalError("this consumer is closed (or was made before a fork): make a new one")
        self._reading = None
        self._settle()
        self._fetcher.settle()
        self._fetcher.plan.end_at(None if follow else self._ends())
        return self._fetcher.batches()

    def _ends(self) -> dict[TopicPartition, int]:
        """The ends as they are now. Raises OffsetOutOfRangeError where the reader stands beyond one."""
        ends = self.end_offsets()
        for place, end in ends.items():
            position = self._cursors[place].position
            if position > end:
                raise OffsetOutOfRangeError(
                    f"offset {position} of {place} is not there yet: its next record will have {end}; read from there,"
                    " or from 'earliest' or 'latest'"
                )
        return ends

    def _settle(self) -> None:
        """What was read ahead of the record handed out last must be read again."""
        last, self._last = self._last, None
        if last is not None:
            self._cursors[TopicPartition(last.topic, last.partition)].move(last.offset + 1)

    # -- positions ---------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """What this consumer reads."""
        return list(self._cursors)

    def position(self, partition: int, *, topic: str | None = None) -> int:
        """The offset of the next record that will be handed out."""
        cursor = self._cursor(partition, topic)
        last = self._last
        if last is not None and (last.topic, last.partition) == cursor.partition:
            return last.offset + 1
        return cursor.position

    def seek(self, partition: int, offset: int | str, *, topic: str | None = None) -> None:
        """Go on from `offset`, `earliest` or `latest`; works inside a loop over this consumer too."""
        cursor = self._cursor(partition, topic)
        self._move(cursor, self._offsets_at([cursor.partition], offset)[cursor.partition])

    def seek_to_time(self, time: int | datetime, *, partitions: Iterable[int] | None = None) -> None:
        """Go on from the first record at or after `time` (ms since 1970, or a datetime); the end where none is."""
        chosen = self._select(partitions)
        offsets = self._brokers.offsets([cursor.partition for cursor in chosen], _as_ms(time))
        for cursor in chosen:
            self._move(cursor, offsets[cursor.partition])

    def pause(self, *partitions: int) -> None:
        """Hand out nothing of these partitions (of all without any) until `resume`."""
        for cursor in self._select(partitions or None):
            cursor.paused = True
            self._move(cursor, self.position(cursor.partition.partition, topic=cursor.partition.topic))

    def resume(self, *partitions: int) -> None:
        for cursor in self._select(partitions or None):
            cursor.paused = False

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The high watermarks as they are now: the offset that the next record of each partition will have."""
        return self._brokers.offsets(list(self._cursors), "latest")

    def _move(self, cursor: Cursor, offset: int) -> None:
        if self._last is not None and (self._last.topic, self._last.partition) == cursor.partition:
            self._last = None
        cursor.move(offset)

    def _cursor(self, partition: int, topic: str | None) -> Cursor:
        if topic is None and len(self._topics) > 1:
            raise LocalError(f"this consumer reads {', '.join(self._topics)}: say which with topic=")
        wanted = TopicPartition(topic or self._topics[0], partition)
        if wanted not in self._cursors:
            raise LocalError(f"this consumer does not read {wanted}; it reads {', '.join(map(str, self._cursors))}")
        return self._cursors[wanted]

    def _select(self, partitions: Iterable[int] | None) -> list[Cursor]:
        if partitions is None:
            return list(self._cursors.values())
        return [self._cursor(partition, None) for partition in partitions]

    # -- the beginning and the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connections. Safe to call again."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _assign(self, partitions: Iterable[int] | Mapping[str, Iterable[int]] | None) -> list[TopicPartition]:
        if isinstance(partitions, int):
            raise TypeError(f"partitions is one number: give a list of them, for example [{partitions}]")
        if partitions is None:
            wanted: Mapping[str, Iterable[int] | None] = dict.fromkeys(self._topics)
        elif isinstance(partitions, Mapping):
            wanted = {topic: partitions.get(topic) for topic in self._topics}
        elif len(self._topics) > 1:
            raise LocalError("partitions of several topics are given as a mapping: {'flights': [0, 1], ...}")
        else:
            wanted = {self._topics[0]: partitions}
        chosen = [place for topic, numbers in wanted.items() for place in self._existing(topic, numbers)]
        if not chosen:
            raise LocalError("partitions is empty: name at least one, or leave it out to read all")
        return chosen

    def _existing(self, topic: str, numbers: Iterable[int] | None) -> Sequence[TopicPartition]:
        count = len(self._brokers.pin(topic).partitions)
        chosen = range(count) if numbers is None else sorted(set(numbers))
        for number in chosen:
            if not 0 <= number < count:
                raise UnknownPartitionError(
                    f"partition {number} of {topic} does not exist: it has {count}, numbered from 0", partitions=count
                )
        return [TopicPartition(topic, number) for number in chosen]

    def _offsets_at(self, partitions: list[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        if isinstance(start, datetime):
            return self._brokers.offsets(partitions, _as_ms(start))
        if isinstance(start, int) and start >= 0:
            return dict.fromkeys(partitions, start)
        if start not in ("earliest", "latest"):
            raise LocalError(f"start is {start!r}: it must be earliest, latest, an offset from 0, or a datetime")
        return self._brokers.offsets(partitions, start)


def _as_ms(time: int | datetime) -> int:
    return int(time.timestamp() * 1000) if isinstance(time, datetime) else time


def _check_topics(topics: Sequence[str], group: str | None) -> None:
    if group is not None:
        raise LocalError(
            f"group {group!r}: consumer groups are not available yet; leave it out, and keep positions yourself with"
            " position() and seek()"
        )
    if not topics:
        raise LocalError("no topic is given: Consumer('flights')")
    for topic in topics:
        as_topic(topic)
