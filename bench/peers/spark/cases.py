"""Which source or sink does which work in Spark, with which options: the tables of the comparison.

`headrace` reads all columns, as Kafka's source does, and then the one that is asked for (`columns`): no source written
in Python is told what a query needs, so that whoever wants less says so. `memory` yields an Arrow batch that is there
already, of the same columns and about as many rows: what any source written in Python can reach at best.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

VALUE_BYTES = 100
PARTITIONS = 8
"""Of each topic, in both systems; so many tasks have the sources without a broker."""
THREADS = 2
BROKERS = 2
"""Of Headrace."""


class Work(StrEnum):
    COUNT = "count(*)"
    LENGTHS = "sum(length(value))"
    """`value` cast to string before, as PySpark users do with Kafka's source."""
    STREAM = "stream"
    """All records by `Trigger.AvailableNow`, so many a trigger, to the sink that drops them."""
    TRIGGER = "triggers of one record"
    """A record of each partition a trigger."""
    WRITE = "stream, written"
    """So many rows a trigger from Spark's own source, to a sink."""


class Side(StrEnum):
    HEADRACE = "headrace"
    KAFKA = "kafka"
    MEMORY = "memory"
    RANGE = "range"
    IDLE = "nothing"
    NOOP = "noop"


@dataclass(frozen=True, slots=True)
class Case:
    work: Work
    side: Side
    how: str
    options: Mapping[str, str] = field(default_factory=dict)
    """In the words of that source or sink."""
    partitions: int = PARTITIONS

    @property
    def key(self) -> str:
        """Different for every case."""
        return f"{self.work}, {self.side}, {self.how}"


@dataclass(frozen=True, slots=True)
class Size:
    records: int
    """Of a topic."""
    warm_records: int
    """Of the topic that the round before the first reads; 0: there is no such round."""
    per_trigger: int
    triggers: int
    """Of one record; the first is not counted."""
    written: int
    """Triggers of a stream that is written; the first is not counted."""

    @property
    def is_judged(self) -> bool:
        """A JVM that has just started says nothing about targets."""
        return self.warm_records > 0


FULL = Size(20_000_000, warm_records=2_000_000, per_trigger=2_000_000, triggers=21, written=5)
SHORT = Size(400_000, warm_records=0, per_trigger=200_000, triggers=4, written=2)

ALL_COLUMNS, VALUE_ALONE = "all columns", "value alone"
DEFAULT, BULK = "default", "bulk"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly once", "at least once"
KAFKA_BULK = {"kafka.max.partition.fetch.bytes": "8388608", "kafka.max.poll.records": "10000"}

Groups = tuple[tuple[Case, ...], ...]


def cases() -> Groups:
    """Groups of the same work."""
    return (_batch(Work.COUNT), *quick_cases())


def quick_cases() -> Groups:
    """Of the short form: what is counted is read as what is cast is."""
    return (_batch(Work.LENGTHS), _stream(), _triggers(), _writes())


def _batch(work: Work) -> tuple[Case, ...]:
    return (
        Case(work, Side.HEADRACE, ALL_COLUMNS),
        Case(work, Side.HEADRACE, VALUE_ALONE, {"columns": "value"}),
        Case(work, Side.KAFKA, DEFAULT),
        Case(work, Side.KAFKA, BULK, KAFKA_BULK),
        Case(work, Side.MEMORY, ALL_COLUMNS),
        Case(work, Side.MEMORY, VALUE_ALONE, {"columns": "value"}),
        Case(work, Side.RANGE, "id"),
    )


def _stream() -> tuple[Case, ...]:
    return (
        Case(Work.STREAM, Side.HEADRACE, ALL_COLUMNS),
        Case(Work.STREAM, Side.HEADRACE, VALUE_ALONE, {"columns": "value"}),
        Case(Work.STREAM, Side.KAFKA, DEFAULT),
    )


def _triggers() -> tuple[Case, ...]:
    return tuple(
        Case(Work.TRIGGER, side, "1 partition" if count == 1 else f"{count} partitions", partitions=count)
        for count in (1, PARTITIONS)
        for side in (Side.HEADRACE, Side.IDLE)
    )


def _writes() -> tuple[Case, ...]:
    return (
        Case(Work.WRITE, Side.HEADRACE, EXACTLY_ONCE, {"deliveryGuarantee": "exactly-once"}),
        Case(Work.WRITE, Side.HEADRACE, AT_LEAST_ONCE, {"deliveryGuarantee": "at-least-once"}),
        Case(Work.WRITE, Side.KAFKA, AT_LEAST_ONCE),
        Case(Work.WRITE, Side.NOOP, "dropped"),
    )
