"""What is said of a run, and the table of all. Pure."""

from collections.abc import Sequence
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
    longest_unavailability_s: float | None = None
    progress: list[dict[str, Any]] = field(default_factory=list)
    """Of each fault: its name, how long it lasted, what was acknowledged meanwhile."""
    failures: dict[str, int] = field(default_factory=dict)
    """Of requests, by code."""


_HEADS = (
    "",
    "acknowledged",
    "unknown",
    "refused",
    "read",
    "lost",
    "doubled",
    "longest gap",
    "during faults",
    "took",
    "",
)


def table(rows: Sequence[tuple[str, Verdict]]) -> list[str]:
    """One line for each run, by the title of its scenario; what is wrong follows below."""
    lines = [_HEADS, *(_cells(title, verdict) for title, verdict in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADS))]
    return [
        "  ".join(
            cell.ljust(width) if number in (0, 10) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _cells(title: str, verdict: Verdict) -> tuple[str, ...]:
    during = sum(progress["acknowledged"] for progress in verdict.progress)
    seconds = sum(progress["seconds"] for progress in verdict.progress)
    gap = verdict.longest_unavailability_s
    return (
        f"{verdict.scenario} {title}",
        str(verdict.acknowledged),
        str(verdict.unknown),
        str(verdict.refused),
        str(verdict.read),
        "?" if verdict.lost is None else str(verdict.lost),
        "?" if verdict.duplicated is None else str(verdict.duplicated),
        "?" if gap is None else f"{gap:.1f} s",
        f"{during} in {seconds:.0f} s" if verdict.progress else "-",
        f"{verdict.seconds:.0f} s",
        "WRONG" if verdict.wrong else "ok",
    )
