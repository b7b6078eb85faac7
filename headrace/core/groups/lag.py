"""How far behind a group is: readable records that it has not committed, topic by topic. Pure.

A partition of which the group has no offset counts from its log's start, and so does one whose offset fell below it:
what was deleted can never be read. An offset above the high watermark is not behind. Where the watermarks of a single
partition are not known, the lag of its topic is not known either: a sum of the rest would look like progress.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.core.groups.assigning import partitions_of
from headrace.core.groups.identity import TopicShape
from headrace.core.groups.image import Image
from headrace.core.types import Offset, PartitionKey


class Watermarks(NamedTuple):
    log_start: Offset
    high: Offset
    """The first offset that cannot be read yet."""


def partition_lag(image: Image, partition: PartitionKey, watermarks: Watermarks | None) -> int | None:
    """None: not known, as the watermarks are not."""
    if watermarks is None:
        return None
    committed = image.offsets.get(partition)
    return records_behind(None if committed is None else committed.offset, watermarks)


def records_behind(committed: Offset | None, watermarks: Watermarks) -> int:
    begins = watermarks.log_start if committed is None else max(committed, watermarks.log_start)
    return max(0, watermarks.high - begins)


def topic_lag(shape: TopicShape, behind: Mapping[PartitionKey, int | None]) -> int | None:
    """`behind` has each of its partitions."""
    lags = [behind[partition] for partition in partitions_of(shape)]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None
