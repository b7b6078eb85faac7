"""`plan(desired, observed, now_ms)`: what to do next, for every topic of this cluster. Pure and level-triggered.

It looks at full state only, so it does not matter what was seen before, what was done before, or where a predecessor
died: whatever is missing is planned, what is there is not, and where nothing is missing the plan is empty. Writes that
change what stands in PartitionSets come in one pass, the status that describes them in the next, which sees them: a
status never promises what has not landed.

Order within a topic: sets of a dead namesake go first (a topic that was deleted and created again), then the finalizer
(no data without it), then seats: elections and moves of what is placed together with places for what is not, one write
per set. A topic with `MetadataRegressed` is described and nothing else: its epochs went back, and whatever is written
on top of them would be lost, or lose, when they return. Topics come in the order of their names, so that placing them
again after half a pass gives the same seats.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from headrace.core.control.actions import Action, CreateSet, DeleteOrphanSet, ReplaceSet, TopicPlan
from headrace.core.control.changing import Budget
from headrace.core.control.deletion import delete_topic, keep_finalizer
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.placing import TooFewBrokers, missing_partitions, place
from headrace.core.control.reassigning import Unfinished
from headrace.core.control.status import Outlook, pause, summarize
from headrace.core.control.tending import Round, Tended, tend
from headrace.core.placement.spread import Load, Replicas
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import TopicName, TopicUid


def plan(desired: Sequence[Topic], observed: Observed, now_ms: int) -> tuple[TopicPlan, ...]:
    """Actions by topic, in the order of names. `desired` are all Topics; `now_ms` is wall time, for conditions."""
    planned: dict[TopicName, list[Action]] = defaultdict(list)
    uids = {topic.uid for topic in desired}
    for orphan in _orphans(uids, observed):
        planned[orphan.topic_name].append(DeleteOrphanSet(orphan, "its topic is gone"))
    ours = sorted((t for t in desired if t.spec.cluster == observed.cluster), key=lambda topic: topic.full_name)
    planner = _Planner(ours, observed, now_ms)
    for topic in ours:
        planned[topic.full_name] += planner.plan_topic(topic)
    return tuple(TopicPlan(name, tuple(actions)) for name, actions in sorted(planned.items()) if actions)


def _orphans(uids: set[TopicUid], observed: Observed) -> list[PartitionSet]:
    """Sets of this cluster whose topic, by uid, is not there any more."""
    ours = [s for s in observed.sets if s.metadata.labels.get(CLUSTER_LABEL) == observed.cluster]
    return sorted((s for s in ours if s.topic_uid not in uids), key=lambda s: (s.topic_name, s.metadata.name))


class _Planner:
    """One pass over the topics of a cluster: what it places for one counts as load for the next."""

    def __init__(self, topics: Sequence[Topic], observed: Observed, now_ms: int) -> None:
        self._observed = observed
        self._now_ms = now_ms
        self._sets: dict[TopicUid, list[PartitionSet]] = {topic.uid: [] for topic in topics}
        for partition_set in sorted(observed.sets, key=lambda s: s.metadata.name):
            if partition_set.topic_uid in self._sets:
                self._sets[partition_set.topic_uid].append(partition_set)
        # What is going is no load: else it would matter whether it has gone before the rest is placed, or after.
        staying = (topic for topic in topics if topic.metadata.deletion_timestamp is None)
        self._load = Load.of(replicas for topic in staying for replicas in _placed(self._sets[topic.uid]))
        self._budget = Budget.of((s for sets in self._sets.values() for s in _states(sets)), observed)

    def plan_topic(self, topic: Topic) -> list[Action]:
        sets = self._sets[topic.uid]
        if topic.metadata.deletion_timestamp is not None:
            return delete_topic(topic, sets, overdue=topic.uid in self._observed.overdue)
        if topic.paused:
            paused = pause(topic, self._now_ms)
            return [paused] if paused else []
        return self._maintain(topic, sets)

    def _maintain(self, topic: Topic, sets: Sequence[PartitionSet]) -> list[Action]:
        if topic.uid in self._observed.regressed:
            return self._finalize(topic, sets, []) or self._describe(topic, sets, self._outlook(topic))
        others = self._load.without(Load.of(_placed(sets)))
        tended = tend(topic.spec, sets, Round(self._observed, self._budget, others))
        placed = self._place(topic, _after(sets, tended.writes), others)
        writes = _joined(tended.writes, placed if not isinstance(placed, TooFewBrokers) else ())
        self._load = others.with_all(_placed(_after(sets, writes)))
        if placed is None:
            return [*writes]
        outlook = self._outlook(topic, tended, placed if isinstance(placed, TooFewBrokers) else None)
        return self._finalize(topic, sets, writes) or self._describe(topic, sets, outlook)

    def _place(
        self, topic: Topic, sets: Sequence[PartitionSet], others: Load
    ) -> Sequence[CreateSet | ReplaceSet] | TooFewBrokers | None:
        """Places for the partitions that have none; None where it is too early to tell."""
        missing = missing_partitions(topic, sets)
        if not missing or (topic.adopts and not sets):
            return ()  # adoption comes with the brokers' reports
        if self._observed.in_state(BrokerState.UNPROVEN):
            return None  # the first that has proved itself must not get everything: the others follow in a moment
        return place(topic, sets, missing, self._observed, others)

    def _finalize(
        self, topic: Topic, sets: Sequence[PartitionSet], writes: Sequence[CreateSet | ReplaceSet]
    ) -> list[Action]:
        """`writes`, after the finalizer without which there must be no data."""
        finalizer = keep_finalizer(topic) if sets or writes else None
        return [finalizer, *writes] if finalizer else [*writes]

    def _outlook(self, topic: Topic, tended: Tended | None = None, too_few: TooFewBrokers | None = None) -> Outlook:
        unfinished = tended.unfinished if tended else Unfinished()
        return Outlook(
            regressed=topic.uid in self._observed.regressed,
            too_few=too_few or (TooFewBrokers.of(topic, self._observed) if unfinished.too_few else None),
            unfinished=unfinished,
        )

    def _describe(self, topic: Topic, sets: Sequence[PartitionSet], outlook: Outlook) -> list[Action]:
        states = _states(sets)
        if not all(self._observed.knows_holders_of(state) for state in states):
            return []  # an operator that has just started must not call partitions online, or offline, on hearsay
        patch = summarize(topic, states, self._observed, outlook, self._now_ms)
        return [patch] if patch else []


def _states(sets: Sequence[PartitionSet]) -> list[PartitionState]:
    return [state for partition_set in sets for state in partition_set.partitions]


def _after(sets: Sequence[PartitionSet], writes: Sequence[CreateSet | ReplaceSet]) -> list[PartitionSet]:
    """The sets as they are once `writes` have landed."""
    return [*{s.metadata.name: s for s in (*sets, *(write.set for write in writes))}.values()]


def _joined(
    tended: Sequence[ReplaceSet], placed: Sequence[CreateSet | ReplaceSet] | None
) -> list[CreateSet | ReplaceSet]:
    """One write per set: those in `placed` begin with what stands in `tended`."""
    first = {write.set.metadata.name: write for write in tended}
    joined: list[CreateSet | ReplaceSet] = []
    for write in placed or ():
        before = first.pop(write.set.metadata.name, None)
        both = write if before is None else replace(before, set=write.set, reason=f"{before.reason}; {write.reason}")
        joined.append(both)
    return [*first.values(), *joined]


def _placed(sets: Sequence[PartitionSet]) -> list[Replicas]:
    return [state.target for state in _states(sets)]
