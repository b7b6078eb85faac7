"""The replica of a partition on one broker: leader, follower, or neither, as one machine over one log. No I/O.

    neither ── a state names this seat ──> leading         leading ── any other state, or closed ──> neither, following
       └────── it names another leader ──> following     following ── a state names this seat ──> leading
                                              └── its log is being cut ──> neither, until that is done

This module decides what concerns both roles: which hears of a state and of a sync, what becomes of the high watermark
when the role changes (it goes along: a new leader serves what it knew as committed), and that a log which is being cut
is neither led with nor served: the state that names this seat is held back until the cut is on disk.

Invariants: at most one role acts at a time; a state is applied once, in the order of partition epochs; the high
watermark never falls but with a log that is cut below it, and never lies outside of the log. Owned by
`headrace_broker.partition.shell`, which feeds events and carries out effects; the simulator runs the same code.
"""

from collections.abc import Collection
from typing import Final, assert_never

from headrace.core.errors import NotReadyError
from headrace.core.log.epochs import NO_EPOCH, Fence
from headrace.core.replication.events import (
    Appended,
    Closed,
    Configured,
    Connected,
    CutRefused,
    Disconnected,
    Effect,
    EpochAnswered,
    Event,
    FollowerLeft,
    FollowerReported,
    IsrProposed,
    Offered,
    Received,
    Repeated,
    ReplicaTicked,
    StateApplied,
    Synced,
    SyncFailed,
    Truncated,
    WriteFailed,
)
from headrace.core.replication.following import Following, LogView
from headrace.core.replication.isr import InSyncRules, Isr
from headrace.core.replication.leadership import Contact, Leadership, Redundancy
from headrace.core.replication.seats import supersedes
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, LeaderEpoch, Offset, Seat

_NOTHING: Final = Offset(0)


class Replica:
    def __init__(
        self,
        me: Seat,
        rules: InSyncRules,
        log: LogView,
        *,
        durable_end: Offset,
        last_epoch: LeaderEpoch = NO_EPOCH,
        high_watermark: Offset = _NOTHING,
    ) -> None:
        """Begin with the recovered `log`; `last_epoch` is the greatest that it holds, or that this broker was told of.

        `high_watermark` is the checkpointed one: a lower bound.
        """
        self.me = me
        start, end = log.log_start_offset, log.log_end_offset
        self._leadership = Leadership(me, rules, log_end=end, durable_end=durable_end, last_epoch=last_epoch)
        self._following = Following(me, log, self._leadership.commit, last_epoch)
        self._following.high_watermark = max(min(high_watermark, end), start)
        self._held_back: StateApplied | None = None
        """The state that names this seat, held back while the log is being cut."""

    @property
    def leads(self) -> bool:
        return self._leadership.leads

    @property
    def high_watermark(self) -> Offset:
        """The first offset that is not committed, as far as this broker knows."""
        return self._leadership.high_watermark if self._leadership.leads else self._following.high_watermark

    @property
    def vouched_high_watermark(self) -> Offset:
        """The high watermark that may be remembered on disk: what lies below it is there as surely as it ever is."""
        return min(self.high_watermark, self._leadership.commit.vouched_end)

    @property
    def state(self) -> PartitionState | None:
        """The state that was applied last."""
        return self._leadership.state if self._held_back is None else self._held_back.state

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch; 0 before any state was applied."""
        return self._leadership.leader_epoch if self._held_back is None else self._held_back.state.leader_epoch

    @property
    def isr(self) -> Isr | None:
        """The ISR that has landed and the writes on their way, where this broker leads."""
        return self._leadership.isr

    @property
    def rules(self) -> InSyncRules:
        """The rules that the topic sets now."""
        return self._leadership.rules

    @property
    def regressed(self) -> str:
        """The reason why this broker, a replica, takes part in nothing, as a sentence with the remedy; else empty."""
        return self._leadership.regressed

    @property
    def waits(self) -> bool:
        """Return whether anybody waits, so that `step` must be told the time."""
        return self._leadership.waits

    @property
    def is_cutting(self) -> bool:
        """Return whether the log is being cut; then nothing is appended."""
        return self._following.is_cutting

    def accepts(self, leader_epoch: LeaderEpoch) -> bool:
        """Return whether batches that the leader sent in this epoch may be appended now."""
        return self._following.accepts(leader_epoch)

    def check_leader(self, label: str, fence: Fence) -> LeaderEpoch:
        """Return the epoch to serve a request in.

        Raises NotLeaderError, PartitionOfflineError, FencedEpochError or NotReadyError.
        """
        self._check_not_held_back(label)
        return self._leadership.check_leader(label, fence)

    def check_writable(self, label: str, fence: Fence, acks: Acks, contact: Contact | None = None) -> LeaderEpoch:
        """Return the epoch to append in. Raises `check_leader`'s errors, NotEnoughReplicasError and NotReadyError."""
        self._check_not_held_back(label)
        return self._leadership.check_writable(label, fence, acks, contact)

    def check_latest(self, label: str, contact: Contact | None = None) -> None:
        """Check that this leader may call its high watermark the latest. Raises NotReadyError."""
        self._leadership.check_latest(label, contact)

    def check_not_regressed(self, label: str) -> None:
        """Check that the replica may take part. Raises PartitionOfflineError where only a person can help."""
        self._leadership.check_not_regressed(label)

    def redundancy(self) -> Redundancy:
        """Return the redundancy of a partition that is led."""
        return self._leadership.redundancy()

    def wanted_isr(self, live: Collection[Seat], now_ms: int) -> tuple[Seat, ...]:
        """Return the seats that this leader wants in sync; `live` seats have live Leases and do not drain."""
        return self._leadership.wanted_isr(live, now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Return the effects of `event`, in this order. Raises DivergedLogError: the stream is over."""
        match event:
            case (
                Appended()
                | Repeated()
                | FollowerReported()
                | FollowerLeft()
                | IsrProposed()
                | Configured()
                | ReplicaTicked()
            ):
                return self._leadership.step(event, now_ms)
            case Synced():
                return self._leadership.step(event, now_ms) if self.leads else self._following.step(event)
            case Connected() | Disconnected() | EpochAnswered() | Offered() | Received():
                return self._following.step(event)
            case StateApplied():
                return self._applied(event, now_ms)
            case Truncated() | CutRefused():
                return [*self._following.step(event), *self._maybe_apply(now_ms)]
            case SyncFailed(reason) | WriteFailed(reason) | Closed(reason):
                self._hand_over()
                return [*self._leadership.step(event, now_ms), *self._following.step(Closed(reason))]
            case _:
                assert_never(event)

    def _check_not_held_back(self, label: str) -> None:
        if self._held_back is not None:
            raise NotReadyError(f"{self.me.broker} is about to lead {label}: its log is being cut first; try again")

    def _applied(self, event: StateApplied, now_ms: int) -> list[Effect]:
        if not supersedes(event.state, self.state):
            return []
        self._hand_over()
        self._held_back = event if self.is_cutting and event.state.leader == self.me else None
        led = self._leadership.step(event, now_ms) if self._held_back is None else []
        return [*led, *self._following.step(event)]

    def _maybe_apply(self, now_ms: int) -> list[Effect]:
        """Apply the state that was held back, once the cut is done: another cut may have begun at once."""
        if self._held_back is None or self.is_cutting:
            return []
        event, self._held_back = self._held_back, None
        self._hand_over()
        return self._leadership.step(event, now_ms)

    def _hand_over(self) -> None:
        """Hand the high watermark over: the next role knows as committed what the present one does."""
        self._leadership.high_watermark = self._following.high_watermark = self.high_watermark
