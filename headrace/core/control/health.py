"""How many partitions are not as they should be, by the names that Kafka users alert on. Pure; for metrics.

The same rules as the conditions of each topic (`status`); topics of other clusters do not count.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.control.observed import Observed
from headrace.core.control.status import in_sync, is_under_min_isr
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Topic, TopicSpec


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
