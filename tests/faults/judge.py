"""The oracle of every run with faults: what clients were promised and shown, against what is there in the end. Pure.

What must hold, by partition:

    an acknowledged write is there exactly once, at the offset that was acknowledged
    a refused write (the error says that nothing was written) is not there
    an unknown write is there once or not at all; and once a reader has seen it, it stays
    what is there was written, and to this partition
    one writer's writes stand in the order in which it sent them: acknowledged ones, and all of an idempotent writer
    a reader gets every offset once, from the first to the last, rising, below the high watermark, with the bytes and
      the epoch that stay there
    ends and high watermarks never go back for one reader, and what lies before them stays
    epochs never fall from one record to the next
    replicas agree byte by byte below the high watermark
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.faults.figures import Progress, progress, silence_s, unavailability_s
from tests.faults.history import History, Outcome, Poll, Row, Write
from tests.support.history import Entry, check


class Wrong(StrEnum):
    """Beyond `tests.support.history.Kind`."""

    REFUSED_AND_THERE = "refused, and there all the same"
    ORDER = "not in the order in which its writer sent it"
    DIRTY_READ = "read at or above the high watermark"
    SKIPPED = "a reader was not given what lies before it"
    UNREAD = "a reader came to the end without the last record"
    WENT_BACK = "a reader was told of a smaller end than before"
    END_VANISHED = "a reader was told of an end that the log does not reach"
    READ_TWICE = "a reader was given an offset that it was given before"
    OTHER_EPOCH = "read with another leader epoch than it has in the end"
    EPOCH_FELL = "a leader epoch below that of the record before"
    REPLICAS_DIFFER = "replicas do not hold the same bytes below the high watermark"
    EMPTY_REPLICA = "a replica in sync holds nothing of what can be read"
    NOBODY_WROTE = "nobody wrote this"
    ELSEWHERE = "written to another partition"


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    partition: int
    what: str

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    kinds: Mapping[str, int]
    """How many findings there are of each kind."""
    acknowledged: int
    unknown: int
    refused: int
    lost: int
    duplicated: int
    read: int
    unavailability_s: Mapping[int, float]
    """By partition: without an acknowledgement."""
    silence_s: Mapping[int, float]
    """By partition: in which no reader was answered."""
    progress: tuple[Progress, ...]

    @property
    def longest_unavailability_s(self) -> float:
        """Of the partition that had the worst."""
        return max(self.unavailability_s.values(), default=0.0)


def judge(history: History) -> Report:
    findings = [*_of_writes(history), *_of_orders(history), *_of_polls(history), *_of_ends(history)]
    findings += [*_of_replicas(history), *_strangers(history)]
    counted = Counter(write.outcome for write in history.writes)
    return Report(
        tuple(findings),
        kinds=Counter(str(finding.kind) for finding in findings),
        acknowledged=counted[Outcome.ACKNOWLEDGED],
        unknown=counted[Outcome.UNKNOWN],
        refused=counted[Outcome.REFUSED],
        lost=sum(finding.kind.startswith("acknowledged, and") for finding in findings),
        duplicated=sum(finding.kind.startswith("written once") for finding in findings),
        read=sum(len(poll.rows) for poll in history.polls),
        unavailability_s=unavailability_s(history),
        silence_s=silence_s(history),
        progress=tuple(progress(history)),
    )


# -- writes ----------------------------------------------------------------------------------------------------------


def _of_writes(history: History) -> Iterator[Finding]:
    for partition in history.partitions:
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
    targets: dict[bytes, set[int]] = defaultdict(set)
    for write in history.writes:
        targets[write.value].add(write.partition)
    for partition, rows in history.final.items():
        for row in rows:
            if row.value not in targets:
                yield Finding(Wrong.NOBODY_WROTE, partition, f"offset {row.offset}, {row.value!r}")
            elif partition not in targets[row.value]:
                what = f"offset {row.offset}, {row.value!r} to {sorted(targets[row.value])}"
                yield Finding(Wrong.ELSEWHERE, partition, what)


# -- reads -----------------------------------------------------------------------------------------------------------


def _of_polls(history: History) -> Iterator[Finding]:
    for partition, final in history.final.items():
        yield from _of_epochs(partition, final)
    epochs = {(partition, row.offset): row.leader_epoch for partition, rows in history.final.items() for row in rows}
    for (reader, partition), polls in history.polls_by_reader.items():
        rows = [row for poll in polls for row in poll.rows]
        yield from _of_offsets(reader, partition, rows, history.starts.get(partition, 0))
        yield from _of_epochs(partition, rows)
        for poll in polls:
            for row in poll.rows:
                yield from _of_row(poll, row, epochs.get((partition, row.offset), -1))


def _of_row(poll: Poll, row: Row, final_epoch: int) -> Iterator[Finding]:
    if 0 <= poll.high_watermark <= row.offset:
        what = f"{poll.reader} read offset {row.offset}, high watermark {poll.high_watermark}"
        yield Finding(Wrong.DIRTY_READ, poll.partition, what)
    if -1 not in (row.leader_epoch, final_epoch) and row.leader_epoch != final_epoch:
        what = f"{poll.reader} read offset {row.offset} with epoch {row.leader_epoch}, it has {final_epoch}"
        yield Finding(Wrong.OTHER_EPOCH, poll.partition, what)


def _of_offsets(reader: str, partition: int, rows: Sequence[Row], start: int) -> Iterator[Finding]:
    """Every reader begins at the first record that there is."""
    expected = 0
    for row in rows:
        if row.offset < expected:
            yield Finding(Wrong.READ_TWICE, partition, f"{reader} read offset {row.offset} after {expected - 1}")
        elif row.offset > max(expected, start):
            yield Finding(Wrong.SKIPPED, partition, f"{reader} went from {expected} to {row.offset}")
        expected = row.offset + 1


def _of_epochs(partition: int, rows: Sequence[Row]) -> Iterator[Finding]:
    for before, after in pairwise([row for row in rows if row.leader_epoch >= 0]):
        if after.leader_epoch < before.leader_epoch:
            what = f"offset {after.offset} has epoch {after.leader_epoch} after {before.leader_epoch}"
            yield Finding(Wrong.EPOCH_FELL, partition, what)


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
        highest, reached = max(end for _, end in ends), _end(history, partition)
        if highest > reached:
            yield Finding(Wrong.END_VANISHED, partition, f"{reader} was told of {highest}, the log ends at {reached}")
    yield from _of_last_records(history)


def _of_last_records(history: History) -> Iterator[Finding]:
    read = {
        key: max((row.offset + 1 for poll in polls for row in poll.rows), default=0)
        for key, polls in history.polls_by_reader.items()
    }
    for reader, partitions in history.ends_reached.items():
        for partition in partitions:
            came, end = read.get((reader, partition), 0), _end(history, partition)
            if history.final.get(partition) and came < end:
                yield Finding(Wrong.UNREAD, partition, f"{reader} read as far as {came} of {end}")


def _end(history: History, partition: int) -> int:
    """Of what can be read in the end; of an empty log, where it begins."""
    return max((row.offset + 1 for row in history.final.get(partition, ())), default=history.starts.get(partition, 0))


# -- replicas --------------------------------------------------------------------------------------------------------


def _of_replicas(history: History) -> Iterator[Finding]:
    for partition, logs in history.replicas.items():
        if history.final.get(partition):
            for name in sorted(name for name, batches in logs.items() if not batches):
                yield Finding(Wrong.EMPTY_REPLICA, partition, name)
        first = max((min(batches, default=0) for batches in logs.values()), default=0)
        for offset in sorted({offset for batches in logs.values() for offset in batches if offset >= first}):
            held = {name: batches.get(offset) for name, batches in logs.items()}
            if len({*held.values()}) > 1:
                sizes = ", ".join(f"{name} {'nothing' if b is None else f'{len(b)} bytes'}" for name, b in held.items())
                yield Finding(Wrong.REPLICAS_DIFFER, partition, f"the batch at {offset}: {sizes}")
                break
