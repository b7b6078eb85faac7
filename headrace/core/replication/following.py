"""The follower's side of one partition: agree with the leader's log, then append what the leader sends. No I/O.

    resting ── a state names another leader ──> apart ── connected ──> reconciling ── agreed ──> fetching
       ^── it names none, or this seat, or          ^── disconnected, a later epoch,  ──┘           │
           this broker is no replica any more       └── or the offered batches do not follow on ────┘
    reconciling: ask(last epoch) ──answer──> AskAgain: truncate, ask for the epoch before ──> ... ──> Agreed
                                    └──────> BeginAnew: nothing of this log is the leader's

Reconciliation by epoch (KIP-101, KIP-279): one leader wrote each epoch, so two logs that both hold an epoch are one
up to the end of the shorter. The leader answers with its greatest epoch that is not above the one asked for. The high
watermark has no say: a follower's may be too low, and truncating to it loses committed records. A leader that has
nothing as old as the follower's last epoch vouches for none of it, but the follower's log never ends below the start
of the leader's first epoch: those offsets were committed, and must not be given away again. Where the two logs part
below the follower's start, a leader out of sync was elected: the follower drops all and begins anew (Kafka's
`truncateFullyAndStartAt`).

Nothing is fetched and nothing is reported before both logs agree, on every new stream and in every epoch: a report is
a vote and the sign of life that keeps this replica in the ISR. Answers carry their epoch and are dropped when it is
over; a cut that has begun is finished first. The offered batches may not follow on without a fault (the leader's log
starts later, or its compaction has joined batches across this end): the logs are reconciled again. A member of the
ISR never cuts what it knows as committed: it raises DivergedLogError until it is no member any more.

Invariants: the followed epoch never falls and never changes its leader; the high watermark never passes the log end,
and falls only with a log that is cut below it; a report is on disk as far as `durable_end` says; nothing that both
logs hold is cut. The group commit is shared with `leadership`: one of the two acts at a time. Owned by `replica`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, assert_never

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, LeaderEpochs
from headrace.core.log.group_commit import GroupCommit
from headrace.core.replication.events import (
    AskEpochEnd,
    Closed,
    Connected,
    CutRefused,
    DeleteBelow,
    Disconnected,
    Effect,
    EpochAnswered,
    Fetch,
    Follow,
    FollowerEvent,
    Offered,
    Received,
    Report,
    StartAnew,
    StateApplied,
    Synced,
    Truncate,
    Truncated,
    Unfollow,
)
from headrace.core.replication.isr import Ends
from headrace.core.replication.seats import SeenEpochs
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import LeaderEpoch, Offset, Seat

FIRST: Final = Offset(0)
"""The offset where a log begins that never held anything."""


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Truncate to `end`, then ask for the end of `epoch`, which is the last that is left."""

    end: Offset
    epoch: LeaderEpoch
    reason: str


@dataclass(frozen=True, slots=True)
class Agreed:
    """Truncate to `end`: the leader has all that is left, too."""

    end: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """Drop all of the log, and what it knows of epochs.

    The log goes on at `offset`. That is not below its end, where the leader has deleted all that it holds; or it is
    `FIRST`, where the log goes on as that of a new replica.
    """

    offset: Offset
    reason: str


def question(epochs: LeaderEpochs, log_end: Offset, leader_epoch: LeaderEpoch) -> LeaderEpoch | None:
    """Return the epoch whose end the leader is asked for; None where nothing could differ."""
    if epochs.latest != NO_EPOCH:
        return epochs.latest
    return leader_epoch if log_end > FIRST else None


def reconcile(
    epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd
) -> AskAgain | Agreed | BeginAnew:
    """Return what the leader's answer to `question` means for this log.

    `end` may lie within a batch that compaction has joined: `PartitionLog.truncate` says where the log then ends.
    Raises DivergedLogError for an answer that no leader gives.
    """
    if epochs.latest == NO_EPOCH:
        return _unplaced(log_start, answer.end_offset)
    if answer.epoch > epochs.latest:
        raise DivergedLogError(
            f"the leader answers with the end of epoch {answer.epoch}, above {epochs.latest} that it was asked for"
        )
    if answer.epoch == NO_EPOCH:
        return _unknown(epochs, log_start, log_end, answer.end_offset)
    mine = epochs.end_of(answer.epoch, log_end)
    end = min(mine.end_offset, answer.end_offset)
    if end < log_start:
        parted = f"this log starts at {log_start}, but it and the leader's part at {end}"
        return BeginAnew(FIRST, f"{parted}: a leader out of sync was elected")
    if mine.epoch == answer.epoch:
        return Agreed(end, f"epoch {mine.epoch} ends at {mine.end_offset} here, at {answer.end_offset} for the leader")
    left = LeaderEpochs(epochs.starts)
    left.cut(end)
    return AskAgain(end, left.latest, f"the leader has no epoch from {answer.epoch + 1} to {epochs.latest}")


