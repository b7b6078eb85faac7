"""What must hold after every event, and what people were told."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import LeaderEpoch, Offset, Seat
from tests.sim.disk import Entry, Log


class BrokenPromiseError(AssertionError):
    """A promise is broken."""


def must(holds: object, name: str, what: str) -> None:
    if not holds:
        raise BrokenPromiseError(f"{name}: {what}")


@dataclass
class Checks:
    committed: list[Entry] = field(default_factory=list)
    """By offset: everything that was below any high watermark."""
    epochs: list[LeaderEpoch] = field(default_factory=list)
    """In which each of them was committed."""
    committers: dict[LeaderEpoch, Seat] = field(default_factory=dict)
    acknowledged: int = 0
    last: PartitionState | None = None

    def raised(self, leader: Seat, epoch: LeaderEpoch, log: Log, high_watermark: Offset) -> None:
        """A leader says: all below is committed."""
        must(high_watermark <= log.log_end_offset, "NoCommittedRecordLost", f"{leader} commits more than it has")
        other = self.committers.setdefault(epoch, leader)
        must(other == leader, "AtMostOneLeaderCommitsPerEpoch", f"{other} and {leader} in epoch {epoch}")
        self.holds_committed(leader, log, min(high_watermark, Offset(len(self.committed))))
        new = log.entries[len(self.committed) : high_watermark]
        self.committed += new
        self.epochs += [epoch] * len(new)

    def elected(self, leader: Seat, epoch: LeaderEpoch, log: Log) -> None:
        """It may learn of that late: what was committed in later epochs it need not have."""
        self.holds_committed(leader, log, Offset(bisect_right(self.epochs, epoch)))

    def holds_committed(self, who: Seat, log: Log, end: Offset) -> None:
        for offset in range(end):
            there = log.entries[offset] if offset < len(log.entries) else None
            expected = self.committed[offset]
            must(there == expected, "NoCommittedRecordLost", f"{who} has {there} at {offset}, committed is {expected}")

    def acknowledge(self, offset: Offset, entry: Entry) -> None:
        self.acknowledged += 1
        known = self.committed[offset] if offset < len(self.committed) else None
        must(known == entry, "NoCommittedRecordLost", f"{entry} at {offset} is acknowledged, committed is {known}")

    def read(self, leader: Seat, log: Log, high_watermark: Offset) -> None:
        """What any consumer may be shown."""
        must(high_watermark <= len(self.committed), "ConsistentRead", f"{leader} shows what nobody committed")
        self.holds_committed(leader, log, high_watermark)

    def logs_match(self, logs: Sequence[Log]) -> None:
        for number, one in enumerate(logs):
            for other in logs[number + 1 :]:
                length = min(len(one.entries), len(other.entries))
                same = [one.entries[i].epoch == other.entries[i].epoch for i in range(length)]
                agree = max((i + 1 for i in range(length) if same[i]), default=0)
                must(one.entries[:agree] == other.entries[:agree], "LogMatching", f"{one.entries} and {other.entries}")

    def stored(self, state: PartitionState) -> None:
        last, self.last = self.last, state
        if last is not None:
            rises = state.partition_epoch >= last.partition_epoch and state.leader_epoch >= last.leader_epoch
            must(rises, "EpochsOnlyRise", f"{last} and then {state}")
        must(state.isr, "NeverEmpty", f"{state} has nobody in sync")
