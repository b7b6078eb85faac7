"""The replicas in sync: the ISR that landed, the writes of it that may still land, and the followers' votes. No I/O.

A write whose outcome is not known may have landed, or land later. So the high watermark counts everybody that may be
in the ISR (the maximal ISR: a proposed addition counts at once), and `minInsyncReplicas` only those that are in it
whatever becomes of the write. Source: Kafka's `maximalIsr`, KIP-497. `certain` <= the landed ISR <= `maximal`.

`Followers` is what a leader knows of its followers in one epoch: made anew for every leader epoch, positions by seat,
so that no vote outlives its epoch or the life of its broker. A vote is the durable end under `Fsync` and the log end
under `Replicated`. A follower is caught up when it vouches for all that the leader had when it reported last (Kafka's
`lastCaughtUpTimeMs`).

Invariants: a member that cannot be reached leaves the ISR only while `min_insync_replicas` others remain; the leader
never leaves; a follower joins once it vouches for everything below the high watermark and the start of the epoch, and
only while its stream is there, its Lease is live and it does not drain. Owned by `leadership`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Self

from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.types import BrokerId, Offset, PartitionEpoch, Seat

FOLLOWER_AWAY_MS = 1_000
"""A follower whose stream ended longer ago is away: connections that broke are back by then."""
REPLICA_LAG_MS_MAX = 10_000
"""A follower that was last caught up longer ago leaves the ISR (Kafka's `replica.lag.time.max.ms`)."""


def floor(state: PartitionState, min_insync_replicas: int) -> int:
    """Return how many must be in sync: as the topic says, but no more than there are replicas (KIP-966), at least one.

    Replicas that are being added do not count before they have caught up.
    """
    return max(1, min(min_insync_replicas, len(settled(state))))


def settled(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas but those that are being added."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


@dataclass(frozen=True, slots=True)
class PendingIsr:
    """The undecided writes of one partition, taken together."""

    added: frozenset[Seat]
    removed: frozenset[Seat]
    partition_epoch: PartitionEpoch
    """The greatest partition epoch among them."""


@dataclass(frozen=True, slots=True)
class Isr:
    """The ISR that landed with `state`, and the writes that may still land."""

    state: PartitionState
    pending: PendingIsr | None = None

    @property
    def maximal(self) -> frozenset[Seat]:
        """Return all seats that may be in sync: the high watermark waits for all of them."""
        landed = frozenset(self.state.isr)
        return landed | self.pending.added if self.pending is not None else landed

    @property
    def certain(self) -> frozenset[Seat]:
        """Return the seats that are in sync whatever becomes of the pending writes."""
        landed = frozenset(self.state.isr)
        return landed - self.pending.removed if self.pending is not None else landed

    def proposing(self, state: PartitionState) -> "Isr":
        """Return this ISR while `state` is written too, under a partition epoch above all others (see `next_epoch`)."""
        assert state.partition_epoch == self.next_epoch, "each attempt has an epoch of its own"
        landed, proposed = frozenset(self.state.isr), frozenset(state.isr)
        added, removed = proposed - landed, landed - proposed
        if self.pending is not None:
            added, removed = added | self.pending.added, removed | self.pending.removed
        return replace(self, pending=PendingIsr(added, removed, state.partition_epoch))

    @property
    def next_epoch(self) -> PartitionEpoch:
        """Return the partition epoch of the next write: above the landed one and every attempt."""
        last = self.state.partition_epoch if self.pending is None else self.pending.partition_epoch
        return PartitionEpoch(last + 1)


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of one replica's log (both exclusive)."""

    log_end: Offset
    durable_end: Offset

    def vouched(self, durability: Durability) -> Offset:
        return self.durable_end if durability is Durability.FSYNC else self.log_end


@dataclass(slots=True)
class _Follower:
    last_caught_up_ms: int
    leader_end: Offset
    """The end of the leader's log when this follower reported last ..."""
    reported_ms: int
    """... and the time of that report."""
    ends: Ends | None = None
    heard_ms: int | None = None
    """The time when the leader sent the message that this follower answered last."""
    left_ms: int | None = None
    """The time when the follower's stream ended, if that was since its last report."""


@dataclass(frozen=True, slots=True)
class InSyncRules:
    """The rules by which the ISR is judged."""

    durability: Durability
    min_insync_replicas: int = 1
    replica_lag_ms_max: int = REPLICA_LAG_MS_MAX

    @classmethod
    def of_topic(cls, spec: TopicSpec) -> Self:
        return cls(spec.durability, spec.min_insync_replicas)


class Followers:
    def __init__(self, epoch_start: Offset, began_ms: int) -> None:
        """Begin an epoch without any vote; `epoch_start` is where the leader's log ended when the epoch began."""
        self.epoch_start = epoch_start
        self._began_ms = began_ms
        self._by_seat: dict[Seat, _Follower] = {}

    def reported(self, seat: Seat, ends: Ends, leader: Ends, rules: InSyncRules, now_ms: int) -> None:
        """Note a report: `seat` has reconciled its log with the leader's in this epoch, and holds it to these ends."""
        leader_end = leader.vouched(rules.durability)
        follower = self._by_seat.setdefault(seat, _Follower(self._began_ms, leader_end, now_ms))
        vouched = ends.vouched(rules.durability)
        if vouched >= leader_end:
            follower.last_caught_up_ms = now_ms
        elif vouched >= follower.leader_end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.reported_ms)
        follower.ends, follower.leader_end, follower.reported_ms = ends, leader_end, now_ms
        follower.left_ms = None

    def left(self, seat: Seat, now_ms: int) -> None:
        """Note that the follower's stream has ended: its broker may be dead, long before its Lease shows that."""
        if seat in self._by_seat:
            self._by_seat[seat].left_ms = now_ms

    def is_away(self, seat: Seat, rules: InSyncRules, now_ms: int) -> bool:
        """Return whether nothing will be heard of it soon: its stream ended more than a moment ago, or it is silent."""
        follower = self._by_seat.get(seat)
        if follower is None:
            return now_ms - self._began_ms > rules.replica_lag_ms_max
        if follower.left_ms is not None and now_ms - follower.left_ms >= FOLLOWER_AWAY_MS:
            return True
        return now_ms - follower.reported_ms > rules.replica_lag_ms_max

    def heard(self, seat: Seat, at_ms: int) -> None:
        """Note when the leader sent the message that the follower's last report answers."""
        self._by_seat[seat].heard_ms = at_ms

    def heard_ms(self, seat: Seat) -> int | None:
        """Return when it was last surely in touch; None where it was not in this epoch."""
        follower = self._by_seat.get(seat)
        return None if follower is None else follower.heard_ms

    def log_end(self, broker: BrokerId) -> Offset:
        """Return the log end of the broker's present life; 0 before it has reported in this epoch."""
        seats = [seat for seat in self._by_seat if seat.broker == broker]
        ends = self._by_seat[max(seats)].ends if seats else None
        return Offset(0) if ends is None else ends.log_end

    def vote(self, seat: Seat, durability: Durability) -> Offset | None:
        """Return the offset that it votes for; None where it has reported nothing in this epoch."""
        follower = self._by_seat.get(seat)
        return None if follower is None or follower.ends is None else follower.ends.vouched(durability)

    def wanted_isr(
        self, state: PartitionState, high_watermark: Offset, live: Collection[Seat], rules: InSyncRules, now_ms: int
    ) -> tuple[Seat, ...]:
        """Return the ISR to propose. `state` has landed; `live` seats have live Leases and do not drain."""
        kept = self._without_lagging(state, rules, now_ms)
        joining = [seat for seat in sorted(live) if self._may_join(seat, state, high_watermark, rules)]
        replaced = {seat.broker for seat in joining}
        return (*(seat for seat in kept if seat.broker not in replaced), *joining)

    def _without_lagging(self, state: PartitionState, rules: InSyncRules, now_ms: int) -> Iterable[Seat]:
        lagging = [(self._lag_ms(seat, now_ms), seat) for seat in state.isr if seat != state.leader]
        late = sorted((each for each in lagging if each[0] > rules.replica_lag_ms_max), reverse=True)
        may_leave = max(0, len(state.isr) - floor(state, rules.min_insync_replicas))
        leaving = {seat for _, seat in late[:may_leave]}
        return [seat for seat in state.isr if seat not in leaving]

    def _lag_ms(self, seat: Seat, now_ms: int) -> int:
        follower = self._by_seat.get(seat)
        return now_ms - (self._began_ms if follower is None else follower.last_caught_up_ms)

    def _may_join(self, seat: Seat, state: PartitionState, high_watermark: Offset, rules: InSyncRules) -> bool:
        vote = self.vote(seat, rules.durability)
        if (
            vote is None
            or seat in state.isr
            or seat.broker not in state.replicas
            or self._by_seat[seat].left_ms is not None
        ):
            return False
        return vote >= high_watermark and vote >= self.epoch_start
