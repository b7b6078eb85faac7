"""The driver's requests to brokers: which partitions there are, and where they begin and end.

Owns its connections, from the first question to `close`; used by one thread. Brokers that cannot be reached are asked
again for as long as `timeoutMs` says.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import assert_never

from headrace.client.consumer.options import places
from headrace.client.record import TopicPartition
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import LocalError, UnknownTopicError
from headrace.core.limits import PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.records.header import skim_batches
from headrace.core.resources.internal_topics import INTERNAL_TOPICS
from headrace.spark.offsets import Offsets, SourcePartition
from headrace.spark.options import Connection
from headrace.spark.read_options import (
    EARLIEST,
    EARLIEST_NUMBER,
    LATEST,
    LATEST_NUMBER,
    AssignedPartitions,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    ByPartition,
    LogEdge,
    Subscription,
    Topics,
    TopicsLike,
)

SPARK_SAMPLE_BYTES = 64 << 10
"""The bytes that are read of a partition to estimate how large its next records are, for `maxBytesPerTrigger`."""


_ALL = 1 << 62


class Catalog:
    def __init__(self, connection: Connection) -> None:
        """Take the connection; nothing connects yet."""
        self._brokers = Brokers(
            connection.servers(),
            connection.namespace,
            timeout_ms=connection.timeout_ms,
            request_timeout_ms=min(connection.timeout_ms, PRODUCE_TIMEOUT_MS_DEFAULT),
        )

    def close(self) -> None:
        self._brokers.close()

    # -- partitions --------------------------------------------------------------------------------------------------

    def partitions(self, subscription: Subscription) -> list[SourcePartition]:
        """Return the partitions as they are now. Raises UnknownTopicError, UnknownPartitionError."""
        match subscription:
            case Topics(names):
                return self._all_of(names)
            case TopicsLike(pattern):
                return self._all_of(
                    name
                    for name in self._brokers.run(self._brokers.topics())
                    if name not in INTERNAL_TOPICS and re.fullmatch(pattern, name)
                )
            case AssignedPartitions(numbers):
                return [each for topic, some in numbers.items() for each in _partitions(self._layout(topic), some)]
            case _:
                assert_never(subscription)

    def _all_of(self, topics: Iterable[str]) -> list[SourcePartition]:
        return [partition for topic in topics for partition in _partitions(self._layout(topic), None)]

    def _layout(self, topic: str) -> TopicLayout:
        """Return the layout, read anew: a known one may be old."""
        self._brokers.directory.forget(topic)
        try:
            return self._brokers.run(self._brokers.layout(topic))
        except UnknownTopicError as error:
            raise UnknownTopicError(
                f"topic {topic} does not exist in namespace {self._brokers.namespace}: create it first, with"
                f" `headrace topic create {topic}` or as a Topic resource",
                **error.details,
            ) from error

    # -- offsets -----------------------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[SourcePartition]) -> Offsets:
        return self._offsets(partitions, EARLIEST)

    def latest(self, partitions: Iterable[SourcePartition]) -> Offsets:
        """Return the high watermarks: everything below can be read."""
        return self._offsets(partitions, LATEST)

    def at(self, bound: Bound, partitions: Sequence[SourcePartition]) -> Offsets:
        """Return the offset of `bound` in each. Raises LocalError where it has none for one."""
        match bound:
            case LogEdge(name):
                return self._offsets(partitions, name)
            case AtTime(ms):
                return self._offsets(partitions, ms)
            case AtTimes(option, by_topic):
                return self._at_times(_told(option, by_topic, partitions))
            case AtOffsets(option, by_topic):
                return self._at_offsets(_told(option, by_topic, partitions))
            case _:
                assert_never(bound)

    def _at_times(self, told: Offsets) -> Offsets:
        found: Offsets = {}
        for ms in sorted({*told.values()}):
            found |= self._offsets((partition for partition, at_ms in told.items() if at_ms == ms), ms)
        return found

    def _at_offsets(self, told: Offsets) -> Offsets:
        beginnings = self.earliest(partition for partition, offset in told.items() if offset == EARLIEST_NUMBER)
        ends = self.latest(partition for partition, offset in told.items() if offset == LATEST_NUMBER)
        return told | beginnings | ends

    def _offsets(self, partitions: Iterable[SourcePartition], where: str | int) -> Offsets:
        by_place = {partition.place: partition for partition in partitions}
        found = self._brokers.run(self._brokers.offsets(list(by_place), where))
        return {by_place[place]: offset for place, offset in found.items()}

    def record_bytes(self, partition: SourcePartition, offset: int) -> float:
        """Return the size of a record from `offset` on, as it travels: an estimate by the batches that come next
        there."""
        once = partial(self._brokers.fetch_once, partition.place, offset, max_bytes=SPARK_SAMPLE_BYTES, wait_ms=0)
        fetched = self._brokers.run(self._brokers.retrying(f"reading {partition}", once, partition.topic))
        run = skim_batches(fetched.batches, _ALL) if fetched.batches else None
        return run.nbytes / run.records if run is not None and run.records else 0.0


def _partitions(layout: TopicLayout, numbers: Sequence[int] | None) -> list[SourcePartition]:
    return [SourcePartition(layout.topic, layout.uid, place.partition) for place in places(layout, numbers)]


def _told(option: str, by_topic: ByPartition, partitions: Sequence[SourcePartition]) -> Offsets:
    """Return the option's offsets for these partitions: it must name all of them, and no others."""
    wanted = {partition.place: partition for partition in partitions}
    told = {TopicPartition(topic, number): at for topic, some in by_topic.items() for number, at in some.items()}
    missing = ", ".join(str(place) for place in wanted if place not in told)
    if missing:
        raise LocalError(f"{option} says nothing of {missing}: name every partition that is read")
    others = ", ".join(str(place) for place in told if place not in wanted)
    if others:
        raise LocalError(f"{option} names {others}, which is not read: leave it out, or subscribe to it")
    return {wanted[place]: at for place, at in told.items()}
