"""A Topic's status: a summary of its PartitionSets and of who is alive, written by the operator alone.

`leaders` counts partitions whose leader is a live broker in its present life, `inSync` the ISR seats of which the same
is true. Messages depend on nothing but that state, so that looking again never changes them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headrace.core.control.actions import PatchStatus
from headrace.core.control.conditions import Condition, ConditionType, by_type, notices, render
from headrace.core.control.observed import Observed
from headrace.core.control.placing import TooFewBrokers
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import ADOPT_ANNOTATION, PAUSED_ANNOTATION, Topic

_LISTED_MAX = 10
"""Partitions that a message names; the rest is counted."""


def summarize(
    topic: Topic,
    states: Sequence[PartitionState],
    observed: Observed,
    too_few: TooFewBrokers | None,
    now_ms: int,
) -> PatchStatus | None:
    """The patch that makes the status true, or None where it is; `now_ms` is wall time, for `lastTransitionTime`."""
    offline = [state for state in states if not observed.holds(state.leader)]
    lagging = [state for state in states if _in_sync(state, observed) < len(state.replicas)]
    unplaced = _unplaced_message(topic, states)
    conditions = (
        _ready(topic, states, offline, too_few),
        _under_replicated(lagging, unplaced),
        _offline(offline, unplaced),
        _reassigning(states),
        Condition.off(ConditionType.PAUSED, "NotPaused"),
    )
    wanted = topic.spec.partitions
    online = [state.leader.broker for state in states if state.leader is not None and observed.holds(state.leader)]
    summary = {
        "observedGeneration": topic.metadata.generation,
        "minInsyncReplicas": topic.spec.min_insync_replicas,
        "leaders": f"{len(online)}/{wanted}",
        "inSync": f"{sum(_in_sync(state, observed) for state in states)}/{wanted * topic.spec.replicas}",
        "leadersByBroker": " ".join(f"{broker}:{count}" for broker, count in sorted(Counter(online).items())),
    }
    return _patch(topic, summary, conditions, now_ms)


def pause(topic: Topic, now_ms: int) -> PatchStatus | None:
    """Paused=True beside whatever the status said before; None where it says so already."""
    message = f"annotation {PAUSED_ANNOTATION} is set: the operator leaves this topic alone until it is removed"
    return _patch(topic, {}, (Condition.on(ConditionType.PAUSED, "PausedByAnnotation", message),), now_ms)


def _patch(topic: Topic, summary: dict[str, Any], conditions: Sequence[Condition], now_ms: int) -> PatchStatus | None:
    previous = by_type(topic.status.get("conditions") or ())
    written = [render(condition, previous, topic.metadata.generation, now_ms) for condition in conditions]
    # Whole lists are replaced by a merge patch: conditions that are not ours to change now are kept.
    names = {condition["type"] for condition in written}
    kept = [dict(condition) for name, condition in previous.items() if name not in names]
    status = {**summary, "conditions": [*kept, *written]}
    if all(topic.status.get(name) == value for name, value in status.items()):
        return None
    return PatchStatus(topic, status, "what is observed has changed", notices(conditions, previous))


def _ready(
    topic: Topic, states: Sequence[PartitionState], offline: Sequence[PartitionState], too_few: TooFewBrokers | None
) -> Condition:
    replicas = topic.spec.replicas
    if replicas > 1:
        message = (
            f"spec.replicas is {replicas}, but replication is not available yet: this version keeps one replica of"
            " each partition; set spec.replicas to 1"
        )
        return Condition.off(ConditionType.READY, "ReplicationNotAvailable", message)
    if topic.adopts and not states:
        message = (
            f"annotation {ADOPT_ANNOTATION} is set, but adopting data is not available yet; the topic is not placed, as"
            " it would begin empty, and the data is kept where it is: remove the annotation to begin empty"
        )
        return Condition.off(ConditionType.READY, "AdoptionNotAvailable", message)
    if too_few is not None:
        message = (
            f"spec.replicas is {too_few.needed}, which needs as many brokers that are live and not draining, and there"
            f" are {too_few.ready} of {too_few.known}: start more brokers (scale the StatefulSet) or wait for them"
        )
        return Condition.off(ConditionType.READY, "InsufficientBrokers", message)
    if offline:
        return Condition.off(ConditionType.READY, "PartitionsOffline", _offline_message(offline))
    return Condition.on(ConditionType.READY, "AllPartitionsOnline")


def _unplaced_message(topic: Topic, states: Sequence[PartitionState]) -> str:
    """Empty where every partition has its place."""
    wanted = topic.spec.partitions
    missing = wanted - len(states)
    return (
        f"{missing} of {wanted} partitions stand on no broker yet: the condition Ready says why" if missing > 0 else ""
    )


def _under_replicated(lagging: Sequence[PartitionState], unplaced: str) -> Condition:
    if lagging:
        message = f"{_named(lagging)}: a replica is not in sync"
        return Condition.on(ConditionType.UNDER_REPLICATED, "ReplicasNotInSync", message)
    if unplaced:
        return Condition.on(ConditionType.UNDER_REPLICATED, "NotPlaced", unplaced)
    return Condition.off(ConditionType.UNDER_REPLICATED, "AllReplicasInSync")


def _offline(offline: Sequence[PartitionState], unplaced: str) -> Condition:
    if offline:
        return Condition.on(ConditionType.OFFLINE, "NoLiveLeader", _offline_message(offline))
    if unplaced:
        return Condition.on(ConditionType.OFFLINE, "NotPlaced", unplaced)
    return Condition.off(ConditionType.OFFLINE, "AllPartitionsOnline")


def _reassigning(states: Sequence[PartitionState]) -> Condition:
    moving = [state for state in states if state.adding or state.removing]
    if moving:
        return Condition.on(ConditionType.REASSIGNING, "ReplicasMoving", f"{_named(moving)}: replicas are moving")
    return Condition.off(ConditionType.REASSIGNING, "NothingMoving")


def _offline_message(offline: Sequence[PartitionState]) -> str:
    holders = sorted({broker for state in offline for broker in state.replicas})
    brokers = ", ".join(map(str, holders)) or "none"
    return f"{_named(offline)}: no live leader; the replicas are on these brokers, start them: {brokers}"


def _named(states: Sequence[PartitionState]) -> str:
    ids = [str(state.id) for state in states]
    shown = ", ".join(ids[:_LISTED_MAX])
    more = f" and {len(ids) - _LISTED_MAX} more" if len(ids) > _LISTED_MAX else ""
    return f"partitions {shown}{more}" if len(ids) > 1 else f"partition {shown}"


def _in_sync(state: PartitionState, observed: Observed) -> int:
    return sum(observed.holds(member) for member in state.isr)
