"""What a batch query reads of each partition, where options and logs disagree too. Pure."""

from collections.abc import Mapping

from headrace.spark.errors import LossPolicy
from headrace.spark.offsets import Partition
from headrace.spark.ranges import OffsetRange


def planned(
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    latest: Mapping[Partition, int],
    loss: LossPolicy,
) -> list[OffsetRange]:
    """`earliest` and `latest` say what is there, of the partitions where that may be less than was asked for.

    Raises DataLossError, where `loss` says so.
    """
    ranges = []
    for partition in sorted(starts):
        start, end = starts[partition], ends[partition]
        first, last = earliest.get(partition, start), latest.get(partition, end)
        if start < first:
            loss.lost(
                f"offsets {start} to {min(first, end)} of {partition} are gone: its log begins at {first}",
                f"at {first}",
            )
        if max(start, end) > last:
            loss.lost(f"offset {max(start, end)} of {partition} is not there: its log ends at {last}", f"up to {last}")
        ranges.append(OffsetRange(partition, max(start, first), min(end, last)))
    return ranges
