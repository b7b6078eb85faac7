"""The oracle of every run with faults: what clients were promised and shown, against what is there in the end. Pure.

Clients write down facts, no opinions: a `Write` for each record that somebody tried to write, once its outcome is known
or given up; a `Poll` for each answer with records; a `Look` for each answer about the end of a partition. The run adds
the whole log as it can be read when all is over, and what lies on the disks of the replicas.

What must hold, by partition:

    an acknowledged write is there exactly once, at the offset that was acknowledged
    a refused write (the error says that nothing was written) is not there
    an unknown write is there once or not at all; and once a reader has seen it, it stays
    one writer's writes stand in the order in which it sent them: acknowledged ones, and all of an idempotent writer
    a reader gets every offset once, rising, below the high watermark, with the bytes and the epoch that stay there
    ends and high watermarks never go back for one reader
    replicas agree byte by byte below the high watermark

Values are told apart by their bytes: every attempt of a writer that does not number its batches has a new one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from tests.support.history import Entry, check


class Outcome(StrEnum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """With an error that promises that nothing was written."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """One record of one writer."""

    writer: str
    number: int
    """Rises with each write of this writer to this partition."""
    partition: int
    value: bytes
    began_s: float
    ended_s: float
    outcome: Outcome
    offset: int = -1
    """Where it stands, as acknowledged."""
    why: str = ""
    """The code of the error."""


@dataclass(frozen=True, slots=True)
class Row:
    offset: int
    value: bytes
    leader_epoch: int = -1
    """-1: the reader does not see it."""


@dataclass(frozen=True, slots=True)
class Poll:
    """An answer to a fetch."""

    reader: str
    partition: int
    at_s: float
    rows: tuple[Row, ...]
    high_watermark: int = -1
    """-1: the reader does not see it."""


@dataclass(frozen=True, slots=True)
class Look:
    """An answer to the question where a partition ends."""

    reader: str
    partition: int
    at_s: float
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A time in which something was broken."""

    name: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class History:
    """Of one topic, whole."""

    writes: Sequence[Write] = ()
    polls: Sequence[Poll] = ()
    looks: Sequence[Look] = ()
    final: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    """All that can be read in the end, by partition, as it was read."""
    replicas: Mapping[int, Mapping[str, Mapping[int, bytes]]] = field(default_factory=dict)
    """Partition -> replica in sync -> base offset of each batch below the high watermark -> its bytes."""
    faults: Sequence[Fault] = ()
    idempotent: frozenset[str] = frozenset()
    """Writers that number their batches."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """Where logs begin in the end, where records were deleted on purpose; 0 else."""


class Wrong(StrEnum):
    """Beyond `tests.support.history.Kind`."""

    REFUSED_AND_THERE = "refused, and there all the same"
    ORDER = "not in the order in which its writer sent it"
    DIRTY_READ = "read at or above the high watermark"
    SKIPPED = "a reader was not given what lies before it"
    WENT_BACK = "a reader was told of a smaller end than before"
    READ_TWICE = "a reader was given an offset that it was given before"
    OTHER_EPOCH = "read with another leader epoch than it has in the end"
    EPOCH_FELL = "a leader epoch below that of the record before"
    REPLICAS_DIFFER = "replicas do not hold the same bytes below the high watermark"
    NOBODY_WROTE = "nobody wrote this"


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    partition: int
    what: str

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What was acknowledged while a fault lasted."""

    fault: str
    seconds: float
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    acknowledged: int
    unknown: int
    refused: int
    lost: int
    duplicated: int
    read: int
    longest_unavailability_s: float
    """Between two acknowledgements of one partition, the worst of all partitions."""
    unavailability_s: Mapping[int, float]
    progress: tuple[Progress, ...]


def judge(history: History) -> Report:
    findings = [*_of_writes(history), *_of_orders(history), *_of_polls(history), *_of_replicas(history)]
    findings += _strangers(history)
    counted = {outcome: sum(write.outcome is outcome for write in history.writes) for outcome in Outcome}
    unavailability = unavailability_s(history)
    return Report(
        tuple(findings),
        acknowledged=counted[Outcome.ACKNOWLEDGED],
        unknown=counted[Outcome.UNKNOWN],
        refused=counted[Outcome.REFUSED],
        lost=sum(finding.kind.startswith("acknowledged, and") for finding in findings),
        duplicated=sum(finding.kind.startswith("written once") for finding in findings),
        read=sum(len(poll.rows) for poll in history.polls),
        longest_unavailability_s=max(unavailability.values(), default=0.0),
        unavailability_s=unavailability,
        progress=tuple(_progress(history)),
    )


# -- writes ----------------------------------------------------------------------------------------------------------


def _of_writes(history: History) -> Iterator[Finding]:
    for partition in _partitions(history):
        start = history.starts.get(partition, 0)
        final = [Entry(partition, row.offset, row.value) for row in history.final.get(partition, ())]
        acknowledged = [
            Entry(partition, write.offset, write.value)
            for write in history.writes
            if write.partition == partition and write.outcome is Outcome.ACKNOWLEDGED and write.offset >= start
        ]
        seen = {
            Entry(partition, row.offset, row.value)
            for poll in history.polls
            if poll.partition == partition
            for row in poll.rows
            if row.offset >= start
        }
        for found in check(acknowledged, final, seen):
            yield Finding(found.kind, partition, f"offset {found.entry.offset}, {found.entry.value!r}")
        there = {row.value for row in history.final.get(partition, ())}
        for write in history.writes:
            if write.partition == partition and write.outcome is Outcome.REFUSED and write.value in there:
                yield Finding(Wrong.REFUSED_AND_THERE, partition, f"{write.value!r}, {write.why}")


