"""The options of reading: all that `spark.read` and `spark.readStream` with `format("headrace")` take. Pure.

Partitions are chosen by exactly one of `subscribe`, `subscribePattern` and `assign`. Each end of what is read is given
by one of three options, the first that is there: `startingTimestamp` stands above `startingOffsetsByTimestamp`, and
that above `startingOffsets`, as in Kafka's source; the same with `ending`. Raises LocalError that names option, value
and remedy.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from headrace.client.record import as_group, as_topic
from headrace.core.errors import LocalError
from headrace.core.units import parse_quantity_bytes
from headrace.spark.errors import LossPolicy
from headrace.spark.options import (
    CONNECTION_OPTIONS,
    Connection,
    check_names,
    choice,
    duration_ms,
    flag,
    only_one,
    optional_number,
    text,
    whole_number,
)
from headrace.spark.schema import SCHEMA_OPTIONS

SPARK_ROWS_PER_TRIGGER_DEFAULT = 2_000_000
"""The rows of a trigger: it costs Spark 0.2 to 0.4 s whatever it reads."""
SPARK_TRIGGER_DELAY_MS_DEFAULT = 900_000
"""The time for which `minOffsetsPerTrigger` holds a trigger back at most (Kafka's maxTriggerDelay)."""


SUBSCRIPTION_OPTIONS = ("subscribe", "subscribePattern", "assign")
ByPartition: TypeAlias = Mapping[str, Mapping[int, int]]
_STREAM = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "onTopicRecreated",
    "group",
)


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics, those that are added too."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsLike:
    """All partitions of all topics whose whole name matches, new ones too."""

    pattern: str


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    """These partitions, and no others."""

    numbers: Mapping[str, tuple[int, ...]]


Subscription: TypeAlias = Topics | TopicsLike | AssignedPartitions


def subscription_of(options: Mapping[str, str]) -> Subscription:
    option = only_one(options, *SUBSCRIPTION_OPTIONS)
    value = "" if option is None else text(options, option) or ""
    match option:
        case "subscribe":
            return Topics(_names(value))
        case "subscribePattern":
            return TopicsLike(_pattern(value))
        case "assign":
            return AssignedPartitions(_assigned(value))
        case _:
            raise LocalError(
                "nothing says what to read: give subscribe (topics, separated by commas), subscribePattern (a regular"
                ' expression) or assign ({"flights": [0, 1]})'
            )


def _names(value: str) -> tuple[str, ...]:
    names = dict.fromkeys(as_topic(name.strip()) for name in value.split(",") if name.strip())
    if not names:
        raise LocalError(f"subscribe is {value!r}: name topics, separated by commas")
    return tuple(names)


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise LocalError(f"subscribePattern is {value!r}, no regular expression of Python's: {error}") from None
    return value


def _assigned(value: str) -> Mapping[str, tuple[int, ...]]:
    try:
        document = json.loads(value)
        wanted = {as_topic(topic): tuple(sorted({*numbers})) for topic, numbers in document.items()}
    except (ValueError, TypeError, AttributeError):
        wanted = {}
    if not wanted or not all(numbers and all(map(_is_number, numbers)) for numbers in wanted.values()):
        raise LocalError(f'assign is {value!r}: write JSON such as {{"flights": [0, 1]}}')
    return wanted


def _is_number(number: object) -> bool:
    return type(number) is int and number >= 0


EARLIEST, LATEST = "earliest", "latest"
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""The numbers in the JSON of offsets, as in Kafka's."""


@dataclass(frozen=True, slots=True)
class LogEdge:
    """The beginning or the end of every partition."""

    name: str
    """The name: `earliest` or `latest`."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after it, in every partition."""

    ms: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    option: str
    by_topic: ByPartition


@dataclass(frozen=True, slots=True)
class AtTimes:
    option: str
    by_topic: ByPartition


Bound: TypeAlias = LogEdge | AtTime | AtOffsets | AtTimes


def bound_names(end: str) -> tuple[str, str, str]:
    """Return the names of the options for the `starting` or the `ending` end."""
    return f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets"


def bound_of(options: Mapping[str, str], end: str, default: str, *, excluded: str | None = None) -> Bound:
    """Return the bound; `excluded`: the edge (`latest` where reading begins, for example) at which nothing would be
    read."""
    time, times, offsets = bound_names(end)
    at_ms = optional_number(options, time, least=0)
    if at_ms is not None:
        return AtTime(at_ms)
    by_time = text(options, times)
    if by_time is not None:
        return AtTimes(times, _by_partition(times, by_time, _time_problem))
    by_offset = text(options, offsets) or default
    if by_offset.lower() in (EARLIEST, LATEST):
        if by_offset.lower() == excluded:
            raise LocalError(f"{offsets} is {excluded}: a batch query would find nothing; name offsets or another end")
        return LogEdge(by_offset.lower())
    return AtOffsets(offsets, _by_partition(offsets, by_offset, _offset_problem(excluded)))


