"""What the states of all partitions add up to, for people who ask how a cluster is. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from headrace.core.resources.partition_set import PartitionState
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId, Seat


@dataclass(frozen=True, slots=True)
class Census:
    partitions: int
    offline: int
    """Without a leader that lives."""
    under_replicated: int
    """With a replica that is not in sync, or does not live."""
    leaders: Mapping[BrokerId, int]
    """Partitions that each broker leads; a broker that has none may be missing."""
    replicas: Mapping[BrokerId, int]


def census(states: Iterable[PartitionState], live: Collection[Seat]) -> Census:
    """`live` are brokers in their present life, those that drain included."""
    known = list(states)
    return Census(
        partitions=len(known),
        offline=sum(state.leader not in live for state in known),
        under_replicated=sum(len([seat for seat in state.isr if seat in live]) < len(state.target) for state in known),
        leaders=Counter(state.leader.broker for state in known if state.leader is not None and state.leader in live),
        replicas=Counter(broker for state in known for broker in state.replicas),
    )
