"""Positions of a query in partitions, and the JSON that Spark keeps of them in its checkpoint. Pure.

    {"flights": {"uid": "0f6c...", "offsets": {"0": 23, "1": 42}}}

The uid tells a topic from one that was created again under its name: they are different partitions here. Topics and
partitions are in order, because Spark compares the text.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from headrace.client.record import TopicPartition
from headrace.core.errors import LocalError


class Partition(NamedTuple):
    """Of one topic, not of whatever has its name."""

    topic: str
    uid: str
    number: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


Offsets: TypeAlias = dict[Partition, int]
"""Of the next record of each."""


def to_json(offsets: Mapping[Partition, int]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for partition in sorted(offsets):
        topic = document.setdefault(partition.topic, {"uid": partition.uid, "offsets": {}})
        topic["offsets"][str(partition.number)] = offsets[partition]
    return document


def from_json(document: Mapping[str, Any]) -> Offsets:
    """Raises LocalError for what this source has not written."""
    try:
        return {
            Partition(topic, str(each["uid"]), int(number)): int(offset)
            for topic, each in document.items()
            for number, offset in each["offsets"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LocalError(
            f"the checkpoint's offsets are {document}, which format('headrace') has not written ({error!r}): is it the"
            " checkpoint of another source? give the query one of its own"
        ) from error


def uids(offsets: Mapping[Partition, int]) -> dict[str, str]:
    """By topic."""
    return {partition.topic: partition.uid for partition in offsets}
