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
from headrace.core.control.conditions import Condition, ConditionType, by_type, render
from headrace.core.control.group_actions import CreateTopic, PatchTopic, ReleaseTopic, TopicAction
from headrace.core.control.group_view import GroupView
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.groups.identity import OFFSETS_TOPIC
from headrace.core.limits import INTERNAL_REPLICAS_MAX, OFFSETS_MESSAGE_BYTES, OFFSETS_PARTITIONS, OFFSETS_SEGMENT_BYTES
from headrace.core.resources.internal_topics import internal_manifest, quantity
from headrace.core.resources.topic import (
    IN_USE_FINALIZER,
    INTERNAL_LABEL,
    CleanupPolicy,
    DeletionPolicy,
    Topic,
    TopicSpec,
)

_RETAINED = "the groups' offsets stay when somebody deletes it"


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
    brokers = _ready(view.observed)
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


def _ready(observed: Observed) -> int:
    """Brokers that can be given data; 0 while it is not known of all of them."""
    if observed.in_state(BrokerState.UNPROVEN):
        return 0
    return sum(map(observed.is_open_to, observed.brokers))


def _let_go(topic: Topic) -> ReleaseTopic | None:
    finalizers = tuple(name for name in topic.metadata.finalizers if name != IN_USE_FINALIZER)
    if topic.metadata.deletion_timestamp is None or len(finalizers) == len(topic.metadata.finalizers):
        return None
    return ReleaseTopic(topic, finalizers, "no group has offsets in it any more")


def _keep(topic: Topic, observed: Observed) -> PatchTopic | None:
    """The write that puts back what somebody has changed, and raises the replicas."""
    spec, edits = _edits(topic.spec)
    replicas = min(INTERNAL_REPLICAS_MAX, _ready(observed))
    raised = {"replicas": replicas} if replicas > topic.spec.replicas else {}
    metadata = _marks(topic)
    if "labels" in metadata and topic.spec.partitions < OFFSETS_PARTITIONS:
        raised["partitions"] = OFFSETS_PARTITIONS
    if not spec and not raised and not metadata:
        return None
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if spec or raised:
        patch["spec"] = {**spec, **raised}
    notices = [Notice("Restored", f"consumer groups depend on it: {'; '.join(edits)}", warning=True)] if edits else []
    if "partitions" in raised:
        told = f"from {topic.spec.partitions} to {OFFSETS_PARTITIONS}, for good: groups belong to one of these"
        notices.append(Notice("PartitionsRaised", told))
    if "replicas" in raised:
        notices.append(Notice("ReplicasRaised", f"from {topic.spec.replicas} to {replicas}: as many as brokers"))
    return PatchTopic(topic, patch, "; ".join(notice.message for notice in notices) or "it is internal", (*notices,))


def _edits(spec: TopicSpec) -> tuple[dict[str, Any], list[str]]:
    """What must be otherwise, as a patch and in words."""
    patch, told = dict[str, Any](), list[str]()
    if spec.cleanup_policy is not CleanupPolicy.COMPACT:
        patch["cleanupPolicy"] = CleanupPolicy.COMPACT.value
        told.append(
            f"cleanupPolicy is Compact again, not {spec.cleanup_policy.value}: old records are what groups know"
        )
    if spec.max_message_bytes < OFFSETS_MESSAGE_BYTES:
        patch["maxMessageBytes"] = quantity(OFFSETS_MESSAGE_BYTES)
        told.append(f"maxMessageBytes is {patch['maxMessageBytes']} again: an assignment is one batch")
    if spec.deletion_policy is not DeletionPolicy.RETAIN:
        patch["deletionPolicy"] = DeletionPolicy.RETAIN.value
        told.append(f"deletionPolicy is Retain again: {_RETAINED}")
    if spec.segment_bytes > OFFSETS_SEGMENT_BYTES:
        patch["segment"] = {"bytes": quantity(OFFSETS_SEGMENT_BYTES)}
        told.append(f"segment.bytes is {quantity(OFFSETS_SEGMENT_BYTES)} again: a new coordinator reads all of one")
    return {**patch, **_safe(spec, told)}, told


def _safe(spec: TopicSpec, told: list[str]) -> dict[str, Any]:
    """That an acknowledged commit is not lost with one broker."""
    patch = dict[str, Any]()
    if spec.unclean_leader_election:
        patch["uncleanLeaderElection"] = False
        told.append("uncleanLeaderElection is false again: offsets that were committed would be lost")
    if spec.min_insync_replicas < max(1, spec.replicas - 1):
        patch["minInsyncReplicas"] = None
        told.append(f"minInsyncReplicas is not {spec.min_insync_replicas}, but one less than replicas")
    return patch


def _marks(topic: Topic) -> dict[str, Any]:
    """Its label and finalizer, where they are missing; Kubernetes adds no finalizer to what is being deleted."""
    marks: dict[str, Any] = {}
    if topic.metadata.labels.get(INTERNAL_LABEL) != "true":
        marks["labels"] = {INTERNAL_LABEL: "true"}
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
