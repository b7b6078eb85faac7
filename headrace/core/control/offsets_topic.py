"""The internal topic, in which coordinators keep what they know of groups: that it is there, and as it must be.

    nobody has groups ──> it is not made
    a ConsumerGroup of type Consumer, brokers that take data ──> created
    edited ──> put back, with an Event; the number of its replicas follows that of the brokers, and never falls
    deleted ──> served as ever, and says so (a finalizer, as Kubernetes' own for volumes that are in use); it goes with
                the last group

What cannot be put back (its partitions, its cluster) the condition InUse tells. Pure and level-triggered: one write in
one pass.
"""

from collections.abc import Mapping
from typing import Any

from headrace.core.control.actions import Notice, PatchStatus
from headrace.core.control.conditions import Condition, by_type, render
from headrace.core.control.group_actions import CreateTopic, PatchTopic, ReleaseTopic, TopicAction
from headrace.core.control.group_view import GroupView
from headrace.core.control.keeping import Needs, kept, label_of, ready_brokers
from headrace.core.control.observed import Observed
from headrace.core.groups.identity import OFFSETS_TOPIC
from headrace.core.limits import INTERNAL_REPLICAS_MAX, OFFSETS_MESSAGE_BYTES, OFFSETS_PARTITIONS, OFFSETS_SEGMENT_BYTES
from headrace.core.resources.conditions import ConditionType
from headrace.core.resources.internal_topics import internal_manifest, quantity
from headrace.core.resources.topic import (
    IN_USE_FINALIZER,
    CleanupPolicy,
    Topic,
)

_NEEDS = Needs(
    whose="consumer groups depend on it",
    cleanup_policy=CleanupPolicy.COMPACT,
    message_bytes=OFFSETS_MESSAGE_BYTES,
    segment_bytes=OFFSETS_SEGMENT_BYTES,
    why={
        "cleanupPolicy": "old records are what groups know",
        "maxMessageBytes": "an assignment is one batch",
        "deletionPolicy": "the groups' offsets stay when somebody deletes it",
        "segment": "a new coordinator reads all of one",
        "uncleanLeaderElection": "offsets that were committed would be lost",
        "partitions": "groups belong to one of these",
    },
)


def plan_offsets_topic(view: GroupView, now_ms: int) -> TopicAction | None:
    """What to do next about it; `now_ms` is wall time, for conditions."""
    topic = view.offsets_topic
    if topic is None:
        return _create(view)
    if topic.spec.cluster != view.observed.cluster or topic.paused or topic.is_going:
        return None
    if not view.coordinated:
        return _let_go(topic)
    # While the topic's own status is being written, this would only get into its way.
    return _keep(topic, view.observed) or (_tell(topic, now_ms) if view.settled else None)


def _create(view: GroupView) -> CreateTopic | None:
    brokers = ready_brokers(view.observed)
    if brokers == 0 or all(group.deleting for group in view.coordinated):
        return None
    spec = {
        "partitions": OFFSETS_PARTITIONS,
        "replicas": min(INTERNAL_REPLICAS_MAX, brokers),
        "cleanupPolicy": CleanupPolicy.COMPACT.value,
        "maxMessageBytes": quantity(OFFSETS_MESSAGE_BYTES),
        "segment": {"bytes": quantity(OFFSETS_SEGMENT_BYTES)},
    }
    manifest = internal_manifest(OFFSETS_TOPIC, view.home, view.observed.cluster, spec, (IN_USE_FINALIZER,))
    return CreateTopic(manifest, "there are consumer groups")


def _let_go(topic: Topic) -> ReleaseTopic | None:
    finalizers = tuple(name for name in topic.metadata.finalizers if name != IN_USE_FINALIZER)
    if topic.metadata.deletion_timestamp is None or len(finalizers) == len(topic.metadata.finalizers):
        return None
    return ReleaseTopic(topic, finalizers, "no group has offsets in it any more")


def _keep(topic: Topic, observed: Observed) -> PatchTopic | None:
    """The write that puts back what somebody has changed, and raises the replicas."""
    metadata = _marks(topic)
    wanted = OFFSETS_PARTITIONS if "labels" in metadata else topic.spec.partitions
    return kept(topic, _NEEDS, observed, metadata, max(wanted, topic.spec.partitions))


def _marks(topic: Topic) -> dict[str, Any]:
    """Its label and finalizer, where they are missing; Kubernetes adds no finalizer to what is being deleted."""
    marks = label_of(topic)
    if IN_USE_FINALIZER not in topic.metadata.finalizers:
        marks["finalizers"] = [*topic.metadata.finalizers, IN_USE_FINALIZER]
    return marks


def _tell(topic: Topic, now_ms: int) -> PatchStatus | None:
    """The condition InUse, beside the others."""
    conditions = topic.status.get("conditions") or ()
    previous = by_type(conditions)
    condition = _in_use(topic)
    written = render(condition, previous, topic.metadata.generation, now_ms)
    if previous.get(condition.type) == written:
        return None
    kept = [dict(each) for each in conditions if each.get("type") != condition.type.value]
    status = {"conditions": [written, *kept]}  # in the order in which the topic's own status keeps it
    return PatchStatus(topic, status, f"InUse is {condition.reason}", _notices(condition, previous))


def _in_use(topic: Topic) -> Condition:
    if topic.metadata.deletion_timestamp is not None:
        message = (
            "somebody has asked for its deletion; it is served as ever, and goes with the last consumer group: delete"
            " the ConsumerGroups first"
        )
        return Condition.on(ConditionType.IN_USE, "DeletionWaits", message)
    if topic.spec.partitions != OFFSETS_PARTITIONS:
        message = (
            f"it has {topic.spec.partitions} partitions, not {OFFSETS_PARTITIONS}, and they cannot be changed while"
            f" groups have offsets in it: the first {min(topic.spec.partitions, OFFSETS_PARTITIONS)} are used"
        )
        return Condition.on(ConditionType.IN_USE, "OtherPartitions", message)
    return Condition.on(ConditionType.IN_USE, "HoldsOffsets", "coordinators keep members and offsets of groups in it")


def _notices(condition: Condition, previous: Mapping[str, Mapping[str, Any]]) -> tuple[Notice, ...]:
    before = previous.get(condition.type, {})
    if condition.reason == "HoldsOffsets" or before.get("reason") == condition.reason:
        return ()
    return (Notice(condition.reason, condition.message, warning=True),)
