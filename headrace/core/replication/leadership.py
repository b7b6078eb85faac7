"""The leader's side of one partition: whether it leads, what is committed, which requests may be answered. No I/O.

    resting ── state names this seat, in no epoch below the log's ──> leading ── any other state, or closed ──> resting
    leading: appended ──> Sync ──> synced ──> Acknowledge, RaiseHighWatermark
                           └── failed ──> GiveUp                     (the broker surrenders every seat and stops)
             repeated ──> Acknowledge as soon as its original is what this request asks for

The high watermark (exclusive) is the smallest vote of all that may be in the ISR (the maximal ISR, `isr`), and moves
only while at least `min_insync_replicas` surely are. A vote is the durable end under `Fsync` and the log end under
`Replicated`; a member that has said nothing in this epoch keeps the high watermark where it is.

A new leader serves what it inherited as committed. It does not say what is the latest before the high watermark has
reached the start of its epoch, nor while it may have been replaced without knowing: then it also answers nothing that
asks for less than a commit. `Contact` decides that: a Lease that was renewed within its duration, or a message in
this epoch from each member of the ISR, because one of them would have been elected. People alert on `Redundancy`.

Invariants: the applied partition epoch never goes back; no leader in an epoch below one that this replica has seen,
or in one that had another leader (`seats.SeenEpochs`); the high watermark never goes back and never passes the log
end; a waiter is answered exactly once; acks=all only below the high watermark. Owned by `replica`.
"""

from bisect import insort
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple, assert_never

from headrace.core.errors import NotEnoughReplicasError, NotLeaderError, NotReadyError, PartitionOfflineError
from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.log.epochs import NO_EPOCH, Fence
from headrace.core.log.group_commit import GroupCommit
from headrace.core.replication.events import (
    Abandon,
    Acknowledge,
    Appended,
    Closed,
    Configured,
    Effect,
    Expire,
    FollowerLeft,
    FollowerReported,
    GiveUp,
    IsrProposed,
    Lead,
    LeaderEvent,
    RaiseHighWatermark,
    Repeated,
    ReplicaTicked,
    Resign,
    StateApplied,
    Synced,
    SyncFailed,
    Waiter,
    WriteFailed,
)
from headrace.core.replication.isr import Ends, Followers, InSyncRules, Isr, floor, settled
from headrace.core.replication.seats import SeenEpochs, supersedes
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, Seat


class Contact(NamedTuple):
    """The broker's contact with the others. It is a tuple, because each append without acks=all looks at one."""

    now_ms: int
    lease_renewed_ms: int
    """The time when the request was sent that renewed the Lease last."""

    @property
    def has_lease(self) -> bool:
        return self.is_recent(self.lease_renewed_ms)

    def is_recent(self, at_ms: int | None) -> bool:
        """Return whether `at_ms` lies within a Lease's duration; None: it never happened."""
        return at_ms is not None and self.now_ms - at_ms < LEASE_DURATION_MS


@dataclass(frozen=True, slots=True)
class Redundancy:
    replicas: int
    """The number of replicas that are to stay; nobody misses yet one that is being added."""
    in_sync: int
    needed: int
    """The `minInsyncReplicas`, but no more than there are replicas."""
    lags: Mapping[BrokerId, int]
    """The number of offsets that each other replica lacks: all, before it has reported anything in this epoch."""

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < self.replicas

    @property
    def is_under_min_isr(self) -> bool:
        return self.in_sync < self.needed


