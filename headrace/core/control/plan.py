"""`plan(desired, observed, now_ms)`: what to do next, for every topic of this cluster. Pure and level-triggered.

It uses full state only, so it does not matter what was seen or done before, or where a predecessor died: a missing step
is planned, and where nothing is missing the plan is empty. Writes that change PartitionSets come in one pass, the
status that describes them in the next, which sees them: a status never promises what has not landed.

Order within a topic: sets of a dead namesake go first (a topic that was deleted and created again), then the finalizer
(no data without it), then seats: elections and moves of placed partitions together with places for the others, one
write per set. A topic with `MetadataRegressed` is described and nothing else: its epochs went back, and a write on top
of them would be lost, or lose, when they return. Topics come in the order of their names, so that placing them again
after half a pass gives the same seats.

`tend` is the part for placed partitions: elections, the last resort, moves. A partition that an election has changed
moves in the next pass, which sees the new leader.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.control.actions import (
    Action,
    Change,
    ChangeBudget,
    CreateSet,
    DeleteOrphanSet,
    ReplaceSet,
    TopicPlan,
    leaders_of,
)
from headrace.core.control.conditions import announce
from headrace.core.control.deletion import confirm_places, delete_topic, keep_marks
from headrace.core.control.elections import Elections, preference_of
from headrace.core.control.last_resort import resort
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.placement import Load, Replicas, TooFewBrokers, missing_partitions, placed_in, seat_new
from headrace.core.control.reassignment import Unfinished, reassign
from headrace.core.control.reclaiming import Claims, Reclaimed, Withheld, doubtful_partitions, noted_or_told, reclaim
from headrace.core.control.status import Outlook, pause, summarize
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Places, Topic
from headrace.core.types import PartitionId, TopicName, TopicUid

_REASONS_MAX = 3
"""The number of reasons that one write gives for the log; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Tended:
    writes: tuple[ReplaceSet, ...]
    """The writes, at most one for each set."""
    unfinished: Unfinished = field(default_factory=Unfinished)


@dataclass(frozen=True, slots=True)
class Round:
    """The facts of a pass beside the topic itself."""

    observed: Observed
    budget: ChangeBudget
    others: Load
    """The load of the brokers by all other topics."""


def tend(topic: Topic, sets: Sequence[PartitionSet], around: Round) -> Tended:
    """Return the writes that bring `sets`, all of the topic, on by one step."""
    spec = topic.spec
    states = [state for partition_set in sets for state in partition_set.partitions]
    elections = Elections(spec, around.observed, around.budget, leaders_of(states, around.observed))
    elected = {state.id: change for state in states if (change := elections.change_for(state))}
    for partition_set in sets:
        for state in partition_set.partitions:
            resorted = resort(spec, partition_set, state, around.observed)
            if resorted is not None:
                elected[state.id] = resorted
    now = [elected[state.id].state if state.id in elected else state for state in states]
    preferred = preference_of(topic, now).wanted
    moved = reassign(spec, now, around.observed, around.budget, around.others, preferred)
    return Tended(_writes(sets, {**moved.changes, **elected}), moved.unfinished)


def _writes(sets: Sequence[PartitionSet], changes: Mapping[PartitionId, Change]) -> tuple[ReplaceSet, ...]:
    writes = []
    for partition_set in sets:
        own = [changes[state.id] for state in partition_set.partitions if state.id in changes]
        if own:
            changed = partition_set.with_partitions(*(change.state for change in own))
            kinds = tuple(kind for change in own for kind in change.kinds)
            writes.append(ReplaceSet(changed, _reason(own), announce(own), kinds))
    return tuple(writes)


def _reason(changes: Sequence[Change]) -> str:
    told = "; ".join(f"partition {change.state.id}: {change.reason}" for change in changes[:_REASONS_MAX])
    more = len(changes) - _REASONS_MAX
    return f"{told}; and {more} more partitions" if more > 0 else told


