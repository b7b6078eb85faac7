"""A log on a disk that may lose what was not synced, and the few files beside it. One record per batch.

The worst that storage may do: a sync that is asked for vouches for what was there when it began, and a cut that is
under way when the process dies has happened, or not, or in part.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.recovery import DiskFacts, RecoveryReport, ReplicaFacts, why_not_intact
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation, LeaderEpoch, Offset

NO_LIFE = Incarnation(0)
NO_EPOCH_SEEN = LeaderEpoch(0)


class Entry(NamedTuple):
    epoch: LeaderEpoch
    value: int
    """Unique in a run."""


GONE = Entry(LeaderEpoch(-1), -1)
"""The entry in place of what was deleted from the front."""


@dataclass(eq=False, slots=True)
class Log:
    """The page cache of a log; what lies below `on_disk` survives a power failure."""

    entries: list[Entry] = field(default_factory=list)
    """The entries by offset."""
    start: int = 0
    on_disk: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    cuts: int = 0
    """The number of truncations: a sync that began before one covers nothing above."""

    @property
    def log_start_offset(self) -> Offset:
        return Offset(self.start)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.entries))

    def append(self, entry: Entry) -> None:
        self.epochs.assign(entry.epoch, self.log_end_offset)
        self.entries.append(entry)

    def truncate(self, end: int) -> None:
        """Cut the log, and put that on disk."""
        del self.entries[end:]
        self.epochs.cut(Offset(end))
        self.on_disk, self.cuts = len(self.entries), self.cuts + 1

    def start_at(self, offset: int) -> None:
        """Start the log anew at `offset`, empty and without epochs, on disk."""
        self.entries[:] = [GONE] * offset
        self.start = self.on_disk = offset
        self.epochs.cut(Offset(0))
        self.cuts += 1

    def delete_below(self, offset: int) -> None:
        self.entries[self.start : offset] = [GONE] * (offset - self.start)
        self.start = offset
        self.on_disk = max(self.on_disk, offset)
        self.epochs.forget_below(Offset(offset))

    def synced(self, up_to: int, cuts: int) -> None:
        """End a sync that began at `up_to`, when so many cuts were made."""
        if cuts == self.cuts:
            self.on_disk = max(self.on_disk, min(up_to, len(self.entries)))

    def lose_from(self, end: int) -> None:
        """Lose all from `end` on, as by a power failure or a torn cut."""
        del self.entries[max(end, self.start) :]
        self.on_disk = min(self.on_disk, len(self.entries))

    def recover(self) -> None:
        """Recover at a start: what is there is synced before it is vouched for, and epochs are found again in it."""
        self.epochs.cut(self.log_end_offset)
        self.on_disk = len(self.entries)

    def has(self, others: list[Entry], first: int, end: int) -> bool:
        """Return whether it holds `others` from `first` to `end`."""
        return self.entries[first:end] == others[first:end]


@dataclass(eq=False, slots=True)
class Disk:
    """The disk of one broker; it outlives the processes."""

    log: Log = field(default_factory=Log)
    is_there: bool = True
    """True where the partition's directory was found, or made."""
    incarnation: Incarnation = NO_LIFE
    seen_epoch: LeaderEpoch = NO_EPOCH_SEEN
    """The greatest epoch that was ever applied: put on disk before."""
    void_before: Incarnation = NO_LIFE
    power_failed: bool = False
    """Since the last start: what was only in memory is gone."""
    stopped_cleanly: bool = False
    high_watermark: int = 0
    """The checkpoint: a lower bound."""
    is_full: bool = False

    def start(self, known: Incarnation, durability: Durability) -> DiskFacts:
        """Recovery. `known`: the greatest incarnation that the API server knows of.

        Where it may have lost something, older seats are void from now on, whatever later starts find.
        """
        facts = DiskFacts(self.incarnation, known, self.stopped_cleanly, same_boot=not self.power_failed)
        self.incarnation = Incarnation(max(self.incarnation, known) + 1)
        self.power_failed = self.stopped_cleanly = False
        self.log.recover()
        if why_not_intact(facts, ReplicaFacts(self._recovery, durability)):
            self.void_before = self.incarnation
        return facts

    @property
    def _recovery(self) -> RecoveryReport | None:
        if not self.is_there:
            return None
        return RecoveryReport(
            scanned_bytes=0,
            cut_bytes=0,
            cut_reason="",
            cut_below_recovery_point=False,
            cut_below_high_watermark=False,
            damaged_files=(),
            checkpoints_whole=True,
        )

    def damage(self, facts: DiskFacts, durability: Durability) -> str:
        """Why this start finds the log not intact."""
        damage = why_not_intact(facts, ReplicaFacts(self._recovery, durability))
        self.is_there = True
        return damage
