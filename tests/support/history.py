"""Judges a run with faults: what was acknowledged, what was read meanwhile, what can be read at the end.

Every attempt to write must carry a value of its own, so that a value found twice was written twice by the brokers and
not by a retry. Values that were never acknowledged may be there or not (their answer was lost, not they), but once a
reader has seen one it must stay. No compaction: offsets have no gaps.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A record at its place: as it was acknowledged, or as it was read."""

    partition: int
    offset: int
    value: bytes


class Kind(StrEnum):
    LOST_EVERYTHING = "acknowledged, and all of the partition's acknowledged records are gone"
    LOST_PREFIX = "acknowledged, and gone from the start of the log"
    LOST_MIDDLE = "acknowledged, and gone from between others"
    LOST_POSTFIX = "acknowledged, and gone from the end of the log"
    MOVED = "acknowledged at one offset, found at another"
    DUPLICATE = "written once, found more than once"
    VANISHED = "seen by a reader, and gone later"
    DISORDER = "offsets that do not rise"
    GAP = "offsets that are missing between others"


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    entry: Entry
    """The record that shows it: the acknowledged or seen one, or the later of two neighbours."""


def check(acknowledged: Iterable[Entry], final: Sequence[Entry], seen: Iterable[Entry] = ()) -> list[Finding]:
    """What is wrong; nothing, for a log that keeps its promises. `final` is in the order in which it was read."""
    findings = _losses(sorted(set(acknowledged)), final)
    findings += _vanished(seen, final)
    findings += _duplicates(final)
    by_partition: dict[int, list[Entry]] = {}
    for entry in final:
        by_partition.setdefault(entry.partition, []).append(entry)
    for entries in by_partition.values():
        findings += _sequence(entries)
    return findings


def _losses(acknowledged: Sequence[Entry], final: Sequence[Entry]) -> list[Finding]:
    present = set(final)
    elsewhere = {(entry.partition, entry.value) for entry in final}
    missing = [entry for entry in acknowledged if entry not in present]
    moved = [entry for entry in missing if (entry.partition, entry.value) in elsewhere]
    kept: dict[int, list[int]] = {}
    for entry in acknowledged:
        if entry in present:
            kept.setdefault(entry.partition, []).append(entry.offset)
    lost = [entry for entry in missing if entry not in moved]
    return [Finding(Kind.MOVED, entry) for entry in moved] + [
        Finding(_kind_of_loss(entry.offset, kept.get(entry.partition, [])), entry) for entry in lost
    ]


def _kind_of_loss(offset: int, kept: Sequence[int]) -> Kind:
    """`kept`: offsets of the partition's acknowledged records that are still there, ascending."""
    if not kept:
        return Kind.LOST_EVERYTHING
    if offset < kept[0]:
        return Kind.LOST_PREFIX
    return Kind.LOST_POSTFIX if offset > kept[-1] else Kind.LOST_MIDDLE


def _vanished(seen: Iterable[Entry], final: Sequence[Entry]) -> list[Finding]:
    present = set(final)
    return [Finding(Kind.VANISHED, entry) for entry in sorted(set(seen)) if entry not in present]


def _duplicates(final: Sequence[Entry]) -> list[Finding]:
    counts = Counter(entry.value for entry in final)
    return [Finding(Kind.DUPLICATE, entry) for entry in final if counts[entry.value] > 1]


def _sequence(entries: Sequence[Entry]) -> list[Finding]:
    findings = [Finding(Kind.DISORDER, b) for a, b in pairwise(entries) if b.offset <= a.offset]
    ascending = sorted(set(entries))
    return findings + [Finding(Kind.GAP, b) for a, b in pairwise(ascending) if b.offset > a.offset + 1]