def plan(desired: Sequence[Topic], observed: Observed, now_ms: int) -> tuple[TopicPlan, ...]:
    """Return actions by topic, in the order of names. `desired` are all Topics; `now_ms` is wall time, for
    conditions."""
    planned: dict[TopicName, list[Action]] = defaultdict(list)
    uids = {topic.uid for topic in desired}
    for orphan in _orphans(uids, observed):
        planned[orphan.topic_name].append(DeleteOrphanSet(orphan, "its topic is gone"))
    ours = sorted((t for t in desired if t.spec.cluster == observed.cluster), key=lambda topic: topic.full_name)
    planner = _Planner(ours, observed, now_ms, Claims.of(desired, observed))
    for topic in ours:
        planned[topic.full_name] += planner.plan_topic(topic)
    return tuple(TopicPlan(name, tuple(actions)) for name, actions in sorted(planned.items()) if actions)


def _orphans(uids: set[TopicUid], observed: Observed) -> list[PartitionSet]:
    """Return the sets of this cluster whose topic, by uid, is not there any more."""
    ours = [s for s in observed.sets if s.metadata.labels.get(CLUSTER_LABEL) == observed.cluster]
    return sorted((s for s in ours if s.topic_uid not in uids), key=lambda s: (s.topic_name, s.metadata.name))


@dataclass(frozen=True, slots=True)
class _Placed:
    """The outcome for a topic's partitions that have no place."""

    writes: tuple[CreateSet | ReplaceSet, ...] = ()
    too_few: TooFewBrokers | None = None
    withheld: Withheld | None = None


class _Planner:
    """The planner of one pass over the topics of a cluster: what it places for one counts as load for the next."""

    def __init__(self, topics: Sequence[Topic], observed: Observed, now_ms: int, claims: Claims) -> None:
        self._observed = observed
        self._claims = claims
        self._now_ms = now_ms
        self._sets: dict[TopicUid, list[PartitionSet]] = {topic.uid: [] for topic in topics}
        for partition_set in sorted(observed.sets, key=lambda s: s.metadata.name):
            if partition_set.topic_uid in self._sets:
                self._sets[partition_set.topic_uid].append(partition_set)
        # A set that goes is no load: else it would matter whether it has gone before the rest is placed, or after.
        staying = (topic for topic in topics if not topic.is_going)
        self._load = Load.of(replicas for topic in staying for replicas in _placed(self._sets[topic.uid]))
        self._budget = ChangeBudget.of((s for sets in self._sets.values() for s in _states(sets)), observed)

    def plan_topic(self, topic: Topic) -> list[Action]:
        sets = self._sets[topic.uid]
        if topic.is_going:
            return delete_topic(topic, sets, overdue=topic.uid in self._observed.overdue)
        if topic.paused:
            paused = pause(topic, self._now_ms)
            return [paused] if paused else []
        return self._maintain(topic, sets)

    def _maintain(self, topic: Topic, sets: Sequence[PartitionSet]) -> list[Action]:
        if topic.uid in self._observed.regressed:
            return self._conclude(topic, sets, [], self._outlook(topic))
        others = self._load.without(Load.of(_placed(sets)))
        tended = tend(topic, sets, Round(self._observed, self._budget, others))
        placed = self._place(topic, _after(sets, tended.writes), others)
        writes = _joined(tended.writes, placed.writes if placed is not None else ())
        self._load = others.with_all(_placed(_after(sets, writes)))
        if placed is None:
            return [*writes]
        return self._conclude(topic, sets, writes, self._outlook(topic, tended, placed))

    def _conclude(
        self,
        topic: Topic,
        sets: Sequence[PartitionSet],
        writes: Sequence[CreateSet | ReplaceSet],
        outlook: Outlook,
    ) -> list[Action]:
        """Return one of the three in one pass: the next begins with what this one wrote, and people wait for the
        status."""
        return self._finalize(topic, sets, writes) or self._describe(topic, sets, outlook) or self._confirm(topic, sets)

    def _place(self, topic: Topic, sets: Sequence[PartitionSet], others: Load) -> _Placed | None:
        """Return places for the partitions that have none; None where it is too early to decide."""
        missing = missing_partitions(topic, sets)
        if not missing:
            return _Placed()
        if self._observed.in_state(BrokerState.UNPROVEN):
            # The first broker that has proved itself must not get everything: the others follow in a moment.
            return None
        doubtful = doubtful_partitions(topic, sets)
        found = reclaim(topic, sets, doubtful, self._claims, self._observed) if doubtful else Reclaimed()
        if found is None:
            return None
        if isinstance(found, Withheld):
            return _Placed(withheld=found)
        new = [partition for partition in missing if partition not in found.partitions]
        own = [*(state.replicas for state in _states(sets)), *(state.replicas for state in found.states)]
        seated = seat_new(topic, own, new, self._observed, others)
        too_few = seated if isinstance(seated, TooFewBrokers) else None
        states = [*found.states, *(seated if not isinstance(seated, TooFewBrokers) else ())]
        changed = placed_in(topic, sets, states)
        return _Placed(tuple(_write_of(each, sets, found) for each in changed), too_few)

    def _finalize(
        self, topic: Topic, sets: Sequence[PartitionSet], writes: Sequence[CreateSet | ReplaceSet]
    ) -> list[Action]:
        """Return `writes`, after the marks that the topic must have before there is data."""
        told = noted_or_told(topic)
        places = Places(max(_count(sets), told.seen), max(_count(_after(sets, writes)), told.begun))
        marked = keep_marks(topic, places) if sets or writes or told.begun > topic.places.begun else None
        return [marked, *writes] if marked else [*writes]

    def _confirm(self, topic: Topic, sets: Sequence[PartitionSet]) -> list[Action]:
        confirmed = confirm_places(topic, Places(_count(sets), _count(sets)))
        return [confirmed] if confirmed else []

    def _outlook(self, topic: Topic, tended: Tended | None = None, placed: _Placed | None = None) -> Outlook:
        unfinished = tended.unfinished if tended else Unfinished()
        too_few = placed.too_few if placed else None
        return Outlook(
            regressed=topic.uid in self._observed.regressed,
            too_few=too_few or (TooFewBrokers.of(topic, self._observed) if unfinished.too_few else None),
            unfinished=unfinished,
            withheld=placed.withheld if placed else None,
        )

    def _describe(self, topic: Topic, sets: Sequence[PartitionSet], outlook: Outlook) -> list[Action]:
        states = _states(sets)
        if not all(self._observed.knows_holders_of(state) for state in states):
            # An operator that has just started must not report partitions online, or offline, before it knows.
            return []
        patch = summarize(topic, states, self._observed, outlook, self._now_ms)
        return [patch] if patch else []


