"""From a stream's position to the next: what is new, what is gone, and what is not what it was. Pure."""

from collections.abc import Mapping

from headrace.spark.errors import LossPolicy
from headrace.spark.offsets import Offsets, Partition, uids
from headrace.spark.ranges import OffsetRange


def kept(begun: Mapping[Partition, int], latest: Mapping[Partition, int], loss: LossPolicy) -> Offsets:
    """Where reading goes on in the partitions that are still there, given where each ends now.

    Raises DataLossError and RecreatedTopicError, where `loss` says so.
    """
    now, going_on = uids(latest), dict[Partition, int]()
    for partition, offset in begun.items():
        if partition in latest:
            going_on[partition] = _within(partition, offset, latest[partition], loss)
    for topic in sorted({partition.topic for partition in begun if partition not in latest}):
        if topic in now and now[topic] != uids(begun)[topic]:
            loss.recreated(topic)
        else:
            loss.lost(
                f"topic {topic}, or a partition of it, is not read any more, and the query had positions in it",
                "without",
            )
    return going_on


def _within(partition: Partition, offset: int, end: int, loss: LossPolicy) -> int:
    if offset > end:
        loss.lost(f"offset {offset} of {partition} is not there any more: its log ends at {end}", f"at {end}")
    return min(offset, end)


def ranges(
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    beginnings: Mapping[Partition, int],
    loss: LossPolicy,
) -> list[OffsetRange]:
    """What a micro-batch reads. `beginnings` are of the partitions that `start` does not know.

    A topic that grew while the query ran is read from its first record on, or something is lost; not so one that is
    new.
    """
    known = uids(start)
    for partition, first in beginnings.items():
        if known.get(partition.topic) == partition.uid and first > 0:
            loss.lost(f"partition {partition} was added, and its offsets 0 to {first} are gone already", f"at {first}")
    return [OffsetRange(each, start.get(each, beginnings.get(each, 0)), end[each]) for each in sorted(end)]
