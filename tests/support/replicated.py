"""A cluster of replicated topics for tests of the planner: brokers that die, return and catch up, beside a `ModelApi`.

What the planner sees of a broker may be late: one that died looks ready until `notice`, and after `restart_operator`
nobody has proved to be alive. Brokers and leaders do what the protocol lets them do (docs/replication.md). Every write
of the planner to a PartitionSet is checked as it lands.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from headrace.core.control.actions import Action, ReplaceSet
from headrace.core.control.observed import Broker, BrokerState
from headrace.core.replication.isr import floor
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, Incarnation, PartitionEpoch, Seat
from tests.support.control import ModelApi, broker

_ROUNDS_MAX = 200


@dataclass(slots=True, repr=False)
class ReplicatedCluster:
    api: ModelApi
    dead: set[BrokerId] = field(default_factory=set)
    unclean: int = 0
    """Partitions that were given a leader that was not in sync."""

    def __repr__(self) -> str:
        return f"ReplicatedCluster({self.api}, dead={self.dead})"

    @classmethod
    def of(cls, topics: list[Topic], brokers: list[Broker]) -> "ReplicatedCluster":
        return cls(ModelApi.of(topics, brokers))

    # Brokers and the operator's view of them

    def kill(self, number: BrokerId) -> None:
        self.dead.add(number)

    def notice(self) -> None:
        """The operator knows of everybody whether they live."""
        for number, seen in self.api.brokers.items():
            if number in self.dead:
                self.api.brokers[number] = replace(seen, state=BrokerState.LOST)
            elif seen.state is not BrokerState.DRAINING:
                self.api.brokers[number] = replace(seen, state=BrokerState.READY)

    def lose(self, number: BrokerId) -> None:
        """It dies, and the operator notices before it does anything else."""
        self.kill(number)
        self.notice()

    def drain(self, number: BrokerId) -> None:
        if number not in self.dead:
            self.api.brokers[number] = replace(self.api.brokers[number], state=BrokerState.DRAINING)

    def start(self, number: BrokerId) -> None:
        """In its next life, whether it was dead before or not."""
        before = self.api.brokers.get(number) or broker(number, incarnation=0, zone="abc"[number % 3])
        self.dead.discard(number)
        next_life = Incarnation(before.incarnation + 1)
        self.api.brokers[number] = replace(before, incarnation=next_life, state=BrokerState.READY)

    def leave(self, number: BrokerId) -> None:
        self.api.leaving |= {number}

    def stay(self, number: BrokerId) -> None:
        self.api.leaving -= {number}

    def restart_operator(self) -> None:
        for number, seen in self.api.brokers.items():
            if seen.state is not BrokerState.LOST or number in self.dead:
                self.api.brokers[number] = replace(seen, state=BrokerState.UNPROVEN)

    def renew(self, number: BrokerId) -> bool:
        """A broker takes its seats of older lives again: its logs are intact."""
        me = self.api.brokers[number].seat
        return number not in self.dead and self._write_each(lambda state: _renewed(state, me))

    def give_up(self, number: BrokerId) -> bool:
        """A broker finds its logs not intact."""
        me = self.api.brokers[number].seat
        return number not in self.dead and self._write_each(lambda state: _given_up(state, me))

    def catch_up(self) -> bool:
        """Every leader that lives adds the replicas that live to its ISR."""
        return self._write_each(self._with_caught_up)

    def _with_caught_up(self, state: PartitionState) -> PartitionState:
        if not self._lives(state.leader):
            return state
        isr = state.isr
        for number in state.replicas:
            known = self.api.brokers[number]
            if number not in self.dead and known.state is BrokerState.READY and known.seat not in isr:
                isr = (*(seat for seat in isr if seat.broker != number), known.seat)
        return _next(state, isr=isr)

    def _lives(self, seat: Seat | None) -> bool:
        return seat is not None and seat.broker not in self.dead and self.api.brokers[seat.broker].seat == seat

    def _write_each(self, change: Callable[[PartitionState], PartitionState]) -> bool:
        before = dict(self.api.sets)
        for name, found in before.items():
            self.api.sets[name] = replace(found, partitions=tuple(change(state) for state in found.partitions))
        return before != self.api.sets

    # The planner

    def plan(self, prefix: int | None = None, conflicts: frozenset[int] = frozenset()) -> list[Action]:
        """One pass: `prefix` actions of it, without those that meet a conflict."""
        actions = self.api.plan()
        for number, action in enumerate(actions[:prefix]):
            if number not in conflicts:
                self.carry_out(action)
        return actions

    def carry_out(self, action: Action) -> None:
        if isinstance(action, ReplaceSet):
            before = self.api.sets[action.set.metadata.name]
            for old, new in zip(before.partitions, action.set.partitions, strict=False):
                self._check(before, old, new)
        self.api.carry_out(action)

    def settle(self, *, work: bool = True) -> None:
        """Until neither the planner nor the brokers that live have anything left to do."""
        self.notice()
        for _ in range(_ROUNDS_MAX):
            busy = bool(self.plan())
            if work:
                busy |= {*map(self.renew, self.api.brokers), self.catch_up()} != {False}
            if not busy:
                return
        raise AssertionError("no end in sight")

    def _check(self, a_set: PartitionSet, old: PartitionState, new: PartitionState) -> None:
        """The invariants of whatever the operator writes."""
        if old == new:
            return
        topic = self.api.topics[a_set.topic_uid]
        held = {seat for seat in new.isr if self.api.observed.serves(seat)}
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.isr, "the last entry stays"
        assert len({*new.replicas}) == len(new.replicas)
        assert {*new.adding} | {*new.removing} <= {*new.replicas}
        elected = new.leader is not None and new.leader != old.leader
        assert new.leader_epoch == old.leader_epoch + elected
        if new.leader is not None:
            assert new.leader in new.isr
            assert self.api.observed.serves(new.leader)
        if {*new.isr} <= {*old.isr}:
            gone = [seat for seat in old.isr if seat not in new.isr]
            assert not gone or len(held) >= floor(new, topic.spec.min_insync_replicas)
            for seat in gone:
                lost = self.api.observed.state_of(seat.broker) is BrokerState.LOST
                assert lost or seat.broker not in new.replicas
        else:
            assert topic.spec.unclean_leader_election
            assert all(self.api.observed.state_of(seat.broker) is BrokerState.LOST for seat in old.isr)
            assert new.isr == (new.leader,)
            self.unclean += 1

    # What there is

    @property
    def states(self) -> Iterator[tuple[Topic, PartitionState]]:
        for found in self.api.sets.values():
            for state in found.partitions:
                yield self.api.topics[found.topic_uid], state


def _next(state: PartitionState, **changes: object) -> PartitionState:
    changed = replace(state, **changes)  # type: ignore[arg-type]
    return state if changed == state else replace(changed, partition_epoch=PartitionEpoch(state.partition_epoch + 1))


def _renewed(state: PartitionState, me: Seat) -> PartitionState:
    return _next(state, isr=tuple(me if seat.broker == me.broker else seat for seat in state.isr))


def _given_up(state: PartitionState, me: Seat) -> PartitionState:
    stale = [seat for seat in state.isr if seat.broker == me.broker and seat != me]
    others = tuple(seat for seat in state.isr if seat not in stale)
    leader = None if state.leader in stale else state.leader
    return _next(state, isr=others or state.isr, leader=leader)
