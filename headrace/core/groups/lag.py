"""How far behind a group is: readable records that it has not committed, topic by topic. Pure.

A partition of which the group has no offset counts from its log's start, and so does one whose offset fell below it:
what was deleted can never be read. An offset above the high watermark is not behind. Where the watermarks of a single
partition are not known, the lag of its topic is not known either: a sum of the rest would look like progress.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.core.groups.assigning import Topics, partitions_of
from headrace.core.groups.image import Image
from headrace.core.groups.status import topics_of
from headrace.core.types import Offset, PartitionKey, TopicUid


class Watermarks(NamedTuple):
    log_start: Offset
    high: Offset
    """The first offset that cannot be read yet."""


def partition_lag(image: Image, partition: PartitionKey, watermarks: Watermarks) -> int:
    committed = image.offsets.get(partition)
    return records_behind(None if committed is None else committed.offset, watermarks)


def records_behind(committed: Offset | None, watermarks: Watermarks) -> int:
    begins = watermarks.log_start if committed is None else max(committed, watermarks.log_start)
    return max(0, watermarks.high - begins)


def lags_of(image: Image, topics: Topics, watermarks: Mapping[PartitionKey, Watermarks]) -> dict[TopicUid, int | None]:
    """Of every topic of the group; `topics` are all of its namespace."""
    lags: dict[TopicUid, int | None] = {}
    for shape in topics_of(image, topics).values():
        partitions = partitions_of(shape)
        known = [partition_lag(image, each, watermarks[each]) for each in partitions if each in watermarks]
        lags[shape.uid] = sum(known) if len(known) == len(partitions) else None
    return lags
