"""PartitionSets and Topics for tests: one line each, with defaults that a fresh placement has."""

from typing import Any

from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, PartitionEpoch, PartitionId, Seat, TopicUid


def seat(broker: int, incarnation: int = 1) -> Seat:
    return Seat(BrokerId(broker), Incarnation(incarnation))


def partition_state(partition: int = 0, leader: Seat | None = None, **changes: Any) -> PartitionState:
    """At replication factor 1: `leader` is the only replica and the ISR; without one, broker 0 in its first life is."""
    holder = leader or seat(0)
    fields: dict[str, Any] = {
        "leader": leader,
        "leader_epoch": LeaderEpoch(1),
        "partition_epoch": PartitionEpoch(1),
        "replicas": (holder.broker,),
        "isr": (holder,),
    }
    return PartitionState(id=PartitionId(partition), **{**fields, **changes})


def partition_set(
    *states: PartitionState, topic: str = "flights", uid: str = "uid-1", deleting: bool = False
) -> PartitionSet:
    metadata = Metadata(name=f"{topic}-0", namespace="default", resource_version="7")
    return PartitionSet(metadata, topic, TopicUid(uid), states, deleting)
