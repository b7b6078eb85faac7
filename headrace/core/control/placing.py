"""Seats for partitions that have none: new topics, and topics that grow. What is placed already is left alone.

Of partitions that are not new, brokers may hold data: `reclaiming` says how those are placed. A new partition is led by
the first of its replicas, in that broker's present life, from leader epoch 1. At most PARTITIONS_PER_SET_MAX partitions
stand in one PartitionSet; which, `set_name` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.placement.spread import Candidate, Load, Replicas, spread
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.metadata import API_VERSION, Metadata, OwnerReference
from headrace.core.resources.partition_set import PartitionSet, PartitionState, set_name
from headrace.core.resources.topic import Topic
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId


@dataclass(frozen=True, slots=True)
class TooFewBrokers:
    """The partitions that are missing cannot be placed now."""

    needed: int
    ready: int
    """Brokers that could be given partitions."""
    known: int

    @classmethod
    def of(cls, topic: Topic, observed: Observed) -> "TooFewBrokers":
        return cls(topic.spec.replicas, sum(map(observed.is_open_to, observed.brokers)), len(observed.brokers))


def missing_partitions(topic: Topic, sets: Iterable[PartitionSet]) -> list[PartitionId]:
    """The partitions that the topic asks for and that no set holds, in order."""
    placed = {state.id for partition_set in sets for state in partition_set.partitions}
    return [PartitionId(p) for p in range(topic.spec.partitions) if p not in placed]


def seat_new(
    topic: Topic, own: Iterable[Replicas], new: Sequence[PartitionId], observed: Observed, others: Load
) -> list[PartitionState] | TooFewBrokers:
    """Seats for each of `new`; `own` is where the topic's other partitions stand, `others` the rest of the load."""
    ready = [broker for broker in observed.in_state(BrokerState.READY) if observed.is_open_to(broker.id)]
    needed = topic.spec.replicas
    if not new:
        return []
    if len(ready) < needed:
        return TooFewBrokers.of(topic, observed)
    candidates = [Candidate(broker.id, broker.zone) for broker in ready]
    placed = spread(len(new), needed, candidates, own=own, others=others)
    seats = {broker.id: broker for broker in ready}
    return [_seated(partition, replicas, seats) for partition, replicas in zip(new, placed, strict=True)]


def placed_in(topic: Topic, sets: Iterable[PartitionSet], states: Sequence[PartitionState]) -> list[PartitionSet]:
    """The topic's sets with `states`, none of which they hold, in those that they belong to; without the others."""
    existing = {partition_set.metadata.name: partition_set for partition_set in sets}
    changed = []
    by_id = sorted(states, key=lambda state: state.id)
    for name, group in groupby(by_id, key=lambda state: set_name(topic.metadata.name, state.id)):
        found = existing.get(name) or _new_set(topic, name)
        whole = sorted((*found.partitions, *group), key=lambda state: state.id)
        changed.append(replace(found, partitions=tuple(whole)))
    return changed


def _seated(partition: PartitionId, replicas: Replicas, brokers: Mapping[BrokerId, Broker]) -> PartitionState:
    isr = tuple(brokers[broker].seat for broker in replicas)
    return PartitionState(
        id=partition,
        leader=isr[0],
        leader_epoch=LeaderEpoch(1),
        partition_epoch=PartitionEpoch(1),
        replicas=replicas,
        isr=isr,
    )


def _new_set(topic: Topic, name: str) -> PartitionSet:
    owner = OwnerReference(API_VERSION, "Topic", topic.metadata.name, topic.uid)
    metadata = Metadata(name, topic.metadata.namespace, labels={CLUSTER_LABEL: topic.spec.cluster}, owners=(owner,))
    return PartitionSet(metadata, topic.metadata.name, topic.uid, ())
