"""What the planner looks at for consumer groups: the groups as their watch tells them, and the rest as the last pass of
the reconcile loop has read it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from headrace.core.control.announcing import named_brokers
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.groups.identity import OFFSETS_TOPIC, TopicShape, coordinator_partition
from headrace.core.limits import OFFSETS_PARTITIONS
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.topic import Topic
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId, PartitionId

_LOST = (
    f"topic {OFFSETS_TOPIC}, or what tells of it, cannot be read or is being deleted: mend what the operator's log"
    " names as left out"
)
Shapes = Mapping[str, Mapping[str, TopicShape]]
"""By namespace and name."""


def coordinated_in(groups: Iterable[ConsumerGroup], cluster: str) -> list[ConsumerGroup]:
    """Those that have offsets in the internal topic of this cluster, or may have."""
    return [each for each in groups if each.spec.cluster == cluster]


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
    is_whole: bool = True
    """Whether everything that is there could be read."""

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

    partitions: int
    replicas: Mapping[PartitionId, tuple[BrokerId, ...]]
    led: Collection[PartitionId]
    missing: str = ""
    """Why there is no topic that this cluster can use; empty where there is."""
    may_be_kept: bool = True
    """Whether brokers may have anything of a group: not where the topic was never made."""

    @classmethod
    def of(cls, view: GroupView) -> "Coordinators":
        topic = view.offsets_topic
        if topic is None or topic.spec.cluster != view.observed.cluster:
            lost = topic is None and (not view.is_whole or _is_placed(view))
            return cls(OFFSETS_PARTITIONS, {}, (), _LOST if lost else _missing(topic, view), may_be_kept=lost)
        sets = (each for each in view.observed.sets if each.topic_uid == topic.uid)
        states = {state.id: state for each in sets for state in each.partitions}
        led = frozenset(state.id for state in states.values() if view.observed.holds(state.leader))
        # Somebody may have made the topic before, with fewer; of more, only so many count.
        replicas = {state.id: state.replicas for state in states.values()}
        return cls(min(topic.spec.partitions, OFFSETS_PARTITIONS), replicas, led)

    @property
    def are_complete(self) -> bool:
        """Whether no group of this cluster is without one."""
        return len(self.led) >= self.partitions

    def trouble(self, group: ConsumerGroup) -> str:
        """Why the group has no coordinator, and what to do; empty where it has one."""
        if self.missing:
            return self.missing
        partition = coordinator_partition(group.name, self.partitions)
        if partition in self.led:
            return ""
        replicas = self.replicas.get(partition)
        if replicas is None:
            return f"{OFFSETS_TOPIC}/{partition} stands on no broker yet: the conditions of that topic say why"
        brokers = named_brokers(replicas)
        return f"{OFFSETS_TOPIC}/{partition} has no live leader: its replicas are on {brokers}, start them"


def _is_placed(view: GroupView) -> bool:
    """Whether PartitionSets of the internal topic are left."""
    return any(each.metadata.namespace == view.home and each.topic == OFFSETS_TOPIC for each in view.observed.sets)


def _missing(topic: Topic | None, view: GroupView) -> str:
    if topic is not None:
        return (
            f"topic {view.home}/{OFFSETS_TOPIC} belongs to cluster {topic.spec.cluster}, and this one needs its own:"
            " delete that topic, or run the two clusters in different namespaces"
        )
    if not view.observed.in_state(BrokerState.READY):
        return f"{OFFSETS_TOPIC} cannot be made before a broker is ready: start one"
    return f"{OFFSETS_TOPIC} is about to be made"
