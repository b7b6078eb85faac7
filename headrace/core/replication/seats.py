"""Seats, incarnations and the epochs that were seen: what a broker may claim when it comes back.

A seat (leadership, ISR membership) belongs to one life of a broker: every start takes a greater incarnation, and the
seats of older ones are void. Leadership is never renewed, only won under a new leader epoch; the only replica of a
partition elects itself, because nobody else could know more. These functions say what to write;
`headrace_broker.cluster` writes it by compare-and-set.

Epochs never go back. A broker puts the highest leader epoch of each of its partitions on disk before it acts on it,
and believes no lower one from then on. A state with a lower epoch, or with the same epoch under another leader, says
that the API server's data went back: nobody follows it or leads in it, and nobody is elected for that topic until
`headrace cluster recover` has set epochs above all (`SeenEpochs`, `regressed_topics`).

Invariants: an incarnation is never used twice; leader and partition epochs only rise; a claim names the claimant's
own present seat and nobody else's.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.isr import floor
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicUid,
)

NO_LIFE: Final = Incarnation(0)
"""The incarnation before the first life of every broker."""
Seen = Mapping[PartitionKey, LeaderEpoch]


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts that a broker knows of its own log before it asks for a seat."""

    last_epoch: LeaderEpoch
    """The greatest leader epoch that the log has seen; 0 for an empty log."""

    damage: str = ""
    """The reason why this start found the log not intact, as a clause; empty where the log was intact."""

    void_before: Incarnation = NO_LIFE
    """The incarnation below which seats are void: its start found the log not intact."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Write `state`. `loss` tells people that records may be missing; it is empty where none can be."""

    state: PartitionState
    reason: str
    loss: str = ""


@dataclass(frozen=True, slots=True)
class Regressed:
    """The API's epochs are below what the log has seen: no election until `headrace cluster recover`."""

    reason: str


def greatest_incarnation(me: BrokerId, on_lease: Incarnation, sets: Iterable[PartitionSet]) -> Incarnation:
    """Return the greatest incarnation that the Lease and all seats of this broker know; a new life takes a greater."""
    in_sets = (seat.incarnation for partition_set in sets for seat in seats_of(me, partition_set))
    return max((on_lease, *in_sets))


def seats_of(me: BrokerId, partition_set: PartitionSet) -> Iterable[Seat]:
    """Return every seat, of whatever incarnation, that `partition_set` gives to this broker."""
    for state in partition_set.partitions:
        if state.leader is not None and state.leader.broker == me:
            yield state.leader
        yield from (seat for seat in state.isr if seat.broker == me)


def is_superseded(me: Seat, sets: Iterable[PartitionSet]) -> bool:
    """Return whether any seat belongs to a later life of this broker; then this process must exit."""
    return any(seat.incarnation > me.incarnation for a_set in sets for seat in seats_of(me.broker, a_set))


def supersedes(state: PartitionState, applied: PartitionState | None) -> bool:
    """Return whether `state` is news: one whose partition epoch is not above the applied one is old."""
    return applied is None or state.partition_epoch > applied.partition_epoch


def older_partitions(shown: PartitionSet, known: PartitionSet) -> frozenset[PartitionId]:
    """Return the partitions that are older in `shown`, or differ under the same epoch, which each change raises.

    All of them are older where the order to delete the data was taken back, which nobody does.
    """
    states = {state.id: state for state in shown.partitions}
    others = (state for state in known.partitions if states.get(state.id) != state)
    older = {state.id for state in others if state.id not in states or not supersedes(states[state.id], state)}
    return frozenset(states if known.deleting and not shown.deleting else older)


def why_void(state: PartitionState, me: Seat, log: LogFacts) -> str:
    """Return why the log lacks some of what this broker vouched for by its seat in `state`; empty where it has all.

    This is asked of each state anew: a write that was on its way when the log was opened may name a life that the
    opening did not see, and only `void_before` tells whether its seat is good. A seat of this very life proves that the
    log is intact, whatever it was before.
    """
    if me in state.isr:
        return ""
    last = max((seat.incarnation for seat in state.isr if seat.broker == me.broker), default=NO_LIFE)
    if not log.damage and last < log.void_before:
        return f"an earlier start found it not intact: seats before incarnation {log.void_before} are void"
    return log.damage


def claim(state: PartitionState, me: Seat, log: LogFacts) -> Claim | Regressed | None:
    """Return what this broker may write when it comes back; None where it has nothing to claim.

    One of several replicas renews its seat in the ISR, or gives it up. Only the sole replica elects itself. It does so
    even when its log is not intact, since there is no better copy to wait for, and says what may be lost.
    """
    if me.broker not in state.replicas:
        return None
    if state.leader_epoch < log.last_epoch:
        return Regressed(
            f"the API says leader epoch {state.leader_epoch}, but the log has records of epoch {log.last_epoch}: the"
            " API server's data went back, as after a restore; run `headrace cluster recover`"
        )
    if len(state.replicas) > 1:
        return _renewed(state, me, log)
    if state.leader == me:
        return None
    elected = replace(
        state,
        leader=me,
        isr=(me,),
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        partition_epoch=PartitionEpoch(state.partition_epoch + 1),
    )
    void = "nobody leads" if state.leader is None else f"the seat of {state.leader} is void"
    return Claim(elected, f"{void}, and {me} is the only replica", _loss(state, me, log))


