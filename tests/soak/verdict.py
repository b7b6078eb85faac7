"""What is wrong after a soak: sentences, none where every promise was kept. No I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.core.units import format_bytes
from tests.soak.journal import STEADY, Sample, growth, outside, since
from tests.support.history import Entry, Finding, Kind, check

WARM_UP_PART: Final = 0.4
"""Memory and files are judged after so much of the run."""
RSS_GROWTH_PART_MAX: Final = 0.10
RSS_GROWTH_BYTES_MIN: Final = 12 << 20
"""What a straight line through the samples may rise at least, whatever part that is."""
FILES_GROWTH_PART_MAX: Final = 0.25
"""Closed segments are opened as somebody reads them: their number varies."""
RSS_BYTES_MAX: Final = 200 << 20
_SHOWN: Final = 5


@dataclass(slots=True)
class History:
    """Of all partitions with batches; places are `offset / ROWS`."""

    acknowledged: list[Entry]
    seen: list[Entry]
    """By followers, in their order."""
    skipped: dict[int, list[range]]
    final: list[Entry]
    """Read from the start to the end once all was over."""
    starts: dict[int, int]
    """Where each partition begins then."""


@dataclass(slots=True)
class Findings:
    wrong: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    """What was found in order, for people."""

    def judge(self, fact: str, wrong: Sequence[str]) -> None:
        """`fact` holds, unless there is something wrong."""
        if wrong:
            more = f" ... and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
            self.wrong.append(f"not so: {fact}\n    " + "\n    ".join(wrong[:_SHOWN]) + more)
        else:
            self.facts.append(fact)


def judge_history(history: History, findings: Findings, *, by: str = "") -> None:
    """`by`: who has written, where that is to be said."""
    acknowledged = history.acknowledged
    read = _but_gaps_of_skips(check(outside(acknowledged, history.skipped), history.seen), history)
    findings.judge(
        f"each of {len(acknowledged)} batches acknowledged{by} was read once, whole, at its place, before it was"
        " deleted",
        [f"{finding.kind}: {finding.entry}" for finding in read],
    )
    kept = check(since(acknowledged, history.starts), history.final, since(history.seen, history.starts))
    findings.judge(
        f"all that retention keeps of them is there at the end ({len(history.final)} batches)",
        [f"{finding.kind}: {finding.entry}" for finding in kept],
    )


def _but_gaps_of_skips(found: Sequence[Finding], history: History) -> list[Finding]:
    """A reader that was too late goes on where the log begins then."""
    ends = {(partition, gap.stop) for partition, gaps in history.skipped.items() for gap in gaps}
    return [
        each for each in found if each.kind is not Kind.GAP or (each.entry.partition, each.entry.offset) not in ends
    ]


def judge_memory(samples: Sequence[Sample], findings: Findings) -> None:
    steady = [sample for sample in samples if sample.broker == STEADY]
    warm = steady[int(len(steady) * WARM_UP_PART) :]
    rss = [(sample.at_s, float(sample.rss_bytes)) for sample in warm]
    files = [(sample.at_s, float(sample.open_files)) for sample in warm]
    rss_bound = max(RSS_GROWTH_BYTES_MIN, RSS_GROWTH_PART_MAX * _mean(rss))
    _judge_flat("memory of the broker that lived all along is flat", rss, rss_bound, format_bytes, findings)
    files_bound = FILES_GROWTH_PART_MAX * _mean(files)
    _judge_flat("its number of open files is flat", files, files_bound, lambda count: f"{count:.0f}", findings)
    peak = max((sample.rss_bytes for sample in samples), default=0)
    findings.judge(
        f"no broker took more than {format_bytes(peak)} of memory (bound {format_bytes(RSS_BYTES_MAX)})",
        [f"broker {s.broker} at {s.at_s:.0f} s" for s in samples if s.rss_bytes > RSS_BYTES_MAX],
    )


def _judge_flat(
    what: str, samples: Sequence[tuple[float, float]], bound: float, shown: Callable[[float], str], findings: Findings
) -> None:
    rise = growth(samples)
    findings.judge(
        f"{what}: {shown(_mean(samples))} on average, its line rises by {shown(rise)} (bound {shown(bound)})",
        [f"it rises by {shown(rise)}"] if rise > bound else [],
    )


def _mean(samples: Sequence[tuple[float, float]]) -> float:
    return sum(value for _, value in samples) / max(1, len(samples))
