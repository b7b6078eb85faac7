"""A batch query: its ranges are fixed on the driver, once, and read by tasks.

Filters on partition, offset and time spare reading. Those on partition and offset are met in full; of those on time
only the lower end helps, since times need not ascend, and Spark looks at each record again.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from headrace.spark.catalog import Catalog
from headrace.spark.offsets import OffsetRange, batch_ranges, split_ranges
from headrace.spark.read_options import AtOffsets, AtTime, BatchOptions
from headrace.spark.tasks import Reading

_INFINITE = 1 << 63


@dataclass(frozen=True, slots=True)
class NumberSpan:
    """The whole numbers from `low` to below `high`, or some of them."""

    low: int = 0
    high: int = _INFINITE
    some: frozenset[int] | None = None

    def has(self, number: int) -> bool:
        return self.low <= number < self.high and (self.some is None or number in self.some)

    def within(self, other: "NumberSpan") -> "NumberSpan":
        some = other.some if self.some is None else self.some if other.some is None else self.some & other.some
        low, high = max(self.low, other.low), min(self.high, other.high)
        if some is not None:
            low, high = max(low, min(some, default=high)), min(high, max(some, default=low - 1) + 1)
        return NumberSpan(low, high, some)


@dataclass(frozen=True, slots=True)
class Pushed:
    partitions: NumberSpan = field(default_factory=NumberSpan)
    offsets: NumberSpan = field(default_factory=NumberSpan)
    since_ms: int | None = None
    """The time of the first record that is wanted."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> tuple[Self, list[Filter]]:
        """Return the bounds, and the filters that Spark must handle."""
        pushed, rest = cls(), []
        for each in filters:
            narrowed = pushed._narrowed(each)
            if narrowed is None or each.attribute == ("timestamp",):  # type: ignore[attr-defined]  # Each of ours has one.
                rest.append(each)
            pushed = narrowed or pushed
        return pushed, rest

    def _narrowed(self, each: Filter) -> Self | None:
        """Return the narrower bounds; None: the filter does not help here."""
        column = getattr(each, "attribute", ())
        if column == ("timestamp",):
            since_ms = _since_ms(each)
            return None if since_ms is None else replace(self, since_ms=max(since_ms, self.since_ms or 0))
        span = _span(each)
        if span is None or column not in (("partition",), ("offset",)):
            return None
        if column == ("partition",):
            return replace(self, partitions=self.partitions.within(span))
        # Several offsets are the run from the first to the last: the rest is for Spark.
        return None if span.some is not None else replace(self, offsets=self.offsets.within(span))

    def takes(self, partition: int) -> bool:
        return self.partitions.has(partition)

    def cut(self, each: OffsetRange) -> OffsetRange:
        return each._replace(start=max(each.start, self.offsets.low), end=min(each.end, self.offsets.high))

    @property
    def since(self) -> AtTime:
        return AtTime(self.since_ms or 0)


def _span(each: Filter) -> NumberSpan | None:
    match each:
        case EqualTo(_, int(number)) | EqualNullSafe(_, int(number)):
            return NumberSpan(number, number + 1)
        case GreaterThan(_, int(number)):
            return NumberSpan(low=number + 1)
        case GreaterThanOrEqual(_, int(number)):
            return NumberSpan(low=number)
        case LessThan(_, int(number)):
            return NumberSpan(high=number)
        case LessThanOrEqual(_, int(number)):
            return NumberSpan(high=number + 1)
        case In(_, numbers) if all(isinstance(number, int) for number in numbers):
            return NumberSpan(some=frozenset(numbers))
        case _:
            return None


def _since_ms(each: Filter) -> int | None:
    match each:
        case (
            EqualTo(_, datetime() as time)
            | GreaterThan(_, datetime() as time)
            | GreaterThanOrEqual(_, datetime() as time)
        ):
            return _ms(time)
        case _:
            return None


def _ms(time: Any) -> int:
    """Return milliseconds, rounded down, and from 1970 on: an earlier time is the beginning."""
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0, int(zoned.timestamp() * 1000) - 1)


class BatchReader(DataSourceReader):
    def __init__(self, options: BatchOptions, reading: Reading) -> None:
        self._options, self._reading = options, reading
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with closing(Catalog(self._reading.connection)) as catalog:
            ranges = self._ranges(catalog)
        cut = split_ranges(ranges, min_partitions=options.min_partitions, max_records=options.max_records)
        return [InputPartition(each) for each in cut]

    def _ranges(self, catalog: Catalog) -> list[OffsetRange]:
        options, pushed = self._options, self._pushed
        partitions = [each for each in catalog.partitions(options.subscription) if pushed.takes(each.number)]
        starts, ends = catalog.at(options.start, partitions), catalog.at(options.end, partitions)
        # Offsets from brokers exist; only those that a user gave must be checked.
        earliest = catalog.earliest(partitions) if isinstance(options.start, AtOffsets) else {}
        is_told = isinstance(options.start, AtOffsets) or isinstance(options.end, AtOffsets)
        latest = catalog.latest(partitions) if is_told else {}
        ranges = [pushed.cut(each) for each in batch_ranges(starts, ends, earliest, latest, options.loss)]
        if pushed.since_ms is None:
            return ranges
        since = catalog.at(pushed.since, partitions)
        return [each._replace(start=max(each.start, since[each.partition])) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition.value)


class FilteringBatchReader(BatchReader):
    """The batch reader with filters: Spark needs a setting for each class that defines `pushFilters`, so only a query
    that wants them gets it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pushed, rest = Pushed.of(filters)
        return rest