class Leadership:
    """The leader's role of one replica. `log_end`, `durable_end` and `last_epoch` are those of the recovered log."""

    def __init__(
        self,
        me: Seat,
        rules: InSyncRules,
        *,
        log_end: Offset,
        durable_end: Offset,
        last_epoch: LeaderEpoch = NO_EPOCH,
    ) -> None:
        self.me = me
        self.high_watermark = Offset(0)
        """The first offset that is not committed, as far as this broker knows when it leads."""
        self.isr: Isr | None = None
        """The ISR of the state that was applied last, with the writes on their way."""
        self.rules = rules
        """The rules that the topic sets now."""
        self.commit = GroupCommit(rules.durability, durable_end, log_end)
        """The group commit of the log, whichever broker leads. Its `vouched_end` is this broker's own vote."""
        self._followers = Followers(log_end, 0)
        """The followers in the present epoch."""
        self._others: frozenset[Seat] = frozenset()
        """The seats whose votes count beside this broker's own."""
        self._may_commit = False
        self._waiting: deque[tuple[Offset, Waiter]] = deque()
        """The waiters of acks=all with their end offsets, in the order of the log; none is committed."""
        self._closed = False
        self._seen = SeenEpochs(last_epoch)
        self.leads = False
        self.regressed = ""
        """The reason why this broker, a replica, must not lead, as a sentence with the remedy; else empty."""

    @property
    def state(self) -> PartitionState | None:
        """The state that was applied last."""
        return self.isr.state if self.isr is not None else None

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch; 0 before any state was applied."""
        return self.state.leader_epoch if self.state is not None else LeaderEpoch(0)

    @property
    def waits(self) -> bool:
        """Return whether anybody waits, so that `step` must be told the time."""
        return bool(self._waiting)

    def check_leader(self, label: str, fence: Fence) -> LeaderEpoch:
        """Return the epoch to serve a request in. Raises NotLeaderError, PartitionOfflineError or FencedEpochError."""
        leader = self.state.leader if self.state is not None else None
        self.check_not_regressed(label)
        if leader is None:
            raise PartitionOfflineError(f"{label} has no leader just now; try again")
        if not self.leads:
            raise NotLeaderError(f"{self.me.broker} does not lead {label}; {leader} does", leader=leader.broker)
        fence.check_epoch(label, self.leader_epoch)
        return self.leader_epoch

    def check_writable(self, label: str, fence: Fence, acks: Acks, contact: Contact | None = None) -> LeaderEpoch:
        """Return the epoch to append in. Raises `check_leader`'s errors, NotEnoughReplicasError and NotReadyError."""
        epoch = self.check_leader(label, fence)
        if acks is not Acks.ALL:
            self._check_in_touch(label, contact)
        elif not self._may_commit or self._too_few_live(contact):
            raise NotEnoughReplicasError(
                f"{label} has fewer replicas in sync than acks=all needs ({self.rules.min_insync_replicas},"
                " minInsyncReplicas): try again when more are back"
            )
        return epoch

    def _too_few_live(self, contact: Contact | None) -> bool:
        """Return whether so many members of the ISR are away that nothing commits before they return.

        Members that are away stay in the ISR where too few others are left.
        """
        if contact is None or self.isr is None or not self._others:
            return False
        others = self.isr.certain - {self.me}
        away = sum(self._followers.is_away(seat, self.rules, contact.now_ms) for seat in others)
        return bool(away) and len(self.isr.certain) - away < floor(self.isr.state, self.rules.min_insync_replicas)

    def check_latest(self, label: str, contact: Contact | None = None) -> None:
        """Check that the high watermark is the latest that anybody was told. Raises NotReadyError."""
        if self.high_watermark < self._followers.epoch_start:
            raise NotReadyError(
                f"{self.me.broker} has just begun to lead {label}, and knows as committed what lies below"
                f" {self.high_watermark}; there may be more, up to {self._followers.epoch_start}: try again"
            )
        self._check_in_touch(label, contact)

    def _check_in_touch(self, label: str, contact: Contact | None) -> None:
        """Check that no other broker can lead by now; acks=all and committed reads need no check. Raises
        NotReadyError."""
        if contact is None or not self._others or contact.has_lease:
            return
        unheard = [str(seat) for seat in self._others if not contact.is_recent(self._followers.heard_ms(seat))]
        if unheard:
            raise NotReadyError(
                f"{self.me.broker} cannot tell whether it still leads {label}: its Lease is not renewed, and it has not"
                f" heard {', '.join(sorted(unheard))}, in sync; try again, or write with acks=all"
            )

    def wanted_isr(self, live: Collection[Seat], now_ms: int) -> tuple[Seat, ...]:
        """Return the seats that this leader wants in sync; `live` seats have live Leases and do not drain."""
        assert self.state is not None, "only a leader is asked"
        return self._followers.wanted_isr(self.state, self.high_watermark, live, self.rules, now_ms)

    def redundancy(self) -> Redundancy:
        """Return the redundancy of a partition that is led."""
        assert self.isr is not None, "only a leader is asked"
        state, end = self.isr.state, self.commit.log_end
        return Redundancy(
            replicas=len(settled(state)),
            in_sync=len(state.isr),
            needed=floor(state, self.rules.min_insync_replicas),
            lags={
                broker: max(0, end - self._followers.log_end(broker))
                for broker in state.replicas
                if broker != self.me.broker
            },
        )

    def check_not_regressed(self, label: str) -> None:
        """Check that the partition may be led. Raises PartitionOfflineError where only a person can help."""
        if self.regressed:
            raise PartitionOfflineError(f"{label} is offline: {self.regressed}")

    def step(self, event: LeaderEvent, now_ms: int) -> list[Effect]:
        """Return the effects of `event`, in this order."""
        match event:
            case StateApplied(state):
                return self._applied(state, now_ms)
            case Appended():
                return self._appended(event)
            case Repeated(log_end, waiter):
                return self._repeated(log_end, waiter)
            case Synced(durable_end):
                syncs = self.commit.synced(durable_end)
                return [*syncs, *self._maybe_commit(f"durable to {durable_end}")]
            case Configured(rules):
                self.rules = rules
                syncs = self.commit.configured(rules.durability)
                return [*syncs, *self._counted_anew(f"durability is {rules.durability}")]
            case FollowerReported() | FollowerLeft() | IsrProposed():
                return self._heard(event, now_ms)
            case ReplicaTicked():
                return self._expired(now_ms)
            case SyncFailed() | WriteFailed() | Closed():
                return self._ended(event)
            case _:
                assert_never(event)

    def _applied(self, state: PartitionState, now_ms: int) -> list[Effect]:
        if self._closed or not supersedes(state, self.state):
            return []
        led, epoch_before = self.leads, self.leader_epoch
        self.isr = Isr(state, self.isr.pending if self.isr is not None else None)
        regression = self._seen.regression(state)
        if not regression:
            self._seen.note(state)
        self.regressed = regression if self.me.broker in state.replicas else ""
        self.leads = state.leader == self.me and not self.regressed
        if not self.leads:
            return self._resigned(self.regressed or f"the leader is {state.leader or 'nobody'}") if led else []
        effects: list[Effect] = []
        if not led or state.leader_epoch != epoch_before:
            self._followers = Followers(self.commit.log_end, now_ms)
            effects.append(Lead(state.leader_epoch, f"partition epoch {state.partition_epoch} names {self.me}"))
        return [*effects, *self._counted_anew("state applied")]

    def _heard(self, event: FollowerReported | FollowerLeft | IsrProposed, now_ms: int) -> list[Effect]:
        """Handle news of followers, or of the writes that make them members."""
        if isinstance(event, IsrProposed):
            self.isr = replace(self.isr, pending=event.pending) if self.isr is not None else None
            return self._counted_anew("an ISR is written")
        if not self.leads or event.leader_epoch != self.leader_epoch:
            return []  # An event of another epoch says nothing about this one.
        if isinstance(event, FollowerLeft):
            self._followers.left(event.seat, now_ms)
            return []
        mine = Ends(self.commit.log_end, self.commit.durable_end)
        self._followers.reported(event.seat, event.ends, mine, self.rules, now_ms)
        self._followers.heard(event.seat, now_ms if event.heard_ms is None else event.heard_ms)
        return self._maybe_commit(f"{event.seat} has {event.ends}") if event.seat in self._others else []

    def _counted_anew(self, reason: str) -> list[Effect]:
        """Count again: the seats that vote, or how many votes are needed, may have changed."""
        if self.isr is None or not self.leads:
            return []
        self._others = self.isr.maximal - {self.me}
        needed = floor(self.isr.state, self.rules.min_insync_replicas)
        self._may_commit = self.me in self.isr.maximal and len(self.isr.certain) >= needed
        return self._maybe_commit(reason)

    def _resigned(self, reason: str) -> list[Effect]:
        waiters = self._take_waiting()
        return [Resign(reason), *([Abandon(waiters, reason)] if waiters else [])]

    def _appended(self, event: Appended) -> list[Effect]:
        assert self.leads, "only the leader appends"
        assert event.log_end > self.commit.log_end, "an append moves the log end"
        effects: list[Effect] = [*self.commit.appended(event.log_end, event.append_bytes)]
        waiter = event.waiter
        if waiter is not None and waiter.acks is Acks.ALL:
            self._waiting.append((event.log_end, waiter))
        elif waiter is not None:
            effects.append(Acknowledge((waiter.number,), "written by the leader"))
        return [*effects, *self._maybe_commit("append")]

    def _repeated(self, log_end: Offset, waiter: Waiter) -> list[Effect]:
        assert self.leads, "only the leader answers"
        if waiter.acks is Acks.ALL and log_end > self.high_watermark:
            insort(self._waiting, (log_end, waiter), key=itemgetter(0))
            return []
        return [Acknowledge((waiter.number,), "it was written before")]

    def _ended(self, event: SyncFailed | WriteFailed | Closed) -> list[Effect]:
        """Refuse everybody who waits."""
        self._closed, self.leads = True, False
        match event:
            case SyncFailed(error):
                return [GiveUp(self._take_waiting(), self.commit.failed(error).reason)]
            case WriteFailed(error):
                return [GiveUp(self._take_waiting(), error)]
            case Closed(reason):
                return self._resigned(reason)
            case _:
                assert_never(event)

    def _take_waiting(self) -> tuple[int, ...]:
        taken = tuple(waiter.number for _, waiter in self._waiting)
        self._waiting.clear()
        return taken

    def _maybe_commit(self, reason: str) -> list[Effect]:
        if not self._may_commit or not self.leads:
            return []
        vote = self.commit.vouched_end
        for seat in self._others:
            vote = min(vote, self._followers.vote(seat, self.rules.durability) or self.high_watermark)
        if vote <= self.high_watermark:
            return []
        self.high_watermark = vote
        committed = []
        while self._waiting and self._waiting[0][0] <= vote:
            committed.append(self._waiting.popleft()[1].number)
        answers = [Acknowledge(tuple(committed), reason)] if committed else []
        return [*answers, RaiseHighWatermark(vote, reason)]

    def _expired(self, now_ms: int) -> list[Effect]:
        late = tuple(waiter.number for _, waiter in self._waiting if waiter.expires_ms <= now_ms)
        if not late:
            return []
        self._waiting = deque(entry for entry in self._waiting if entry[1].expires_ms > now_ms)
        return [Expire(late, f"not committed in time: the high watermark is {self.high_watermark}")]
