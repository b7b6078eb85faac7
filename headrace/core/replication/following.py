"""One partition on one broker that another broker leads: agree with its log, then append what it sends. No I/O.

    resting ── a state names another leader ──> apart ── connected ──> reconciling ── agreed ──> fetching
       ^── it names none, or this seat, or          ^── disconnected, or a later epoch ──┘
           this broker is no replica any more

Nothing is fetched, and no end is reported, before both logs agree (`truncation`), on every new stream and in every
epoch: a report is a vote, and the sign of life that keeps this replica in the ISR: whatever is received is answered by
one. What another stream or epoch asked for is void: answers carry their epoch and are dropped
where that is over; a cut that has begun is finished first, whoever leads by then.

Invariants: the epoch that is followed never falls, nor does it change its leader (where the API server says so, nobody
is followed); the high watermark never passes the log end, and falls only with a log that is cut below it; what is
reported is on disk as far as `durable_end` says. The group commit is that of the log, shared with `leadership`, as one
of the two acts at a time. Owned by the partition's shell, which truncates, appends and syncs; the simulator runs the
same code.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, assert_never

from headrace.core.log.epochs import NO_EPOCH, EpochEnd, LeaderEpochs
from headrace.core.log.group_commit import GiveUp, GroupCommit, Sync
from headrace.core.replication.followers import Ends
from headrace.core.replication.truncation import Agreed, AskAgain, reconcile
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import LeaderEpoch, Offset, Seat


class LogView(Protocol):
    """The log as it is now."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def epochs(self) -> LeaderEpochs: ...


@dataclass(frozen=True, slots=True)
class Named:
    """A newer state of the partition was applied."""

    state: PartitionState


@dataclass(frozen=True, slots=True)
class Connected:
    """A new stream to the leader is open, in this epoch."""

    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream is over."""


@dataclass(frozen=True, slots=True)
class EpochAnswered:
    """The leader, in `leader_epoch`, says where the epoch that was asked for ends."""

    leader_epoch: LeaderEpoch
    answer: EpochEnd


@dataclass(frozen=True, slots=True)
class Truncated:
    """The cut is made, and on disk."""


@dataclass(frozen=True, slots=True)
class Received:
    """What the leader sent in this epoch. Where it is accepted, so much was appended: 0 bytes for a heartbeat."""

    leader_epoch: LeaderEpoch
    append_bytes: int
    high_watermark: Offset
    """The leader's, which may be above this log."""


@dataclass(frozen=True, slots=True)
class FollowerSynced:
    durable_end: Offset


Event = Named | Connected | Disconnected | EpochAnswered | Truncated | Received | FollowerSynced


@dataclass(frozen=True, slots=True)
class Follow:
    """Open a stream to `leader`, again and again until told otherwise."""

    leader: Seat
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Unfollow:
    reason: str


