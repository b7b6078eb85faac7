"""What the tasks of a query read: runs of offsets, cut to as many pieces as options ask for. Pure."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.spark.offsets import Partition


class OffsetRange(NamedTuple):
    partition: Partition
    start: int
    end: int
    """Offsets below it are read."""

    @property
    def size(self) -> int:
        """Offsets; records of a compacted topic are fewer."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end} of {self.partition}"


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Each in equal pieces: of `max_records` offsets at most, and so many that there are about `min_partitions`.

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
    """Pieces of each range, by its share of all offsets; none is empty, so there may be fewer than are wanted."""
    total = sum(each.size for each in ranges)
    return [min(each.size, max(1, -(-each.size * wanted // total))) for each in ranges]


def _pieces(each: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [each.start + each.size * piece // count for piece in range(count + 1)]
    return [OffsetRange(each.partition, start, end) for start, end in pairwise(bounds)]
