"""`plan(desired, observed, now_ms)`: what to do next, for every topic of this cluster. Pure and level-triggered.

It looks at full state only, so it does not matter what was seen before, what was done before, or where a predecessor
died: whatever is missing is planned, what is there is not, and where nothing is missing the plan is empty. Writes that
change what stands in PartitionSets come in one pass, the status that describes them in the next, which sees them: a
status never promises what has not landed.

Order within a topic: sets of a dead namesake go first (a topic that was deleted and created again), then the finalizer
(no data without it), then seats. Topics come in the order of their names, so that placing them again after half a pass
gives the same seats.
"""

from collections import defaultdict
from collections.abc import Sequence

from headrace.core.control.actions import Action, CreateSet, DeleteOrphanSet, ReplaceSet, TopicPlan
from headrace.core.control.deletion import delete_topic, keep_finalizer
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.placing import TooFewBrokers, missing_partitions, place
from headrace.core.control.status import pause, summarize
from headrace.core.placement.spread import Load, Replicas
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
from headrace.core.types import PartitionId, TopicName, TopicUid


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

    def plan_topic(self, topic: Topic) -> list[Action]:
        sets = self._sets[topic.uid]
        if topic.metadata.deletion_timestamp is not None:
            return delete_topic(topic, sets, overdue=topic.uid in self._observed.overdue)
        if topic.paused:
            paused = pause(topic, self._now_ms)
            return [paused] if paused else []
        return self._maintain(topic, sets)

    def _maintain(self, topic: Topic, sets: Sequence[PartitionSet]) -> list[Action]:
        missing = missing_partitions(topic, sets)
        writes: Sequence[CreateSet | ReplaceSet] | TooFewBrokers = ()
        # Followers come with replication, adoption with the brokers' reports; what is placed stays as it is.
        if missing and topic.spec.replicas == 1 and (sets or not topic.adopts):
            if self._observed.in_state(BrokerState.UNPROVEN):
                return []  # the first that has proved itself must not get everything: the others follow in a moment
            writes = self._place(topic, sets, missing)
        too_few = writes if isinstance(writes, TooFewBrokers) else None
        actions: list[Action] = list(writes) if not isinstance(writes, TooFewBrokers) else []
        finalizer = keep_finalizer(topic) if sets or actions else None
        if finalizer:
            actions.insert(0, finalizer)
        return actions or self._describe(topic, sets, too_few)

    def _place(
        self, topic: Topic, sets: Sequence[PartitionSet], missing: Sequence[PartitionId]
    ) -> Sequence[CreateSet | ReplaceSet] | TooFewBrokers:
        own = Load.of(_placed(sets))
        writes = place(topic, sets, missing, self._observed, self._load.without(own))
        if not isinstance(writes, TooFewBrokers):
            new = set(missing)
            states = (state for write in writes for state in write.set.partitions)
            self._load.add_all(state.replicas for state in states if state.id in new)
        return writes

    def _describe(self, topic: Topic, sets: Sequence[PartitionSet], too_few: TooFewBrokers | None) -> list[Action]:
        states = [state for partition_set in sets for state in partition_set.partitions]
        if not all(self._observed.knows_holders_of(state) for state in states):
            return []  # an operator that has just started must not call partitions online, or offline, on hearsay
        patch = summarize(topic, states, self._observed, too_few, self._now_ms)
        return [patch] if patch else []


def _placed(sets: Sequence[PartitionSet]) -> list[Replicas]:
    return [state.replicas for partition_set in sets for state in partition_set.partitions]
