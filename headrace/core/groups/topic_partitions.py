"""Partitions as bodies and people name them: by topic, its name beside its uid. Inside, a partition is its uid's alone.

Who coordinates knows the names of its namespace's topics; a member learns those of its partitions with its assignment.
A topic that nobody can name any more has an empty name.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from headrace.core.groups.assigning import Partitions, Topics
from headrace.core.types import PartitionId, PartitionKey, TopicUid

Names: TypeAlias = Mapping[TopicUid, str]


class TopicPartitions(NamedTuple):
    topic: str
    uid: TopicUid
    partitions: tuple[PartitionId, ...]
    """In order."""

    @property
    def keys(self) -> list[PartitionKey]:
        return [PartitionKey(self.uid, partition) for partition in self.partitions]


def names_in(topics: Topics) -> dict[TopicUid, str]:
    return {shape.uid: name for name, shape in topics.items()}


def names_of(listed: Iterable[TopicPartitions]) -> dict[TopicUid, str]:
    return {each.uid: each.topic for each in listed}


def by_topic(partitions: Iterable[PartitionKey], names: Names) -> tuple[TopicPartitions, ...]:
    """In the order of names."""
    found: dict[TopicUid, list[PartitionId]] = {}
    for uid, partition in sorted(partitions):
        found.setdefault(uid, []).append(partition)
    return tuple(sorted(TopicPartitions(names.get(uid, ""), uid, tuple(each)) for uid, each in found.items()))


def keys_of(listed: Iterable[TopicPartitions]) -> Partitions:
    return frozenset(key for each in listed for key in each.keys)
