"""Filters of a batch query that spare reading: on partition, offset and time. Pure.

Those on partition and offset are met in full; of those on time only the lower end helps, since times need not ascend,
and Spark looks at each record again.
"""

from collections.abc import Iterable
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any, Self

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headrace.core.slotted import dataclass
from headrace.spark.bounds import AtTime
from headrace.spark.ranges import OffsetRange

_INFINITE = 1 << 63


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `low` to below `high`, or some of them."""

    low: int = 0
    high: int = _INFINITE
    some: frozenset[int] | None = None

    def has(self, number: int) -> bool:
        return self.low <= number < self.high and (self.some is None or number in self.some)

    def within(self, other: "Span") -> "Span":
        some = other.some if self.some is None else self.some if other.some is None else self.some & other.some
        low, high = max(self.low, other.low), min(self.high, other.high)
        if some is not None:
            low, high = max(low, min(some, default=high)), min(high, max(some, default=low - 1) + 1)
        return Span(low, high, some)


@dataclass(frozen=True, slots=True)
class Pushed:
    partitions: Span = field(default_factory=Span)
    offsets: Span = field(default_factory=Span)
    since_ms: int | None = None
    """No record before the first one of this time is wanted."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> tuple[Self, list[Filter]]:
        """And the filters that Spark must see to."""
        pushed, rest = cls(), []
        for each in filters:
            narrowed = pushed._narrowed(each)
            if narrowed is None or each.attribute == ("timestamp",):  # type: ignore[attr-defined]  # Each of ours has one.
                rest.append(each)
            pushed = narrowed or pushed
        return pushed, rest

    def _narrowed(self, each: Filter) -> Self | None:
        """None: it is of no use here."""
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


def _span(each: Filter) -> Span | None:
    match each:
        case EqualTo(_, int(number)) | EqualNullSafe(_, int(number)):
            return Span(number, number + 1)
        case GreaterThan(_, int(number)):
            return Span(low=number + 1)
        case GreaterThanOrEqual(_, int(number)):
            return Span(low=number)
        case LessThan(_, int(number)):
            return Span(high=number)
        case LessThanOrEqual(_, int(number)):
            return Span(high=number + 1)
        case In(_, numbers) if all(isinstance(number, int) for number in numbers):
            return Span(some=frozenset(numbers))
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
    """Rounded down, and from 1970 on: earlier is the beginning."""
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0, int(zoned.timestamp() * 1000) - 1)
