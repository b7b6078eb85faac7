"""What is said of a run, and the table of all. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Verdict:
    scenario: str
    seed: int
    seconds: float
    wrong: list[str]
    notes: list[str] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    lost: int | None = None
    """None: the run did not come so far."""
    duplicated: int | None = None
    read: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """How many findings of each kind the judge has: `wrong` shows the first of them."""
    unavailability_s: Mapping[Any, float] = field(default_factory=dict)
    """By partition, the longest time without an acknowledgement; empty: the run did not come so far."""
    silence_s: Mapping[Any, float] = field(default_factory=dict)
    """By partition, the longest time in which no reader was answered."""
    progress: list[dict[str, Any]] = field(default_factory=list)
    """Of each fault, as `figures.Progress`."""
    failures: dict[str, int] = field(default_factory=dict)
    """Of requests, by code."""


_BROKER = re.compile(r"\bbroker \d+")
_HEADS = (
    "",
    "acknowledged",
    "unknown",
    "refused",
    "read",
    "lost",
    "doubled",
    "longest gap",
    "of readers",
    "faults",
    "meanwhile",
    "took",
    "",
)


def table(rows: Sequence[tuple[str, Verdict]]) -> list[str]:
    """One line for each run, by the title of its scenario; what is wrong follows below."""
    lines = [_HEADS, *(_cells(title, verdict) for title, verdict in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADS))]
    return [
        "  ".join(
            cell.ljust(width) if number in (0, len(_HEADS) - 1) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _cells(title: str, verdict: Verdict) -> tuple[str, ...]:
    during = sum(progress["acknowledged"] for progress in verdict.progress)
    seconds = sum(progress["seconds"] for progress in verdict.progress)
    return (
        f"{verdict.scenario} {title}",
        str(verdict.acknowledged),
        str(verdict.unknown),
        str(verdict.refused),
        str(verdict.read),
        "?" if verdict.lost is None else str(verdict.lost),
        "?" if verdict.duplicated is None else str(verdict.duplicated),
        _worst(verdict.unavailability_s),
        _worst(verdict.silence_s),
        str(len(verdict.progress)),
        f"{during} in {seconds:.0f} s" if verdict.progress else "-",
        f"{verdict.seconds:.0f} s",
        "WRONG" if verdict.wrong else "ok",
    )


def _worst(by_partition: Mapping[Any, float]) -> str:
    return f"{max(by_partition.values()):.1f} s" if by_partition else "?"


def gaps(verdict: Verdict) -> list[str]:
    """Sentences: the longest time without an acknowledgement, by partition, and during faults of each kind."""
    if not verdict.unavailability_s:
        return []
    by_partition = ", ".join(f"{partition}: {gap:.1f} s" for partition, gap in verdict.unavailability_s.items())
    by_kind: dict[str, float] = {}
    for progress in verdict.progress:
        kind = _BROKER.sub("a broker", progress["fault"])
        by_kind[kind] = max(by_kind.get(kind, 0.0), progress["longest_unavailability_s"])
    said = [f"longest without an acknowledgement, by partition: {by_partition}"]
    return said + [f"... while {kind}: {gap:.1f} s" for kind, gap in by_kind.items()]
