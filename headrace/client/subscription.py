"""What a consumer is asked to read, and from where: the arguments of its constructor and of its seeks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from headrace.client.layout import TopicLayout
from headrace.client.record import Place, TopicPartition
from headrace.client.values import OFFSET_MAX, as_topic, datetime_ms
from headrace.core.errors import LocalError, OffsetOutOfRangeError, UnknownPartitionError

Start: TypeAlias = str | int | datetime
"""`earliest`, `latest`, an offset, or a time."""
RAISE, EARLIEST, LATEST = "raise", "earliest", "latest"
"""Of `on_out_of_range`."""
SKIP = "skip"
"""Of `on_unreadable`, beside RAISE."""
Partitions: TypeAlias = Iterable[Place] | Mapping[str, Iterable[int]] | None


def check_topics(topics: Sequence[str]) -> None:
    if not topics:
        raise LocalError("no topic is given: Consumer('flights')")
    for topic in topics:
        as_topic(topic)


def check_out_of_range(choice: str) -> str:
    if choice not in (RAISE, EARLIEST, LATEST):
        raise LocalError(
            f"on_out_of_range is {choice!r}: give 'earliest' or 'latest' to go on there when the records that are next"
            " are gone, or 'raise' to hear of it"
        )
    return choice


def check_unreadable(choice: str) -> str:
    if choice not in (RAISE, SKIP):
        raise LocalError(
            f"on_unreadable is {choice!r}: give 'skip' to leave out records that nobody can decode, or 'raise' to hear"
            " of them"
        )
    return choice


def check_shared(partitions: Partitions) -> None:
    if partitions is not None:
        raise LocalError("partitions and group are both given: a group shares the partitions out itself; leave out one")


def wanted_partitions(topics: Sequence[str], partitions: Partitions) -> Mapping[str, list[int] | None]:
    """Of each topic; None: all of them, and those that it is given later. Raises TypeError or LocalError."""
    if isinstance(partitions, TopicPartition):
        raise TypeError(f"partitions is one TopicPartition: give a list of them, for example [{partitions!r}]")
    if isinstance(partitions, int):
        raise TypeError(f"partitions is one number: give a list of them, for example [{partitions}]")
    if partitions is None:
        return dict.fromkeys(topics)
    if isinstance(partitions, Mapping):
        return {topic: _listed(partitions.get(topic)) for topic in topics}
    chosen = list(partitions)
    if not chosen:
        raise LocalError("partitions is empty: name at least one, or leave it out to read all")
    numbers: dict[str, set[int]] = {topic: set() for topic in topics}
    for place in chosen:
        topic, number = _place(topics, place)
        numbers[topic].add(number)
    for topic, some in numbers.items():
        if not some:
            raise LocalError(f"partitions has none of {topic}: name at least one, or leave out the topic")
    return {topic: sorted(some) for topic, some in numbers.items()}


def _place(topics: Sequence[str], partition: Place) -> tuple[str, int]:
    if not isinstance(partition, TopicPartition):
        if len(topics) > 1:
            raise LocalError(
                "partitions of several topics are given as a mapping, {'flights': [0, 1], ...}, or as TopicPartitions"
            )
        return topics[0], partition
    if partition.topic not in topics:
        raise LocalError(f"{partition} is no partition of {', '.join(topics)}: name its topic too, or leave it out")
    return partition


def _listed(numbers: Iterable[int] | None) -> list[int] | None:
    return None if numbers is None else sorted(set(numbers))


def places(layout: TopicLayout, numbers: Sequence[int] | None) -> list[TopicPartition]:
    """The partitions with these numbers (None: all). Raises UnknownPartitionError."""
    count = len(layout.partitions)
    chosen = range(count) if numbers is None else numbers
    for number in chosen:
        if not 0 <= number < count:
            raise UnknownPartitionError(
                f"partition {number} of {layout.topic} does not exist: it has {count}, numbered from 0",
                partitions=count,
            )
    return [TopicPartition(layout.topic, number) for number in chosen]


def fixed_offset(start: Start, name: str = "start") -> int | None:
    """None: brokers must be asked for `timestamp_of(start)`. Raises LocalError."""
    if isinstance(start, datetime) or start in ("earliest", "latest"):
        return None
    if isinstance(start, int) and not isinstance(start, bool) and 0 <= start <= OFFSET_MAX:
        return start
    raise LocalError(f"{name} is {start!r}: it must be earliest, latest, an offset from 0, or a datetime")


def timestamp_of(start: Start) -> str | int:
    """As brokers look it up: `earliest`, `latest` or milliseconds since 1970; before that is the beginning."""
    if isinstance(start, datetime):
        return max(0, datetime_ms(start))
    return start


def as_ms(time: int | datetime) -> int:
    """Milliseconds since 1970. Raises LocalError for a number below 0."""
    if isinstance(time, datetime):
        return max(0, datetime_ms(time))
    if isinstance(time, bool) or not isinstance(time, int):
        raise TypeError(
            f"time is {type(time).__name__}: give a datetime, or milliseconds since 1970-01-01 UTC (a date does not say"
            " where on Earth that day is: datetime.fromisoformat('2024-01-01T00:00:00+00:00'))"
        )
    if not 0 <= time <= OFFSET_MAX:
        raise LocalError(f"time is {time}: it must be a datetime, or milliseconds since 1970-01-01 UTC from 0")
    return time


def check_within(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Raises OffsetOutOfRangeError where a reader stands beyond an end."""
    for place, end in ends.items():
        if positions[place] > end:
            raise OffsetOutOfRangeError(
                f"offset {positions[place]} of {place} is not there yet: its next record will have {end}; read from"
                " there, or from 'earliest' or 'latest'"
            )
