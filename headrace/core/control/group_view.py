"""What the planner looks at for consumer groups: the groups as their watch tells them, and the rest as the last pass of
the reconcile loop has read it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.control.announcing import named_brokers
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.groups.identity import OFFSETS_TOPIC, TopicShape, coordinator_partition
from headrace.core.limits import OFFSETS_PARTITIONS
from headrace.core.resources.consumer_group import ConsumerGroup, GroupType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import PartitionId

Shapes = Mapping[str, Mapping[str, TopicShape]]
"""By namespace and name."""


def coordinated_in(groups: Iterable[ConsumerGroup], cluster: str) -> list[ConsumerGroup]:
    """Those that have offsets in the internal topic of this cluster, or may have."""
    return [each for each in groups if each.spec.cluster == cluster and each.spec.type is GroupType.CONSUMER]


@dataclass(frozen=True, slots=True)
class GroupView:
    groups: Sequence[ConsumerGroup]
    """Of all clusters."""
    topics: Sequence[Topic]
    """Of all clusters."""
    observed: Observed
    home: str
    """The namespace of the internal topic."""
    settled: bool = True
    """Whether the reconcile loop had nothing to do about what it saw: what is offline now has no better leader."""
    resting: Collection[str] = ()
    """The uids of groups that need no look."""
    waited: Collection[str] = ()
    """The uids of groups whose turn did not come in the last pass."""

    @property
    def ours(self) -> list[ConsumerGroup]:
        return [group for group in self.groups if group.spec.cluster == self.observed.cluster]

    @property
    def coordinated(self) -> list[ConsumerGroup]:
        """Those that need the internal topic."""
        return coordinated_in(self.groups, self.observed.cluster)

    @property
    def offsets_topic(self) -> Topic | None:
        """Whatever has its name, of whatever cluster."""
        named = (topic for topic in self.topics if topic.full_name == (self.home, OFFSETS_TOPIC))
        return next(named, None)

    def shapes(self) -> Shapes:
        """What groups may read: the topics of this cluster."""
        found: dict[str, dict[str, TopicShape]] = defaultdict(dict)
        for topic in self.topics:
            if topic.spec.cluster == self.observed.cluster:
                shape = TopicShape(topic.uid, topic.spec.partitions)
                found[topic.metadata.namespace][topic.metadata.name] = shape
        return found


@dataclass(frozen=True, slots=True)
class Coordinators:
    """Who leads the partitions of the internal topic, made for one pass."""

    topic: Topic | None
    """None: there is none that this cluster could use."""
    partitions: int
    states: Mapping[PartitionId, PartitionState]
    led: Collection[PartitionId]
    missing: str
    """Why there is no topic; empty where there is."""

    @classmethod
    def of(cls, view: GroupView) -> "Coordinators":
        topic = view.offsets_topic
        if topic is None or topic.spec.cluster != view.observed.cluster:
            return cls(None, OFFSETS_PARTITIONS, {}, (), _missing(topic, view))
        sets = (each for each in view.observed.sets if each.topic_uid == topic.uid)
        states = {state.id: state for each in sets for state in each.partitions}
        led = frozenset(state.id for state in states.values() if view.observed.holds(state.leader))
        # Somebody may have made the topic before, with fewer; of more, only so many count.
        return cls(topic, min(topic.spec.partitions, OFFSETS_PARTITIONS), states, led, "")

    def trouble(self, group: ConsumerGroup) -> str:
        """Why the group has no coordinator, and what to do; empty where it has one."""
        if self.topic is None:
            return self.missing
        partition = coordinator_partition(group.name, self.partitions)
        if partition in self.led:
            return ""
        state = self.states.get(partition)
        if state is None:
            return f"{OFFSETS_TOPIC}/{partition} stands on no broker yet: the conditions of that topic say why"
        brokers = named_brokers(state.replicas)
        return f"{OFFSETS_TOPIC}/{partition} has no live leader: its replicas are on {brokers}, start them"


def _missing(topic: Topic | None, view: GroupView) -> str:
    if topic is not None:
        return (
            f"topic {view.home}/{OFFSETS_TOPIC} belongs to cluster {topic.spec.cluster}, and this one needs its own:"
            " delete that topic, or run the two clusters in different namespaces"
        )
    if not view.observed.in_state(BrokerState.READY):
        return f"{OFFSETS_TOPIC} cannot be made before a broker is ready: start one"
    return f"{OFFSETS_TOPIC} is about to be made"
