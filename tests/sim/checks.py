"""The checks after every event, and the warnings to people. Each event checks only what it could change.

The strongest is `NoCommittedRecordLost` as seen from above: whoever stands in the stored ISR and could renew its seat
has on disk whatever anybody called committed. It is looked at when something is committed, cut, lost, or stored, so
that a mistake is seen as it is made, not only where an election comes in time.

What may be lost is said by `reign`: since when, and up to when, anything is promised.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.replication.isr import Isr, floor
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, Offset, Seat
from tests.sim.disk import NO_LIFE, Disk, Entry, Log
from tests.sim.reign import BrokenPromiseError, Reign


@dataclass
class Checks:
    disks: Mapping[BrokerId, Disk]
    durability: Durability
    min_insync_replicas: int
    reign: Reign = field(default_factory=Reign)
    committed: list[Entry] = field(default_factory=list)
    """The entries by offset: everything that was below any high watermark in this reign."""
    epochs: list[LeaderEpoch] = field(default_factory=list)
    """The epochs in which each of them was committed."""
    committers: dict[LeaderEpoch, Seat] = field(default_factory=dict)
    lost_until: dict[BrokerId, Incarnation] = field(default_factory=dict)
    """Lives of a broker up to this one vouched for what its disk has lost: their seats are worth nothing."""
    unreplaced: dict[BrokerId, Incarnation] = field(default_factory=dict)
    """Brokers whose disk was lost, or failed, in that life, and that have not been in sync in a later one."""
    deleted_below: int = 0
    """The offset below which a leader was asked to delete, all of it committed."""
    acknowledged: int = 0
    stored: PartitionState | None = None
    """The newest true state: while the API server shows old data, its seats prove nothing."""

    # -- commits -----------------------------------------------------------------------------------------------------

    def raised(self, leader: Seat, epoch: LeaderEpoch, log: Log, high_watermark: Offset, isr: Isr) -> None:
        """Check a leader that reports all below as committed."""
        if high_watermark > len(log.entries):
            raise BrokenPromiseError("NoCommittedRecordLost", f"{leader} commits more than it has")
        if len(isr.certain) < floor(isr.state, self.min_insync_replicas):
            raise BrokenPromiseError("MinIsr", f"{leader} commits to {high_watermark} with {isr}")
        if not self.reign.commits(isr.state):
            return
        other = self.committers.setdefault(epoch, leader)
        if other != leader:
            raise BrokenPromiseError("AtMostOneLeaderCommitsPerEpoch", f"{other} and {leader} in epoch {epoch}")
        if self.reign.is_open:
            self._begins(log)
        known = len(self.committed)
        self._has(leader, log, min(high_watermark, known))
        if high_watermark > known:
            if log.start > known:
                raise BrokenPromiseError("NoCommittedRecordLost", f"{leader} has deleted what was not committed")
            self.committed += log.entries[known:high_watermark]
            self.epochs += [epoch] * (high_watermark - known)
            self.kept()

    def _begins(self, log: Log) -> None:
        """Note the first log that is reported as committed in this reign: the beginning of all that is promised in
        it."""
        self.reign.begins(log.start)
        self.deleted_below = max(self.deleted_below, log.start)
        self.committed, self.epochs = log.entries[: log.start], [LeaderEpoch(0)] * log.start

    def elected(self, leader: Seat, state: PartitionState, log: Log) -> None:
        """Check an elected leader. It may learn of the election late: it need not have what was committed in later
        epochs."""
        if self.reign.leads(leader, state):
            self._has(leader, log, bisect_right(self.epochs, state.leader_epoch))

    def acknowledge(self, offset: Offset, entry: Entry, state: PartitionState) -> None:
        self.acknowledged += 1
        known = self.committed[offset] if offset < len(self.committed) else None
        if known != entry and self.reign.is_promised(state):
            raise BrokenPromiseError("NoCommittedRecordLost", f"{entry} is acknowledged at {offset}, there is {known}")

    def read(self, leader: Seat, state: PartitionState, log: Log, high_watermark: Offset) -> None:
        """Check what any consumer may be shown."""
        if not self.reign.is_promised(state) or self.reign.is_open:
            return
        if high_watermark > len(self.committed):
            raise BrokenPromiseError("ConsistentRead", f"{leader} shows what nobody committed")
        self._has(leader, log, high_watermark)

    # -- logs --------------------------------------------------------------------------------------------------------

    def kept(self) -> None:
        """Does everybody who may be elected next have what is committed, on disk where that is what it vouched for?"""
        if self.stored is None or self.reign.suspended or self.reign.is_open:
            return
        length = len(self.committed)
        sound = [seat for seat in self.stored.isr if not self.is_lost(seat)]
        if length and not sound:
            self.reign.all_lost(self.stored)
        for seat in sound:
            log = self.disks[seat.broker].log
            there = log.on_disk if self.durability is Durability.FSYNC else len(log.entries)
            if there < length or log.start > self.deleted_below or not self._holds(log, length):
                self._has(seat, log, length)
                raise BrokenPromiseError("NoCommittedRecordLost", f"{seat}, in sync, has but {there} on disk")

    def lost(self, seat: Seat) -> None:
        """Note that a part of what this seat vouched for is lost."""
        self.lost_until[seat.broker] = seat.incarnation
        self.unreplaced[seat.broker] = seat.incarnation
        self.kept()

    def remembered(self, log: Log, high_watermark: Offset) -> None:
        """A high watermark is written beside the log."""
        if self.durability is Durability.FSYNC and high_watermark > log.on_disk:
            raise BrokenPromiseError("RememberedIsThere", f"{high_watermark} is remembered, on disk is {log.on_disk}")

    def gave_up(self, seat: Seat) -> None:
        """Note that an older life of its broker gave up."""
        self.unreplaced.setdefault(seat.broker, Incarnation(seat.incarnation - 1))

    def is_lost(self, seat: Seat) -> bool:
        return seat.incarnation <= self.lost_until.get(seat.broker, NO_LIFE)

    def is_spare(self, broker: BrokerId) -> bool:
        """Return whether another member of the ISR has all that it has; this is not known while people recover."""
        assert self.stored is not None, "it is there from the beginning"
        sound = (seat.broker for seat in self.stored.isr if not self.is_lost(seat))
        return not self.reign.is_back and any(other != broker for other in sound)

    def appended(self, log: Log) -> None:
        """LogMatching, of the last entry: where another log has one of the same epoch there, all before is the same."""
        last = len(log.entries) - 1
        entry = log.entries[last]
        if entry.epoch in self.reign.forked:
            return
        for disk in self.disks.values():
            other = disk.log.entries
            if disk.log is log or last >= len(other) or other[last].epoch != entry.epoch:
                continue
            start = max(log.start, disk.log.start)
            if other[start : last + 1] != log.entries[start:]:
                raise BrokenPromiseError("LogMatching", f"{log.entries} and {other}")

    def _holds(self, log: Log, length: int) -> bool:
        return log.has(self.committed, max(log.start, self.reign.first), length)

    def _has(self, who: Seat, log: Log, length: int) -> None:
        if self.reign.suspended or self.reign.is_open or self._holds(log, length):
            return
        for offset in range(max(log.start, self.reign.first), length):
            there = log.entries[offset] if offset < len(log.entries) else None
            if there != self.committed[offset]:
                what = f"{who} has {there} at {offset}, committed is {self.committed[offset]}"
                raise BrokenPromiseError("NoCommittedRecordLost", what)

    def is_at_rest(self, leader: Log, high_watermark: Offset, log: Log) -> bool:
        """Return whether `log` holds what is committed, and nothing else: all that is promised, or all that the leader
        has."""
        is_promised = not self.reign.suspended and not self.reign.is_open
        all_of_it = self.committed if is_promised else leader.entries
        if self.reign.is_ruined:
            return len(log.entries) == len(leader.entries) == high_watermark
        first = max(leader.start, log.start, self.reign.first)
        return len(log.entries) == len(all_of_it) == high_watermark and log.has(all_of_it, first, high_watermark)

    # -- the API server ----------------------------------------------------------------------------------------------

    def found_well(self, state: PartitionState) -> None:
        """`recover` says so, of what the API server shows."""
        if self.reign.suspended:
            self.reign.anew(state)
        self.reign.is_back, self.stored = False, state
        self.kept()

    def landed(self, state: PartitionState, based_on: str = "") -> None:
        if not self.reign.lands(state, based_on):
            return
        last, self.stored = self.stored, state
        intact = [seat for seat in last.isr if not self.is_lost(seat)] if last is not None else []
        if intact and self.reign.is_last_resort:
            raise BrokenPromiseError("NoCommittedRecordLost", f"{intact} are in sync and intact, but passed: {state}")
        rises = last is None or (
            state.partition_epoch >= last.partition_epoch and state.leader_epoch >= last.leader_epoch
        )
        if not rises and not self.reign.is_recovery:
            raise BrokenPromiseError("EpochsOnlyRise", f"{last} and then {state}")
        if not state.isr:
            raise BrokenPromiseError("NeverEmpty", f"{state} has nobody in sync")
        if self.unreplaced:
            again = {
                seat.broker
                for seat in state.isr
                if seat.incarnation > self.unreplaced.get(seat.broker, seat.incarnation)
            }
            is_whole = len(state.isr) >= len(state.replicas)
            for broker in [b for b in self.unreplaced if b in again or (is_whole and b not in state.replicas)]:
                del self.unreplaced[broker]
        self.kept()
