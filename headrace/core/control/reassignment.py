"""The reassignment of replicas: another replication factor, a broker that is to leave, brokers that were added.

    at rest ── its brokers are not those it should have ──> moving: the new ones are in `replicas` and `adding`,
                                                            the old ones go on, in `removing`, at the end of `replicas`
    moving ── a new one is in sync ──> it is no longer `adding`
           ── none is `adding`, and the leader and all live replicas of the target are in sync ──> the old ones go
              (a write of its own: a broker deletes at once only what it has seen in `removing` before it was gone)
           ── the topic asks for something else ──> moving to that: a broker that is wanted again stays

`target` is what is left when nothing moves any more; all decisions start from it, so it does not matter how often the
topic changed or the operator died in between. Copying is throttled to REASSIGNMENTS_MAX partitions of the cluster at a
time; taking replicas away copies nothing. A partition without a live leader is left alone, and all are while it is not
known of some broker whether it is alive.

Invariants: no member leaves the ISR here while fewer than `minInsyncReplicas` others of the target are in sync, nor
while a live replica of the target is not; the leader is never removed (`elections` moves it first); `replicas` never
loses a broker that was not in `removing`, nor one while another has yet to catch up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.core.control.actions import Change, ChangeBudget, ChangeKind, is_copying, revised
from headrace.core.control.conditions import named_brokers
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.placement import Candidate, Ground, Load, Replicas, level, refit
from headrace.core.replication.isr import floor
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import BrokerId, PartitionId


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The things that a topic still has to wait for."""

    too_few: bool = False
    """True where there are not as many brokers as it asks for replicas."""
    waiting: int = 0
    """The number of partitions whose turn has yet to come."""
    stuck: tuple[BrokerId, ...] = ()
    """The brokers that are to leave, where no other can take what they hold."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    changes: Mapping[PartitionId, Change] = field(default_factory=dict)
    unfinished: Unfinished = field(default_factory=Unfinished)


def reassign(
    spec: TopicSpec,
    states: Sequence[PartitionState],
    observed: Observed,
    budget: ChangeBudget,
    others: Load,
    preferred: Mapping[PartitionId, BrokerId],
) -> Reassignment:
    """Return the next step of every partition of a topic. `others` is the load of the brokers by the rest of the
    topics, `preferred` the brokers that are to be preferred leaders, whatever balance asks for."""
    if observed.in_state(BrokerState.UNPROVEN):
        return Reassignment()
    moving = _Reassigning(spec, states, observed, budget, others)
    moving.preferred = preferred
    return moving.run()


class _Reassigning:
    """The reassignment of one topic in one pass."""

    def __init__(
        self, spec: TopicSpec, states: Sequence[PartitionState], observed: Observed, budget: ChangeBudget, others: Load
    ) -> None:
        self._spec, self._states, self._observed = spec, states, observed
        self._budget, self._others = budget, others
        self.preferred: Mapping[PartitionId, BrokerId] = {}
        self._load = Load.of(state.target for state in states)
        self._targets: dict[PartitionId, Replicas] = {}
        self._waiting = 0
        self._stuck: set[BrokerId] = set()
        self._changes: dict[PartitionId, Change] = {}

    def run(self) -> Reassignment:
        led = [state for state in self._states if self._observed.serves(state.leader)]
        for state in led:
            if len(state.target) != self._spec.replicas or self._leaving.intersection(state.target):
                self._refit(state)
        for state in led:
            self._prefer(state)
        if not self._targets and self._is_at_rest():
            self._level()
        for state in led:
            self._step(state)
        return Reassignment(self._changes, self._unfinished())

    def _refit(self, state: PartitionState) -> None:
        faults = {broker: self._fault(broker, state) for broker in state.target}
        ground = self._ground.of_partition(faults, state.removing)
        wanted = refit(state.target, self._spec.replicas, ground, self._load)
        self._stuck |= self._leaving & {*wanted}
        self._turn_to(state, wanted)

    def _prefer(self, state: PartitionState) -> None:
        """Put another broker first: nothing is copied for that."""
        broker = self.preferred.get(state.id)
        if broker is None or state.adding or state.removing or state.id in self._targets:
            return
        others = [each for each in state.target if each != broker]
        if len(others) < len(state.target):
            self._turn_to(state, (broker, *others))

    def _turn_to(self, state: PartitionState, wanted: Replicas) -> None:
        """Take `wanted` as the target where it is another and its turn has come."""
        if wanted == state.target:
            return
        copies = not {*wanted} <= {*state.replicas} and not is_copying(state, self._observed)
        if copies and self._budget.moves == 0:
            self._waiting += 1
            return
        self._budget.moves -= copies
        self._load.moved(state.target, wanted)
        self._targets[state.id] = wanted

    def _is_at_rest(self) -> bool:
        fits = all(len(state.target) == self._spec.replicas for state in self._states)
        moving = any(state.adding or state.removing for state in self._states)
        return fits and not moving and not self._waiting and not self._stuck

    def _level(self) -> None:
        steady = [candidate for candidate in self._candidates if candidate.broker in self._observed.steady]
        ground = Ground.of(steady, self._zones, self._others)
        targets = [state.target for state in self._states]
        movable = [self._is_movable(state) for state in self._states]
        for index, wanted in level(targets, ground, self._budget.moves, movable.__getitem__).items():
            self._turn_to(self._states[index], wanted)

    def _is_movable(self, state: PartitionState) -> bool:
        """Return whether it may move for the sake of balance alone."""
        return state.id not in self.preferred and self._observed.serves(state.leader) and self._is_whole(state)

    def _step(self, state: PartitionState) -> None:
        if state.id in self._targets:
            after = _towards(state, self._targets[state.id])
            reason = f"it is to stand on {named_brokers(after.target)}"
        else:
            after, reason = self._settled(state), "replicas have caught up"
        if after != state:
            self._changes[state.id] = Change(revised(after), reason, (ChangeKind.REASSIGNED,))

    def _settled(self, state: PartitionState) -> PartitionState:
        """Return the state with replicas that have caught up counted in, and unneeded ones gone."""
        if not state.adding and not state.removing:
            return state
        adding = tuple(broker for broker in state.adding if not self._is_in_sync(broker, state))
        settled = replace(state, adding=adding)
        if adding or not state.removing or not self._can_do_without_others(settled):
            return settled
        isr = tuple(seat for seat in state.isr if seat.broker in state.target)
        return replace(settled, replicas=state.target, removing=(), isr=isr)

    def _can_do_without_others(self, state: PartitionState) -> bool:
        """Return whether the target can go on alone."""
        alone = replace(state, replicas=state.target, removing=())
        least = floor(alone, self._spec.min_insync_replicas)
        enough = sum(self._is_in_sync(broker, state) for broker in alone.replicas) >= least
        leads = state.leader is not None and state.leader.broker in state.target
        return leads and enough and self._is_whole(state)

    def _is_whole(self, state: PartitionState) -> bool:
        """Return whether all live replicas of its target are in sync."""
        live = (broker for broker in state.target if self._observed.state_of(broker) is not BrokerState.LOST)
        return all(self._is_in_sync(broker, state) for broker in live)

    def _is_in_sync(self, broker: BrokerId, state: PartitionState) -> bool:
        return any(seat.broker == broker and self._observed.serves(seat) for seat in state.isr)

    def _fault(self, broker: BrokerId, state: PartitionState) -> int:
        """Return how little a replica is worth: one that is in sync is worth most, one whose broker is away least."""
        if self._observed.state_of(broker) is BrokerState.LOST:
            return 2
        return 0 if self._is_in_sync(broker, state) else 1

    @cached_property
    def _candidates(self) -> list[Candidate]:
        ready = self._observed.in_state(BrokerState.READY)
        return [Candidate(broker.id, broker.zone) for broker in ready if self._observed.is_open_to(broker.id)]

    @cached_property
    def _zones(self) -> dict[BrokerId, str]:
        return {broker.id: broker.zone for broker in self._observed.brokers.values()}

    @cached_property
    def _ground(self) -> Ground:
        ground = Ground.of(self._candidates, self._zones, self._others)
        return replace(ground, leaving=self._leaving)

    @cached_property
    def _leaving(self) -> frozenset[BrokerId]:
        """Return the brokers that must hold nothing in the end: a broker that does not exist, as after a mistyped
        number, never will."""
        named = {broker for state in self._states for broker in state.target}
        return self._observed.leaving | set(filter(self._observed.was_never_seen, named))

    def _unfinished(self) -> Unfinished:
        targets = [self._targets.get(state.id, state.target) for state in self._states]
        short = any(len(target) < self._spec.replicas for target in targets)
        too_few = short and len(self._candidates) < self._spec.replicas
        return Unfinished(too_few, self._waiting, tuple(sorted(self._stuck & self._observed.leaving)))


def _towards(state: PartitionState, wanted: Replicas) -> PartitionState:
    """Return the state on the way to `wanted`: the new brokers beside the old ones, whatever was on its way before."""
    come = {broker for broker in wanted if broker not in state.replicas or broker in state.adding}
    removing = tuple(broker for broker in state.replicas if broker not in wanted)
    adding = tuple(broker for broker in wanted if broker in come)
    return replace(state, replicas=(*wanted, *removing), adding=adding, removing=removing)
