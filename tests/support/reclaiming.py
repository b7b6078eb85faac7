"""Data of topics that brokers hold without a PartitionSet, and what becomes of it."""

from typing import Any

from headrace.core.control.broker_reports import HeldLog
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from tests.support.control import ModelApi, brokers, topic

UID, OLD = TopicUid("uid-flights"), TopicUid("0f6c0000-1111-2222-3333-444455556666")
CLAIM = {"headrace.io/adopt-uid": OLD}


def log(epoch: int, end: int, **more: Any) -> HeldLog:
    fields: dict[str, Any] = {"set_aside": True, "namespace": "default", "seen_epoch": LeaderEpoch(epoch), **more}
    return HeldLog(LeaderEpoch(epoch), Offset(end), **fields)


def hold(api: ModelApi, broker: int, partition: int, log: HeldLog, uid: TopicUid = UID) -> None:
    api.held.setdefault(BrokerId(broker), {})[PartitionKey(uid, PartitionId(partition))] = log


def claiming(count: int = 3, **changes: Any) -> ModelApi:
    """A topic of one partition on each of three replicas that claims data."""
    spec: dict[str, Any] = {"partitions": 1, "replicas": 3, **changes}
    return ModelApi.of([topic(metadata={"annotations": CLAIM}, **spec)], brokers(count))


def placed_before(partitions: int = 1, **spec: Any) -> ModelApi:
    """A topic whose sets somebody deleted."""
    api = ModelApi.of([topic(partitions=partitions, **{"replicas": 3, **spec})], brokers(3))
    api.settle()
    api.sets.clear()
    return api


def states(api: ModelApi) -> list[PartitionState]:
    return [state for _, found in sorted(api.sets.items()) for state in found.partitions]


def ready(api: ModelApi, uid: str = UID) -> tuple[str, str]:
    condition = api.condition(uid, "Ready")
    return condition["reason"], condition["message"]
