"""What Headrace wants to reach in Spark, within one run: a table, and what was reached. Pure.

Kafka's source is measured as it comes, which is how it is used, and with bulk settings: there is a row for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.peers.spark.cases import (
    ALL_COLUMNS,
    AT_LEAST_ONCE,
    BULK,
    DEFAULT,
    EXACTLY_ONCE,
    VALUE_ALONE,
    Case,
    Side,
    Work,
    cases,
)
from bench.peers.spark.figures import Rounds


class Kind(StrEnum):
    SHARE = "rows/s divided by theirs, at least"
    RATE = "rows/s, at least"
    ADDED = "ms that a trigger takes longer than theirs, at most"


@dataclass(frozen=True, slots=True)
class Target:
    work: Work
    how: str
    """Of Headrace."""
    kind: Kind
    bound: float
    beside: Side | None = None
    setting: str = ""
    """Of the other side."""


@dataclass(frozen=True, slots=True)
class Outcome:
    label: str
    beside: str
    kind: Kind
    ours: float
    theirs: float | None
    reached: float
    bound: float

    @property
    def is_met(self) -> bool:
        return self.reached <= self.bound if self.kind is Kind.ADDED else self.reached >= self.bound


_ARROW, _KAFKA, _STREAMED, _WRITTEN, _ADDED_MS = 0.8, 1.5, 1_000_000, 1_000_000, 50
_COLUMNS = (ALL_COLUMNS, VALUE_ALONE)
TARGETS: Sequence[Target] = (
    *(
        Target(work, how, Kind.SHARE, _ARROW, Side.MEMORY, how)
        for work in (Work.COUNT, Work.LENGTHS)
        for how in _COLUMNS
    ),
    *(
        Target(Work.LENGTHS, how, Kind.SHARE, _KAFKA, Side.KAFKA, setting)
        for how in _COLUMNS
        for setting in (DEFAULT, BULK)
    ),
    *(Target(Work.STREAM, how, Kind.RATE, _STREAMED) for how in _COLUMNS),
    Target(Work.WRITE, EXACTLY_ONCE, Kind.RATE, _WRITTEN),
    Target(Work.WRITE, AT_LEAST_ONCE, Kind.SHARE, _KAFKA, Side.KAFKA, AT_LEAST_ONCE),
    *(
        Target(Work.TRIGGER, case.how, Kind.ADDED, _ADDED_MS, Side.IDLE, case.how)
        for group in cases()
        for case in group
        if case.work is Work.TRIGGER and case.side is Side.HEADRACE
    ),
)


def outcomes(rounds: Rounds) -> list[Outcome]:
    return [_outcome(target, rounds) for target in TARGETS]


def _outcome(target: Target, rounds: Rounds) -> Outcome:
    ours = _figure(target, rounds, _case(target.work, Side.HEADRACE, target.how))
    label = f"{target.work}, {target.how}"
    if target.beside is None:
        return Outcome(label, "", target.kind, ours, None, ours, target.bound)
    theirs = _figure(target, rounds, _case(target.work, target.beside, target.setting))
    reached = ours - theirs if target.kind is Kind.ADDED else ours / theirs
    return Outcome(label, f"{target.beside}, {target.setting}", target.kind, ours, theirs, reached, target.bound)


def _figure(target: Target, rounds: Rounds, case: Case) -> float:
    return rounds.trigger_ms(case) if target.kind is Kind.ADDED else rounds.rate(case)


def _case(work: Work, side: Side, how: str) -> Case:
    return next(case for group in cases() for case in group if (case.work, case.side, case.how) == (work, side, how))
