"""How many partitions and brokers are not as they should be, by the names that Kafka users alert on. Pure; for metrics.

The same rules as the conditions of each topic (`status`); topics of other clusters do not count.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum

from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.control.status import in_sync, is_under_min_isr
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId


class Standing(StrEnum):
    """A broker's state, where the planner's `Lost` is told apart by whether anybody misses it: Leases stay for ever."""

    READY = BrokerState.READY
    UNPROVEN = BrokerState.UNPROVEN
    DRAINING = BrokerState.DRAINING
    LOST = BrokerState.LOST
    STOPPED = "Stopped"
    """Cleanly; it is to come back."""
    GONE = "Gone"
    """For good: nobody asks for it, and it has stopped cleanly or no partition names it."""


def standings(observed: Observed) -> Counter[Standing]:
    """How many brokers there are of each."""
    named = {broker for found in observed.sets for state in found.partitions for broker in state.replicas}
    return Counter(_standing(broker, observed, named) for broker in observed.brokers.values())


def _standing(broker: Broker, observed: Observed, named: Collection[BrokerId]) -> Standing:
    if broker.state is not BrokerState.LOST:
        return Standing(broker.state)
    if broker.clean:
        return Standing.STOPPED if broker.id in observed.expected else Standing.GONE
    return Standing.GONE if broker.id in observed.leaving and broker.id not in named else Standing.LOST


@dataclass(frozen=True, slots=True)
class Health:
    topics: int = 0
    partitions: int = 0
    offline: int = 0
    """Without a live leader."""
    under_replicated: int = 0
    under_min_isr: int = 0
    """`acks=all` is refused, or would be."""
    reassigning: int = 0
    not_preferred: int = 0
    """Led by another than their preferred leader."""

    @classmethod
    def of(cls, topics: Iterable[Topic], observed: Observed) -> "Health":
        ours = {topic.uid: topic.spec for topic in topics if topic.spec.cluster == observed.cluster}
        known = [(ours[s.topic_uid], state) for s in observed.sets if s.topic_uid in ours for state in s.partitions]
        return cls(
            topics=len(ours),
            partitions=len(known),
            offline=sum(not observed.holds(state.leader) for _, state in known),
            under_replicated=sum(in_sync(state, observed) < spec.replicas for spec, state in known),
            under_min_isr=sum(_is_under_min_isr(spec, state, observed) for spec, state in known),
            reassigning=sum(bool(state.adding or state.removing) for _, state in known),
            not_preferred=sum(_is_not_preferred(state) for _, state in known),
        )


def _is_under_min_isr(spec: TopicSpec, state: PartitionState, observed: Observed) -> bool:
    return is_under_min_isr(state, spec.min_insync_replicas, observed)


def _is_not_preferred(state: PartitionState) -> bool:
    return state.leader is not None and state.target[:1] != (state.leader.broker,)
