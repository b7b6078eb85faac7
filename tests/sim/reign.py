"""The promises, and who must keep them: from one leader that was chosen with a warning to the next.

    promised ── the operator elects uncleanly, by the last resort, or `recover` says what may be lost ──> it lands ──┐
       │ ^───────────────────────── a new reign: older leaders promise nothing any more, the new one ────────────────┘
       │                            begins with what it calls committed first
       ├── more disks are lost than was promised ──> suspended ──> a leader is chosen with a warning ──> a new reign
       └── the API server shows old data ──> still promised: elections stop, and whoever leads goes on
              ├── `recover` lands, and has no loss to tell ──> still promised
              └── somebody is elected, or commits, upon old data, before it is noticed ──> suspended ──> `recover`
                     └── in an epoch that was led before ──> nothing is promised any more in this run

So an election that may lose records loses those of before and no other; whoever is chosen without a word has it all.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, LeaderEpoch, Seat
from tests.sim.disk import NO_EPOCH_SEEN


class BrokenPromiseError(AssertionError):
    """A promise is broken. `rule` is its name."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class Warned(Enum):
    """The warning that people get with a write, or from `recover`."""

    MAY_LOSE = "records may be missing"
    NOBODY_INTACT = "nobody in sync has an intact log"
    RECOVERS = "the API server's data went back; nothing is lost"
    RECOVERS_SOME = "the API server's data went back; records may be missing"


Write = tuple[str, PartitionState]
"""The version that a write is based on, and its state."""
RECOVERIES = (Warned.RECOVERS, Warned.RECOVERS_SOME)


@dataclass
class Reign:
    number: int = 0
    since: LeaderEpoch = NO_EPOCH_SEEN
    """Leaders of older epochs promise nothing."""
    first: int = 0
    """The offset below which records were deleted before."""
    is_open: bool = False
    """True until something is reported as committed in it."""
    suspended: str = ""
    """Why nothing is promised just now."""
    may_lose_all: bool = False
    """More disks are lost in this run than was promised."""
    is_back: bool = False
    """True while the API server shows old data."""
    shown_epoch: LeaderEpoch = NO_EPOCH_SEEN
    """The leader epoch of old data, as it was when it came back."""
    is_strict: bool = False
    """True for old data on which no broker may lead that lacks anything."""
    on_old_data: set[PartitionState] = field(default_factory=set)
    """The states that were shown, or written, upon it."""
    forked: set[LeaderEpoch] = field(default_factory=set)
    """The epochs in which a broker led upon old data: they may have two histories."""
    warnings: dict[Write, Warned] = field(default_factory=dict)
    """The writes on their way, and the warnings with them."""
    warned: Warned | None = None
    """The warning with what landed last."""
    heard: dict[BrokerId, LeaderEpoch] = field(default_factory=dict)
    """The greatest epoch that this broker acted on, as long as it has its disk."""
    led: dict[LeaderEpoch, set[Seat]] = field(default_factory=lambda: defaultdict(set))
    """The brokers that ever led in it."""
    is_ruined: bool = False
    """True where an epoch was led twice, as no broker that knew of the first time lived: two logs may part within it,
    unseen."""

    # -- who leads ---------------------------------------------------------------------------------------------------

    def is_promised(self, state: PartitionState) -> bool:
        return not self.suspended and state.leader_epoch >= self.since and state not in self.on_old_data

    def leads(self, leader: Seat, state: PartitionState) -> bool:
        """Return whether the leader must have what is promised."""
        self.led[state.leader_epoch].add(leader)
        if self.is_back and not self.is_strict and state in self.on_old_data:
            if state.leader_epoch < self.heard.get(leader.broker, NO_EPOCH_SEEN):
                raise BrokenPromiseError("EpochsOnlyRise", f"{leader} knows later epochs, and leads in {state}")
            self._fork(state)
        return self.is_promised(state) or (self.is_strict and not self.suspended)

    def commits(self, state: PartitionState) -> bool:
        """Return whether what commits in this state is promised."""
        if self.is_back and not self.is_strict and state in self.on_old_data:
            self._fork(state)
        return self.is_promised(state) or (self.is_strict and not self.suspended)

    def _fork(self, state: PartitionState) -> None:
        self.forked.add(state.leader_epoch)
        self.suspended = self.suspended or "somebody led upon old data"
        self.is_ruined = self.is_ruined or any(len(self.led[epoch]) > 1 for epoch in self.forked)

    def hears(self, broker: BrokerId, epoch: LeaderEpoch) -> None:
        self.heard[broker] = max(epoch, self.heard.get(broker, epoch))

    def forgets(self, broker: BrokerId) -> None:
        """Note that its disk is another."""
        self.heard.pop(broker, None)

    def recovers(self, state: PartitionState, told: Collection[BrokerId]) -> None:
        """Note a write of a recovery that has asked those brokers."""
        known = max((self.heard.get(broker, NO_EPOCH_SEEN) for broker in told), default=NO_EPOCH_SEEN)
        if state.leader_epoch <= known:
            raise BrokenPromiseError("EpochsOnlyRise", f"brokers know epoch {known}, and recover writes {state}")

    # -- what may be lost --------------------------------------------------------------------------------------------

    def all_lost(self, state: PartitionState) -> None:
        """Note that no member in sync has what it vouched for."""
        if not self.may_lose_all:
            raise BrokenPromiseError("NoCommittedRecordLost", f"all who were in sync have lost it: {state}")
        self.suspended = "all who were in sync have lost it"

    def warns(self, written: PartitionSet, warned: Warned) -> None:
        """Note a write that is on its way."""
        self.warnings[written.metadata.resource_version, written.partitions[0]] = warned

    def lands(self, state: PartitionState, based_on: str) -> bool:
        """Note a write that lands, and return whether it is true."""
        warned = self.warned = self.warnings.get((based_on, state))
        if self.is_back and warned not in RECOVERIES:
            self.on_old_data.add(state)
            if state.leader_epoch > self.shown_epoch and not self.is_strict:
                # Whoever hears of it lets `recover` take the one who leads for deposed, which commits meanwhile.
                self.suspended = self.suspended or "somebody was elected upon old data"
            return False
        if warned is None or (warned is Warned.RECOVERS and not self.suspended):
            self.is_back = False
        else:
            self.anew(state)
        return True

    @property
    def is_last_resort(self) -> bool:
        """Return whether the last resort landed last."""
        return self.warned is Warned.NOBODY_INTACT

    @property
    def is_recovery(self) -> bool:
        """Return whether a recovery landed last: its epochs are above all that can be known, which need not be all that
        there were."""
        return self.warned in RECOVERIES

    def anew(self, state: PartitionState) -> None:
        """Begin anew, as a leader was chosen with a warning."""
        self.number += 1
        self.since, self.is_open, self.is_back = state.leader_epoch, True, False
        self.suspended = "an epoch has two histories" if self.is_ruined else ""
        self.on_old_data = {each for each in self.on_old_data if each.leader_epoch < self.since}

    def begins(self, first: int) -> None:
        self.is_open, self.first = False, first

    def goes_back(self, shown: PartitionState, *, is_strict: bool = False) -> None:
        self.is_back, self.is_strict, self.shown_epoch = True, is_strict, shown.leader_epoch
        self.on_old_data.add(shown)

    def is_right_again(self) -> None:
        self.is_back = self.is_strict = False
