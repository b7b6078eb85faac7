"""A log on a disk that may lose what was not synced. One record per batch: its offset is its index."""

from dataclasses import dataclass, field
from random import Random

from headrace.core.log.epochs import LeaderEpochs
from headrace.core.types import Incarnation, LeaderEpoch, Offset

NO_LIFE = Incarnation(0)


@dataclass(frozen=True, slots=True)
class Entry:
    epoch: LeaderEpoch
    value: int
    """Unique in a run."""


@dataclass
class Log:
    """What is in the page cache; `on_disk` of it survives a power failure."""

    entries: list[Entry] = field(default_factory=list)
    on_disk: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    cuts: int = 0
    """So often it was truncated: a sync that began before covers nothing above."""

    @property
    def log_start_offset(self) -> Offset:
        return Offset(0)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.entries))

    def append(self, entry: Entry) -> None:
        self.epochs.assign(entry.epoch, self.log_end_offset)
        self.entries.append(entry)

    def truncate(self, end: Offset) -> None:
        """And put that on disk."""
        del self.entries[end:]
        self.epochs.cut(end)
        self.on_disk, self.cuts = len(self.entries), self.cuts + 1

    def lose_unsynced(self, random: Random) -> None:
        """The power fails: of what was not synced any part of the beginning may have reached the disk."""
        del self.entries[random.randint(self.on_disk, len(self.entries)) :]

    def recover(self) -> None:
        """At a start: what is there is synced before it is vouched for, and epochs are found again in it."""
        self.epochs = LeaderEpochs()
        for offset, entry in enumerate(self.entries):
            self.epochs.assign(entry.epoch, Offset(offset))
        self.on_disk = len(self.entries)


@dataclass
class Disk:
    """Of one broker; outlives its processes."""

    log: Log = field(default_factory=Log)
    incarnation: Incarnation = NO_LIFE
    power_failed: bool = False
    """Since the last start: what was only in memory is gone."""
