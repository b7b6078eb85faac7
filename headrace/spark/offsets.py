"""The offsets of a query: its positions in partitions, where it continues, and the ranges that its tasks read. Pure.

Spark keeps positions in its checkpoint, as JSON:

    {"flights": {"uid": "0f6c...", "offsets": {"0": 23, "1": 42}}}

The uid distinguishes a topic from one that was created again under its name: they are different partitions here. Topics
and partitions are in order, because Spark compares the text.

A batch query reads what its options ask for, as far as logs have it (`batch_ranges`); a streaming query goes on from
its positions (`positions_kept`, `micro_batch_ranges`), and each trigger takes a limit, shared by what waits in each
partition (`shares`). What is lost on the way is the `LossPolicy`'s to judge. `split_ranges` cuts runs of offsets to as
many pieces as options ask for.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

from headrace.client.record import TopicPartition
from headrace.core.errors import LocalError
from headrace.spark.errors import LossPolicy

T = TypeVar("T")


class SourcePartition(NamedTuple):
    """A partition of one topic, by its uid, not only by its name."""

    topic: str
    uid: str
    number: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


Offsets: TypeAlias = dict[SourcePartition, int]
"""The offset of the next record of each partition."""


def to_json(offsets: Mapping[SourcePartition, int]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for partition in sorted(offsets):
        topic = document.setdefault(partition.topic, {"uid": partition.uid, "offsets": {}})
        topic["offsets"][str(partition.number)] = offsets[partition]
    return document


def from_json(document: Mapping[str, Any]) -> Offsets:
    """Parse offsets. Raises LocalError for what this source has not written."""
    try:
        return {
            SourcePartition(topic, str(each["uid"]), int(number)): int(offset)
            for topic, each in document.items()
            for number, offset in each["offsets"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LocalError(
            f"the checkpoint's offsets are {document}, which format('headrace') has not written ({error!r}): is it the"
            " checkpoint of another source? give the query one of its own"
        ) from error


def uids(offsets: Mapping[SourcePartition, int]) -> dict[str, str]:
    """Return the uids by topic."""
    return {partition.topic: partition.uid for partition in offsets}


class OffsetRange(NamedTuple):
    partition: SourcePartition
    start: int
    end: int
    """The end: offsets below it are read."""

    @property
    def size(self) -> int:
        """Return the number of offsets; records of a compacted topic are fewer."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end} of {self.partition}"


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split each range in equal pieces: of `max_records` offsets at most, and so many that there are about
    `min_partitions`.

    Larger ones give more pieces; empty ones give none.
    """
    whole = [each for each in ranges if each.size > 0]
    if max_records is not None:
        whole = [piece for each in whole for piece in _pieces(each, -(-each.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    return [
        piece
        for each, count in zip(whole, _counts(whole, min_partitions), strict=True)
        for piece in _pieces(each, count)
    ]


def _counts(ranges: Sequence[OffsetRange], wanted: int) -> list[int]:
    """Return the pieces of each range, by its share of all offsets; none is empty, so there may be fewer than are
    wanted."""
    total = sum(each.size for each in ranges)
    return [min(each.size, max(1, -(-each.size * wanted // total))) for each in ranges]


def _pieces(each: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [each.start + each.size * piece // count for piece in range(count + 1)]
    return [OffsetRange(each.partition, start, end) for start, end in pairwise(bounds)]


def shares(waiting: Mapping[T, int], limit: int) -> dict[T, int]:
    """Return for each its share of all that waits; `limit` together, or all where that is less.

    One at least of each that waits, as far as `limit` goes (of the longest first): none starves beside a long one.
    """
    waiting = {each: size for each, size in waiting.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    first = sorted(waiting, key=lambda each: waiting[each], reverse=True)[:limit]
    rest, left = limit - len(first), total - len(first)
    taken = {each: 1 + rest * (waiting[each] - 1) // left for each in first}
    # The rest from rounding goes to those that lost most by it.
    lost = sorted(first, key=lambda each: rest * (waiting[each] - 1) % left, reverse=True)
    for each in lost[: limit - sum(taken.values())]:
        taken[each] += 1
    return taken


def shares_by_bytes(waiting: Mapping[T, int], record_bytes: Mapping[T, float], limit_bytes: int) -> dict[T, int]:
    """Return the same for records of these sizes: `limit_bytes` together, as far as sizes are as estimated.

    One record at least of each that waits, or a large one would never be read.
    """
    sizes = {each: max(1, round(count * record_bytes[each])) for each, count in waiting.items() if count > 0}
    taken = shares(sizes, limit_bytes)
    return {each: min(waiting[each], max(1, int(taken.get(each, 0) / max(1.0, record_bytes[each])))) for each in sizes}


def positions_kept(
    begun: Mapping[SourcePartition, int], latest: Mapping[SourcePartition, int], loss: LossPolicy
) -> Offsets:
    """Return where reading continues in the partitions that are still there, given where each ends now.

    Raises DataLossError and RecreatedTopicError, where `loss` says so.
    """
    now, going_on = uids(latest), dict[SourcePartition, int]()
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


def _within(partition: SourcePartition, offset: int, end: int, loss: LossPolicy) -> int:
    if offset > end:
        loss.lost(f"offset {offset} of {partition} is not there any more: its log ends at {end}", f"at {end}")
    return min(offset, end)


def micro_batch_ranges(
    start: Mapping[SourcePartition, int],
    end: Mapping[SourcePartition, int],
    beginnings: Mapping[SourcePartition, int],
    loss: LossPolicy,
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch. `beginnings` are of the partitions that `start` does not know.

    A topic that grew while the query ran is read from its first record on, or something is lost; not so one that is
    new.
    """
    known = uids(start)
    for partition, first in beginnings.items():
        if known.get(partition.topic) == partition.uid and first > 0:
            loss.lost(f"partition {partition} was added, and its offsets 0 to {first} are gone already", f"at {first}")
    return [OffsetRange(each, start.get(each, beginnings.get(each, 0)), end[each]) for each in sorted(end)]


def batch_ranges(
    starts: Mapping[SourcePartition, int],
    ends: Mapping[SourcePartition, int],
    earliest: Mapping[SourcePartition, int],
    latest: Mapping[SourcePartition, int],
    loss: LossPolicy,
) -> list[OffsetRange]:
    """Return the ranges of a batch; `earliest` and `latest` are the bounds of partitions where less may be there than
    was asked for.

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