def _time_problem(number: int) -> str | None:
    return None if number >= 0 else "write milliseconds since 1970-01-01 UTC"


def _offset_problem(excluded: str | None) -> Callable[[int], str | None]:
    barred = {EARLIEST: EARLIEST_NUMBER, LATEST: LATEST_NUMBER}.get(excluded or "")

    def problem(number: int) -> str | None:
        if number == barred:
            return f"a batch query would find nothing there ({number} is {excluded})"
        if number < EARLIEST_NUMBER:
            return f"write an offset, {EARLIEST_NUMBER} for earliest or {LATEST_NUMBER} for latest"
        return None

    return problem


def _by_partition(option: str, document: str, problem_of: Callable[[int], str | None]) -> ByPartition:
    example = '{"flights": {"0": 23, "1": 42}}'
    try:
        found = {
            str(topic): {int(number): _whole(value) for number, value in numbers.items()}
            for topic, numbers in json.loads(document).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise LocalError(f"{option} is {document!r}: write {EARLIEST}, {LATEST} or JSON such as {example}") from None
    for topic, numbers in found.items():
        for number, value in numbers.items():
            problem = problem_of(value)
            if problem is not None:
                raise LocalError(f"{option} says {value} of {topic}/{number}: {problem}")
    return found


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


_BOTH = (
    *CONNECTION_OPTIONS,
    *SUBSCRIPTION_OPTIONS,
    *SCHEMA_OPTIONS,
    *bound_names("starting"),
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
)
_BATCH = (*bound_names("ending"), "pushFilters")
READ_OPTIONS = (*_BOTH, *_BATCH, *_STREAM)


@dataclass(frozen=True, slots=True)
class BatchOptions:
    connection: Connection
    subscription: Subscription
    start: Bound
    end: Bound
    min_partitions: int | None
    max_records: int | None
    loss: LossPolicy
    pushes_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        _check(options, _STREAM, "a batch query")
        return cls(
            Connection.of(options),
            subscription_of(options),
            bound_of(options, "starting", EARLIEST, excluded=LATEST),
            bound_of(options, "ending", LATEST, excluded=EARLIEST),
            optional_number(options, "minPartitions"),
            optional_number(options, "maxRecordsPerPartition"),
            LossPolicy(flag(options, "failOnDataLoss", default=True)),
            flag(options, "pushFilters", default=False),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    connection: Connection
    subscription: Subscription
    start: Bound
    min_partitions: int | None
    max_records: int | None
    loss: LossPolicy
    max_offsets: int
    """The offsets of a trigger."""
    min_offsets: int
    max_delay_ms: int
    max_bytes: int | None
    group: str | None
    """The ConsumerGroup that shows the progress of the query; None: none does."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        _check(options, _BATCH, "a streaming query")
        restarts = choice(options, "onTopicRecreated", "fail", "restart") == "restart"
        return cls(
            Connection.of(options),
            subscription_of(options),
            bound_of(options, "starting", LATEST),
            optional_number(options, "minPartitions"),
            optional_number(options, "maxRecordsPerPartition"),
            LossPolicy(flag(options, "failOnDataLoss", default=True), restarts),
            whole_number(options, "maxOffsetsPerTrigger", SPARK_ROWS_PER_TRIGGER_DEFAULT),
            whole_number(options, "minOffsetsPerTrigger", 0, least=0),
            duration_ms(options, "maxTriggerDelay", SPARK_TRIGGER_DELAY_MS_DEFAULT),
            _max_bytes(options),
            _group(options),
        )


def _check(options: Mapping[str, str], others: tuple[str, ...], what: str) -> None:
    check_names(options, READ_OPTIONS, "the options of reading")
    for name in others:
        if text(options, name) is not None:
            raise LocalError(f"{name} means nothing to {what}: leave it out")


def _group(options: Mapping[str, str]) -> str | None:
    group = text(options, "group")
    return None if group is None else as_group(group)


def _max_bytes(options: Mapping[str, str]) -> int | None:
    name = "maxBytesPerTrigger"
    value = text(options, name)
    if value is None:
        return None
    try:
        size = parse_quantity_bytes(value)
    except ValueError as error:
        raise LocalError(f"{name}: {error}") from error
    if size == 0:
        raise LocalError(f"{name} is 0: write at least 1, for example 64Mi")
    return size