def _states(sets: Sequence[PartitionSet]) -> list[PartitionState]:
    return [state for partition_set in sets for state in partition_set.partitions]


def _count(sets: Sequence[PartitionSet]) -> int:
    """Return the number of partitions from 0 to the last one that has a place."""
    return max((state.id + 1 for state in _states(sets)), default=0)


def _after(sets: Sequence[PartitionSet], writes: Sequence[CreateSet | ReplaceSet]) -> list[PartitionSet]:
    """Return the sets as they are once `writes` have landed."""
    return [*{s.metadata.name: s for s in (*sets, *(write.set for write in writes))}.values()]


def _write_of(changed: PartitionSet, before: Sequence[PartitionSet], found: Reclaimed) -> CreateSet | ReplaceSet:
    """Return the write of `changed`, which holds partitions that no set held `before`."""
    added = [state for state in changed.partitions if all(state not in each.partitions for each in before)]
    adopted = [state.id for state in added if state.id in found.adopted]
    if adopted and found.claimed is not None:
        changed = changed.adopting(found.claimed, adopted)
    reason, notices = f"place {len(added)} partitions", found.notices(added)
    if any(each.metadata.name == changed.metadata.name for each in before):
        return ReplaceSet(changed, reason, notices)
    return CreateSet(changed, reason, notices)


def _joined(tended: Sequence[ReplaceSet], placed: Sequence[CreateSet | ReplaceSet]) -> list[CreateSet | ReplaceSet]:
    """Return one write per set: those in `placed` begin with what stands in `tended`."""
    first = {write.set.metadata.name: write for write in tended}
    joined: list[CreateSet | ReplaceSet] = []
    for write in placed:
        before = first.pop(write.set.metadata.name, None)
        joined.append(write if before is None else _both(before, write))
    return [*first.values(), *joined]


def _both(before: ReplaceSet, write: CreateSet | ReplaceSet) -> ReplaceSet:
    """Return the write with both; `write` begins with what stands in `before`."""
    reason, notices = f"{before.reason}; {write.reason}", (*before.notices, *write.notices)
    return replace(before, set=write.set, reason=reason, notices=notices)


def _placed(sets: Sequence[PartitionSet]) -> list[Replicas]:
    return [state.target for state in _states(sets)]
