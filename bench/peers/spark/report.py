"""Spark's part of the comparison as Markdown, and as plain data for other programs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.peers.spark.cases import BULK, KAFKA_BULK, PARTITIONS, VALUE_BYTES, Case, Side, Size, Work, cases
from bench.peers.spark.figures import Rounds
from bench.peers.spark.targets import Kind, Outcome, outcomes
from bench.peers.tables import table

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class SparkResults:
    rounds: Rounds
    size: Size
    machine: Mapping[str, str]
    """What to know about the machine and the programs, by name."""


def as_json(results: SparkResults) -> dict[str, Any]:
    """Everything, each round for itself, the one that warms up included."""
    return {
        "machine": dict(results.machine),
        "size": asdict(results.size),
        "rounds": [asdict(each) for each in results.rounds.measured],
        "targets": [{**asdict(each), "met": each.is_met} for each in _judged(results)],
    }


def as_markdown(results: SparkResults) -> str:
    parts = [_machine(results), *_targets(_judged(results)), _rows_table(results.rounds), _trigger_table(results)]
    return "\n\n".join(parts) + "\n"


def _judged(results: SparkResults) -> list[Outcome]:
    return outcomes(results.rounds) if results.size.is_judged else []


def _machine(results: SparkResults) -> str:
    size, count = results.size, results.rounds.count
    told = {
        **results.machine,
        "records": f"{size.records:,} of {VALUE_BYTES} B in {PARTITIONS} partitions, {size.per_trigger:,} a trigger",
        f"{Side.KAFKA}, {BULK}": ", ".join(f"`{name}={value}`" for name, value in KAFKA_BULK.items()),
    }
    lines = ["#### In Spark", "", f"Medians of {count} {'round' if count == 1 else 'rounds'}:", ""]
    return "\n".join([*lines, *(f"- {name}: {value}" for name, value in told.items())])


def _targets(found: Sequence[Outcome]) -> list[str]:
    """Nothing in the short form."""
    head = ("work in Spark, headrace", "beside", "headrace", "there", "reached", "wanted", "met")
    rows = [
        (
            outcome.label,
            outcome.beside,
            _amount(outcome.ours, outcome.kind),
            "" if outcome.theirs is None else _amount(outcome.theirs, outcome.kind),
            *_bounds(outcome),
            "yes" if outcome.is_met else "**no**",
        )
        for outcome in found
    ]
    return [table(head, rows)] if rows else []


def _amount(value: float, kind: Kind) -> str:
    return f"{value:,.0f} ms" if kind is Kind.ADDED else f"{value:,.0f} rows/s"


def _bounds(outcome: Outcome) -> tuple[str, str]:
    match outcome.kind:
        case Kind.SHARE:
            return f"{outcome.reached:.2f}", f"≥ {outcome.bound:.2g}"
        case Kind.RATE:
            return f"{outcome.reached:,.0f} rows/s", f"≥ {outcome.bound:,.0f}"
        case Kind.ADDED:
            return f"{outcome.reached:+,.0f} ms", f"≤ {outcome.bound:+,.0f} ms"


def _rows_table(rounds: Rounds) -> str:
    head = ("work in Spark", "source or sink", "how", "rows/s", "Spark's CPU, µs/row", "broker CPU, µs/row")
    rows = [
        (
            case.work,
            case.side,
            case.how,
            f"{rounds.rate(case):,.0f}",
            f"{rounds.spark_cpu_s(case) * _MICROSECONDS:.2f}",
            f"{rounds.broker_cpu_s(case) * _MICROSECONDS:.2f}",
        )
        for case in _measured(rounds)
        if case.work is not Work.TRIGGER
    ]
    return table(head, rows)


def _trigger_table(results: SparkResults) -> str:
    """The CPU of a trigger is that of all, with the start of the query, by those that count."""
    rounds = results.rounds
    head = ("work in Spark", "source", "how", "one trigger, p50", "Spark's CPU, a trigger", "broker CPU, a trigger")
    rows = [
        (
            case.work,
            case.side,
            case.how,
            f"{rounds.trigger_ms(case):,.0f} ms",
            f"{rounds.spark_cpu_s(case) * 1000:,.0f} ms",
            f"{rounds.broker_cpu_s(case) * 1000:,.1f} ms",
        )
        for case in _measured(rounds)
        if case.work is Work.TRIGGER
    ]
    return table(head, rows)


def _measured(rounds: Rounds) -> list[Case]:
    return [case for group in cases() for case in group if rounds.of(case)]