def _renewed(state: PartitionState, me: Seat, log: LogFacts) -> Claim | None:
    """Return what becomes of this broker's ISR seat of an older life; None where it has none.

    The seat is renewed where the log is intact. Otherwise it is given up, unless it is the last: the next leader must
    know which log was in sync. A broker never renews its leadership: the operator elects under a new epoch.
    """
    old = [seat for seat in state.isr if seat.broker == me.broker and seat != me]
    others = tuple(seat for seat in state.isr if seat not in old)
    void = why_void(state, me, log)
    if not old or (void and not others):
        return None
    isr = others if void else tuple(me if seat in old else seat for seat in state.isr)
    reason = f"{old[0]} is given up: {void}" if void else f"{old[0]} is renewed: its log is intact"
    return Claim(_next(state, leader=state.leader, isr=isr), reason)


def give_up(state: PartitionState, me: Seat) -> PartitionState | None:
    """Return the state without this seat, whose disk failed; None where there is nothing to take out.

    Its ISR entry stays where it is the last: the next leader must know which log was in sync.
    """
    isr = tuple(seat for seat in state.isr if seat != me) or state.isr
    leader = None if state.leader == me else state.leader
    return None if (leader, isr) == (state.leader, state.isr) else _next(state, leader=leader, isr=isr)


def step_down(
    state: PartitionState, me: Seat, ready: Collection[Seat], min_insync_replicas: int
) -> PartitionState | None:
    """Return the state without this seat, which lacks nothing but is idle for a while; None where it had better stay.

    The seat goes only where as many others as the topic asks for are in sync and `ready`: with fewer nothing could
    commit anyway, and then each replica that has everything stays electable.
    """
    others = tuple(seat for seat in state.isr if seat != me)
    in_sync = [seat for seat in others if seat in ready]
    if me not in state.isr or len(in_sync) < floor(state, min_insync_replicas):
        return None
    return _next(state, leader=None if state.leader == me else state.leader, isr=others)


def surrender(state: PartitionState, me: BrokerId) -> PartitionState | None:
    """Return the state without this broker, once its data is deleted; None where it holds no place in it."""
    if me not in state.replicas:
        return None
    return replace(
        state,
        leader=None if state.leader is not None and state.leader.broker == me else state.leader,
        replicas=tuple(broker for broker in state.replicas if broker != me),
        isr=tuple(seat for seat in state.isr if seat.broker != me),
        partition_epoch=PartitionEpoch(state.partition_epoch + 1),
    )


def _next(state: PartitionState, *, leader: Seat | None, isr: tuple[Seat, ...]) -> PartitionState:
    return replace(state, leader=leader, isr=isr, partition_epoch=PartitionEpoch(state.partition_epoch + 1))


def _loss(state: PartitionState, me: Seat, log: LogFacts) -> str:
    void = why_void(state, me, log)
    # Before the first election nobody could have acknowledged anything.
    return f"acknowledged records may be missing: {void}" if void and state.leader_epoch > 0 else ""


class SeenEpochs:
    def __init__(self, last: LeaderEpoch) -> None:
        self.last = last
        """The greatest leader epoch that the log holds, or that was ever applied."""
        self._led_by: Seat | None = None
        """The seat that leads in it, as far as is known."""

    def regression(self, state: PartitionState) -> str:
        """Return why this state is not to be believed, as a sentence with the remedy; else empty."""
        remedy = "its data went back; run `headrace cluster recover`"
        epoch, leader = state.leader_epoch, state.leader
        if epoch < self.last:
            return f"the API server's leader epoch is {epoch}, below {self.last} that this replica has seen: {remedy}"
        if epoch == self.last and None not in (leader, self._led_by) and leader != self._led_by:
            return f"the API server says that {leader} leads in epoch {epoch}, in which {self._led_by} led: {remedy}"
        return ""

    def note(self, state: PartitionState) -> None:
        """Note a state that is believed."""
        if state.leader is not None or state.leader_epoch > self.last:
            self._led_by = state.leader
        self.last = state.leader_epoch


def may_act_on(state: PartitionState, me: BrokerId, seen: LeaderEpoch) -> bool:
    """Return whether the state's epoch is on disk, as `seen` is. A partition that is placed elsewhere needs no note."""
    return me not in state.replicas or state.leader_epoch <= seen


def to_remember(sets: Iterable[PartitionSet], me: BrokerId, seen: Seen) -> dict[PartitionKey, LeaderEpoch]:
    """Return the epochs of this broker's partitions that must be on disk before anybody acts on them.

    Nobody acts any more on topics that are being deleted; the epochs that went with their data stay forgotten.
    """
    return {
        partition_set.key(state.id): state.leader_epoch
        for partition_set in sets
        if not partition_set.deleting
        for state in partition_set.partitions
        if not may_act_on(state, me, seen.get(partition_set.key(state.id), NO_EPOCH))
    }


def regressed_topics(sets: Iterable[PartitionSet], seen: Seen) -> frozenset[TopicUid]:
    """Return the topics with a partition in a lower epoch than this broker has seen, wherever it is placed by now."""
    return frozenset(
        partition_set.topic_uid
        for partition_set in sets
        for state in partition_set.partitions
        if state.leader_epoch < seen.get(partition_set.key(state.id), NO_EPOCH)
    )