def _of_orders(history: History) -> Iterator[Finding]:
    sent: dict[tuple[str, int], dict[bytes, Write]] = defaultdict(dict)
    for write in history.writes:
        if write.outcome is Outcome.ACKNOWLEDGED or write.writer in history.idempotent:
            sent[write.writer, write.partition][write.value] = write
    for (writer, partition), writes in sent.items():
        there = [writes[row.value] for row in history.final.get(partition, ()) if row.value in writes]
        for before, after in pairwise(there):
            if after.number < before.number:
                yield Finding(Wrong.ORDER, partition, f"{after.value!r} behind {before.value!r} of {writer}")


def _strangers(history: History) -> Iterator[Finding]:
    known = {write.value for write in history.writes}
    for partition, rows in history.final.items():
        for row in rows if known else ():
            if row.value not in known:
                yield Finding(Wrong.NOBODY_WROTE, partition, f"offset {row.offset}, {row.value!r}")


# -- reads -----------------------------------------------------------------------------------------------------------


def _of_polls(history: History) -> Iterator[Finding]:
    epochs = {(partition, row.offset): row.leader_epoch for partition, rows in history.final.items() for row in rows}
    for (reader, partition), polls in _by_reader(history.polls).items():
        yield from _of_offsets(reader, partition, polls, history.starts.get(partition, 0))
        for poll in polls:
            for row in poll.rows:
                yield from _of_row(reader, poll, row, epochs.get((partition, row.offset), -1))
        rows = [row for poll in polls for row in poll.rows if row.leader_epoch >= 0]
        for before, after in pairwise(rows):
            if after.leader_epoch < before.leader_epoch:
                what = f"offset {after.offset} has epoch {after.leader_epoch} after {before.leader_epoch}"
                yield Finding(Wrong.EPOCH_FELL, partition, what)
    yield from _of_ends(history)


def _of_row(reader: str, poll: Poll, row: Row, final_epoch: int) -> Iterator[Finding]:
    if 0 <= poll.high_watermark <= row.offset:
        what = f"{reader} read offset {row.offset}, high watermark {poll.high_watermark}"
        yield Finding(Wrong.DIRTY_READ, poll.partition, what)
    if -1 not in (row.leader_epoch, final_epoch) and row.leader_epoch != final_epoch:
        what = f"{reader} read offset {row.offset} with epoch {row.leader_epoch}, it has {final_epoch}"
        yield Finding(Wrong.OTHER_EPOCH, poll.partition, what)


def _of_offsets(reader: str, partition: int, polls: Sequence[Poll], start: int) -> Iterator[Finding]:
    expected: int | None = None
    for row in (row for poll in polls for row in poll.rows):
        if expected is not None and row.offset < expected:
            yield Finding(Wrong.READ_TWICE, partition, f"{reader} read offset {row.offset} after {expected - 1}")
        elif expected is not None and row.offset > max(expected, start):
            yield Finding(Wrong.SKIPPED, partition, f"{reader} went from {expected} to {row.offset}")
        expected = row.offset + 1


def _of_ends(history: History) -> Iterator[Finding]:
    told: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for poll in history.polls:
        if poll.high_watermark >= 0:
            told[poll.reader, poll.partition].append((poll.at_s, poll.high_watermark))
    for look in history.looks:
        told[look.reader, look.partition].append((look.at_s, look.end))
    for (reader, partition), ends in told.items():
        for (_, before), (at_s, after) in pairwise(sorted(ends, key=lambda end: end[0])):
            if after < before:
                yield Finding(Wrong.WENT_BACK, partition, f"{reader} at {at_s:.3f} s: {after} after {before}")


def _by_reader(polls: Iterable[Poll]) -> dict[tuple[str, int], list[Poll]]:
    found: dict[tuple[str, int], list[Poll]] = defaultdict(list)
    for poll in polls:
        found[poll.reader, poll.partition].append(poll)
    return found


# -- replicas --------------------------------------------------------------------------------------------------------


def _of_replicas(history: History) -> Iterator[Finding]:
    for partition, logs in history.replicas.items():
        first = max((min(batches, default=0) for batches in logs.values()), default=0)
        for offset in sorted({offset for batches in logs.values() for offset in batches if offset >= first}):
            held = {name: batches.get(offset) for name, batches in logs.items()}
            if len({*held.values()}) > 1:
                sizes = ", ".join(f"{name} {'nothing' if b is None else f'{len(b)} bytes'}" for name, b in held.items())
                yield Finding(Wrong.REPLICAS_DIFFER, partition, f"the batch at {offset}: {sizes}")
                break


# -- figures ---------------------------------------------------------------------------------------------------------


def unavailability_s(history: History) -> dict[int, float]:
    """By partition: the longest time between two acknowledgements, or from the last one to the last attempt's end."""
    ends: dict[int, list[float]] = defaultdict(list)
    tried: dict[int, float] = {}
    for write in history.writes:
        tried[write.partition] = max(tried.get(write.partition, 0.0), write.ended_s)
        if write.outcome is Outcome.ACKNOWLEDGED:
            ends[write.partition].append(write.ended_s)
    gaps: dict[int, float] = {}
    for partition, times in ends.items():
        all_times = [*sorted(times), tried[partition]]
        gaps[partition] = max((after - before for before, after in pairwise(all_times)), default=0.0)
    return gaps


def _progress(history: History) -> Iterator[Progress]:
    for fault in history.faults:
        acknowledged = sum(
            write.outcome is Outcome.ACKNOWLEDGED and fault.began_s <= write.ended_s <= fault.ended_s
            for write in history.writes
        )
        yield Progress(fault.name, fault.ended_s - fault.began_s, acknowledged)


def _partitions(history: History) -> list[int]:
    return sorted({write.partition for write in history.writes} | {*history.final})
