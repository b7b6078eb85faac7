"""Where reading begins and ends, as options say it: one of three options for each end, the first that is given. Pure.

`startingTimestamp` stands above `startingOffsetsByTimestamp`, and that above `startingOffsets`, as in Kafka's source;
the same with `ending`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.core.errors import LocalError
from headrace.core.slotted import dataclass
from headrace.spark.options import optional_number, text

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""In the JSON of offsets, as in Kafka's."""

ByPartition: TypeAlias = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Edge:
    """The beginning or the end of every partition."""

    name: str
    """`earliest` or `latest`."""


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


Bound: TypeAlias = Edge | AtTime | AtOffsets | AtTimes


def bound_names(end: str) -> tuple[str, str, str]:
    """Of the options for the `starting` or the `ending` end."""
    return f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets"


def bound_of(options: Mapping[str, str], end: str, default: str, *, excluded: str | None = None) -> Bound:
    """`excluded`: the edge (`latest` where reading begins, for example) at which nothing would be read."""
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
        return Edge(by_offset.lower())
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