def _unknown(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, first: Offset) -> AskAgain | Agreed | BeginAnew:
    """Reconcile a log whose epochs all lie below the leader's first one, which begins at `first`."""
    reason = f"the leader has nothing of epoch {epochs.latest} or before"
    if first < log_start:
        return BeginAnew(FIRST, f"{reason}, and its first begins at {first}, below {log_start}, where this log starts")
    if first == log_start:
        return Agreed(log_start, reason)
    if first >= log_end:
        return BeginAnew(first, reason)
    return AskAgain(first, epochs.latest, f"{reason}, and its first begins at {first}")


def _unplaced(log_start: Offset, leader_end: Offset) -> Agreed | BeginAnew:
    """Reconcile an empty log that knows no epoch."""
    if leader_end < log_start:
        return BeginAnew(FIRST, f"the leader's log ends at {leader_end}, below {log_start}, where this log starts")
    return Agreed(log_start, f"this log is empty, and the leader's ends at {leader_end}")


class LogView(Protocol):
    """The log as it is now."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def epochs(self) -> LeaderEpochs: ...


class Phase(Enum):
    RESTING = "resting"
    APART = "apart"
    RECONCILING = "reconciling"
    FETCHING = "fetching"


class Following:
    def __init__(self, me: Seat, log: LogView, commit: GroupCommit, last_epoch: LeaderEpoch = NO_EPOCH) -> None:
        self.me = me
        self.phase = Phase.RESTING
        self.leader: Seat | None = None
        """The leader to follow; None while resting."""
        self.leader_epoch = LeaderEpoch(0)
        """The epoch in which it leads."""
        self.high_watermark = Offset(0)
        """The part of this log that the leader says is committed."""
        self._log = log
        self.commit = commit
        self._seen = SeenEpochs(max(last_epoch, log.epochs.latest))
        self._is_closed = False
        self._is_in_sync = False
        """Whether this replica is in sync, by the state that was applied last."""
        self.is_cutting = False
        """A cut has begun: whichever broker leads, nothing of this log is sent or appended to before it is done."""
        self._cut: AskAgain | Agreed | None = None
        """The step of the reconciliation that the cut is for."""
        self._deleted_below = Offset(0)
        """The offset below which the last order since the cut deletes."""
        self._is_placed = False
        """The leader has nothing below this log's start, or all of that was deleted."""

    def accepts(self, leader_epoch: LeaderEpoch) -> bool:
        """Return whether batches that were sent in this epoch may be appended now."""
        return self.phase is Phase.FETCHING and leader_epoch == self.leader_epoch

    def step(self, event: FollowerEvent) -> list[Effect]:
        """Return the effects of `event`, in order. Raises DivergedLogError: the stream is of no use, try another."""
        match event:
            case StateApplied(state):
                return self._named(state)
            case Connected() | Disconnected():
                return self._connected(event.leader_epoch) if isinstance(event, Connected) else self._part()
            case EpochAnswered(leader_epoch, answer):
                return self._answered(leader_epoch, answer)
            case Truncated():
                return self._truncated()
            case CutRefused(error):
                return self._refused(error)
            case Offered():
                return self._offered(event)
            case Received():
                return self._received(event)
            case Synced(durable_end):
                return [*self.commit.synced(durable_end), *self._reported()]
            case Closed(reason):
                self._is_closed = True
                return self._rest(reason)
            case _:
                assert_never(event)

    def _named(self, state: PartitionState) -> list[Effect]:
        leader, epoch = state.leader, state.leader_epoch
        # A seat of an older life may still be renewed, and then vouches for all that this log had.
        self._is_in_sync = any(seat.broker == self.me.broker for seat in state.isr)
        regression = self._seen.regression(state)
        if regression or self._is_closed:
            return self._rest(regression)
        self._seen.note(state)
        if leader is None or leader == self.me or self.me.broker not in state.replicas:
            return self._rest(f"partition epoch {state.partition_epoch}: the leader is {leader or 'nobody'}")
        if (self.leader, self.leader_epoch) == (leader, epoch):
            return []
        self.leader, self.leader_epoch, self.phase = leader, epoch, Phase.APART
        self._deleted_below = Offset(0)
        return [Follow(leader, epoch)]

    def _rest(self, reason: str) -> list[Effect]:
        was, self.leader, self.phase = self.phase, None, Phase.RESTING
        return [] if was is Phase.RESTING else [Unfollow(reason)]

    def _part(self) -> list[Effect]:
        if self.phase is not Phase.RESTING:
            self.phase = Phase.APART
        return []

    def _connected(self, leader_epoch: LeaderEpoch) -> list[Effect]:
        if self.phase is Phase.RESTING or leader_epoch != self.leader_epoch:
            return []
        self.phase, self._cut = Phase.RECONCILING, None
        return [] if self.is_cutting else self._ask()

    def _ask(self) -> list[Effect]:
        epoch = question(self._log.epochs, self._log.log_end_offset, self.leader_epoch)
        return self._fetch() if epoch is None else [AskEpochEnd(self.leader_epoch, epoch)]

    def _answered(self, leader_epoch: LeaderEpoch, answer: EpochEnd) -> list[Effect]:
        if self.phase is not Phase.RECONCILING or self.is_cutting or leader_epoch != self.leader_epoch:
            return []
        log = self._log
        verdict = reconcile(log.epochs, log.log_start_offset, log.log_end_offset, answer)
        if isinstance(verdict, BeginAnew):
            return self._again(StartAnew(verdict.offset, verdict.reason))
        if verdict.end >= log.log_end_offset:
            return self._agreed_or_ask(verdict)
        self._check_cut(verdict.end, verdict.reason)
        self._begin_cut(verdict.end)
        self._cut = verdict
        return [Truncate(verdict.end, verdict.reason, not self._is_in_sync)]

    def _check_cut(self, end: Offset, reason: str) -> None:
        """Check that the log may end, or begin anew, at `end`. Raises DivergedLogError."""
        if self._is_in_sync and end < self.high_watermark:
            raise DivergedLogError(
                f"{self.me} is in sync and holds what is committed, up to {self.high_watermark}, but by the log of"
                f" {self.leader} it should be cut to {end} ({reason}): it keeps what it has while it is in sync"
            )

    def _begin_cut(self, end: Offset) -> None:
        """Begin a cut: from now on nothing from `end` on is vouched for."""
        self.is_cutting = True
        self.commit.truncating(end)

    def _truncated(self) -> list[Effect]:
        log = self._log
        self.is_cutting, self._deleted_below = False, Offset(0)
        self.commit.truncated(log.log_end_offset)
        self.high_watermark = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)
        verdict, self._cut = self._cut, None
        if self.phase is not Phase.RECONCILING:
            return []
        return self._ask() if verdict is None else self._agreed_or_ask(verdict)

    def _refused(self, error: str) -> list[Effect]:
        """Note a refused cut: the log has not changed, and may be led with. The next leader asks for the cut again."""
        self.is_cutting, self._cut = False, None
        self.commit.truncated(self._log.log_end_offset)
        if self.leader is None:
            return []
        self.phase = Phase.APART
        return [Unfollow(f"the log cannot be cut: {error}"), Follow(self.leader, self.leader_epoch)]

    def _agreed_or_ask(self, verdict: AskAgain | Agreed) -> list[Effect]:
        return self._fetch() if isinstance(verdict, Agreed) else self._ask()

    def _fetch(self) -> list[Effect]:
        log = self._log
        self._is_placed = self._is_in_sync or log.epochs.latest != NO_EPOCH or log.log_start_offset == FIRST
        self.phase = Phase.FETCHING
        return [Fetch(self.leader_epoch, self._log.log_end_offset), *self._reported()]

    def _offered(self, event: Offered) -> list[Effect]:
        if not self.accepts(event.leader_epoch):
            return []
        end, begins, start = self._log.log_end_offset, event.base_offset, event.log_start
        if not self._is_placed and start < self._log.log_start_offset:
            return self._again(
                StartAnew(FIRST, f"it is empty, and the log of {self.leader} starts below it, at {start}")
            )
        self._is_placed = True
        if begins is not None and begins < end:
            return self._joined(begins)
        if begins is None and start == event.high_watermark:
            begins = start  # Nothing that is committed is left at the leader: what follows begins there.
        if begins is not None and end < min(begins, start):
            return self._again(StartAnew(begins, f"it ends at {end}, the log of {self.leader} starts at {start}"))
        return []

    def _joined(self, begins: Offset) -> list[Effect]:
        """Reconcile again where compaction at the leader has joined batches across the end of this log."""
        reason = f"{self.leader} holds one batch from {begins} to beyond the end of this log"
        if begins < self._log.log_start_offset:
            return self._again(StartAnew(FIRST, reason))
        return self._again(Truncate(begins, reason, not self._is_in_sync))

    def _again(self, cut: Truncate | StartAnew) -> list[Effect]:
        """Cut, and open another stream meanwhile: the batches on their way in this one follow on nothing any more."""
        assert self.leader is not None, "somebody is followed"
        end = cut.end if isinstance(cut, Truncate) else cut.offset
        self._check_cut(end, cut.reason)
        self._begin_cut(end if isinstance(cut, Truncate) else min(end, self._log.log_start_offset))
        self.phase, self._cut = Phase.APART, None
        return [Unfollow(cut.reason), cut, Follow(self.leader, self.leader_epoch)]

    def _received(self, event: Received) -> list[Effect]:
        if not self.accepts(event.leader_epoch):
            return []
        end = self._log.log_end_offset
        syncs = self.commit.appended(end, event.append_bytes) if event.append_bytes else []
        self.high_watermark = max(self.high_watermark, min(event.high_watermark, end))
        return [*syncs, *self._reported(), *self._maybe_delete(event.log_start)]

    def _maybe_delete(self, leader_start: Offset) -> list[Effect]:
        start = min(leader_start, self.high_watermark)
        if start <= max(self._log.log_start_offset, self._deleted_below):
            return []
        self._deleted_below = start
        return [DeleteBelow(start, f"the log of {self.leader} starts at {leader_start}")]

    def _reported(self) -> list[Effect]:
        if self.phase is not Phase.FETCHING or not self._is_placed:
            return []
        return [Report(self.leader_epoch, self._ends)]

    @property
    def _ends(self) -> Ends:
        return Ends(self.commit.log_end, self.commit.durable_end)