@dataclass(frozen=True, slots=True)
class AskEpochEnd:
    """Of the leader, in `leader_epoch`: where does `epoch` end in its log?"""

    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log, put that on disk, then say `Truncated`; nothing is appended before."""

    end: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Have the leader send everything from `offset` on, in `leader_epoch`."""

    leader_epoch: LeaderEpoch
    offset: Offset


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the leader, in `leader_epoch`: this replica holds so much of its log."""

    leader_epoch: LeaderEpoch
    ends: Ends


Effect = Follow | Unfollow | AskEpochEnd | Truncate | Fetch | Report | Sync | GiveUp


class Phase(Enum):
    RESTING = "resting"
    APART = "apart"
    RECONCILING = "reconciling"
    FETCHING = "fetching"


class Following:
    def __init__(self, me: Seat, log: LogView, commit: GroupCommit) -> None:
        self.me = me
        self.phase = Phase.RESTING
        self.leader: Seat | None = None
        """Whom to follow; None while resting."""
        self.leader_epoch = log.epochs.latest
        """The last that was followed, or that the log has seen."""
        self.high_watermark = Offset(0)
        """As far as this log has what the leader says is committed."""
        self._log = log
        self.commit = commit
        self._led_by: Seat | None = None
        """Whoever led in `leader_epoch`, as far as is known."""
        self.is_cutting = False
        """A cut has begun: whoever leads, nothing of this log is sent or appended to before it is done."""
        self._cut: AskAgain | Agreed | None = None
        """What it was for."""

    def accepts(self, leader_epoch: LeaderEpoch) -> bool:
        """Whether batches that were sent in this epoch may be appended now."""
        return self.phase is Phase.FETCHING and leader_epoch == self.leader_epoch

    def step(self, event: Event) -> list[Effect]:
        """What to do about `event`, in this order."""
        match event:
            case Named(state):
                return self._named(state)
            case Connected(leader_epoch):
                return self._connected(leader_epoch)
            case Disconnected():
                self._part()
                return []
            case EpochAnswered(leader_epoch, answer):
                return self._answered(leader_epoch, answer)
            case Truncated():
                return self._truncated()
            case Received():
                return self._received(event)
            case FollowerSynced(durable_end):
                return [*self.commit.synced(durable_end), *self._reported()]
            case _:
                assert_never(event)

    def _named(self, state: PartitionState) -> list[Effect]:
        leader, epoch = state.leader, state.leader_epoch
        reason = f"partition epoch {state.partition_epoch}: the leader is {leader or 'nobody'}"
        if leader is None or self._regresses(leader, epoch):
            return self._rest(reason)
        before, self.leader_epoch, self._led_by = (self.leader, self.leader_epoch), epoch, leader
        if leader == self.me or self.me.broker not in state.replicas:
            return self._rest(reason)
        if before == (leader, epoch):
            return []
        self.leader, self.phase = leader, Phase.APART
        return [Follow(leader, epoch)]

    def _regresses(self, leader: Seat, epoch: LeaderEpoch) -> bool:
        """The API server's data went back: an epoch below one that was seen, or the same one under another leader."""
        another = epoch == self.leader_epoch and self._led_by is not None and leader != self._led_by
        return epoch < self.leader_epoch or another

    def _rest(self, reason: str) -> list[Effect]:
        was, self.leader, self.phase = self.phase, None, Phase.RESTING
        return [] if was is Phase.RESTING else [Unfollow(reason)]

    def _part(self) -> None:
        if self.phase is not Phase.RESTING:
            self.phase = Phase.APART

    def _connected(self, leader_epoch: LeaderEpoch) -> list[Effect]:
        if self.phase is Phase.RESTING or leader_epoch != self.leader_epoch:
            return []
        self.phase, self._cut = Phase.RECONCILING, None
        return [] if self.is_cutting else self._ask()

    def _ask(self) -> list[Effect]:
        epoch = self._log.epochs.latest
        return self._fetch() if epoch == NO_EPOCH else [AskEpochEnd(self.leader_epoch, epoch)]

    def _answered(self, leader_epoch: LeaderEpoch, answer: EpochEnd) -> list[Effect]:
        if self.phase is not Phase.RECONCILING or self.is_cutting or leader_epoch != self.leader_epoch:
            return []
        log = self._log
        verdict = reconcile(log.epochs, log.log_start_offset, log.log_end_offset, answer)
        if verdict.end >= log.log_end_offset:
            return self._agreed_or_ask(verdict)
        self._cut, self.is_cutting = verdict, True
        self.commit.truncating(verdict.end)
        return [Truncate(verdict.end, verdict.reason)]

    def _truncated(self) -> list[Effect]:
        self.is_cutting = False
        self.commit.truncated(self._log.log_end_offset)
        self.high_watermark = min(self.high_watermark, self._log.log_end_offset)
        verdict, self._cut = self._cut, None
        if self.phase is not Phase.RECONCILING:
            return []
        return self._ask() if verdict is None else self._agreed_or_ask(verdict)

    def _agreed_or_ask(self, verdict: AskAgain | Agreed) -> list[Effect]:
        return self._fetch() if isinstance(verdict, Agreed) else self._ask()

    def _fetch(self) -> list[Effect]:
        self.phase = Phase.FETCHING
        return [Fetch(self.leader_epoch, self._log.log_end_offset), *self._reported()]

    def _received(self, event: Received) -> list[Effect]:
        if not self.accepts(event.leader_epoch):
            return []
        end = self._log.log_end_offset
        syncs = self.commit.appended(end, event.append_bytes) if event.append_bytes else []
        self.high_watermark = max(self.high_watermark, min(event.high_watermark, end))
        return [*syncs, *self._reported()]

    def _reported(self) -> list[Effect]:
        if self.phase is not Phase.FETCHING:
            return []
        return [Report(self.leader_epoch, Ends(self.commit.log_end, self.commit.durable_end))]
