"""Filters that spare reading."""

from datetime import UTC, datetime

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Not

from headrace.spark.batch_reader import Pushed
from headrace.spark.offsets import OffsetRange, SourcePartition

_RANGE = OffsetRange(SourcePartition("flights", "u", 1), 10, 50)
_OFFSET, _PARTITION, _TIME = ("offset",), ("partition",), ("timestamp",)


def test_should_meet_filters_on_offsets_and_partitions_in_full() -> None:
    filters: list[Filter] = [
        *(GreaterThan(_OFFSET, 19), LessThanOrEqual(_OFFSET, 29), GreaterThanOrEqual(_OFFSET, 5)),
        *(In(_PARTITION, (1, 4, 2)), LessThan(_PARTITION, 4)),
    ]
    pushed, rest = Pushed.of(filters)
    assert rest == []
    assert pushed.cut(_RANGE) == OffsetRange(_RANGE.partition, 20, 30)
    assert [number for number in range(6) if pushed.takes(number)] == [1, 2]


def test_should_read_nothing_when_filters_contradict_each_other() -> None:
    pushed, _ = Pushed.of([EqualTo(_OFFSET, 12), EqualTo(_OFFSET, 13), In(_PARTITION, ())])
    assert pushed.cut(_RANGE).size <= 0
    assert not any(pushed.takes(number) for number in range(5))


def test_should_leave_to_spark_what_it_does_not_meet() -> None:
    others: list[Filter] = [
        *(EqualTo(("topic",), "flights"), Not(EqualTo(_PARTITION, 1)), In(_OFFSET, (1, 2))),
        *(EqualTo(_OFFSET, None), LessThan(_TIME, datetime(2026, 1, 1, tzinfo=UTC))),
    ]
    pushed, rest = Pushed.of(others)
    assert rest == others
    assert pushed == Pushed()


def test_should_begin_at_the_latest_time_and_let_spark_look_again() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    filters: list[Filter] = [GreaterThan(_TIME, late), GreaterThanOrEqual(_TIME, early)]
    pushed, rest = Pushed.of(filters)
    assert rest == filters
    assert pushed.since_ms is not None
    assert late.timestamp() * 1000 - 2 <= pushed.since_ms < late.timestamp() * 1000
    assert Pushed.of([EqualTo(_TIME, datetime(1900, 1, 1, tzinfo=UTC))])[0].since_ms == 0
