"""The plan for the internal topics: they exist, with the settings that they need. Pure; one write for a topic in one
pass.

    offsets topic: there are no groups ──> it is not made
                   a ConsumerGroup of type Consumer, brokers that take data ──> created
                   deleted ──> served as before, with a condition (a finalizer, as Kubernetes' own for volumes in use);
                               it goes with the last group
    any of them:   edited ──> put back, with an Event; the number of its replicas follows that of the brokers, and never
                   falls

The condition InUse reports an edit that cannot be put back (the partitions, the cluster). A broker makes the topics of
staged commits for the first writer; nothing guards them against deletion: they are made anew for the next writer, and
everything that was staged or decided is gone, as `docs/spark.md` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.control.actions import CreateTopic, Notice, PatchStatus, PatchTopic, ReleaseTopic, TopicAction
from headrace.core.control.conditions import Condition, by_type, render
from headrace.core.control.group_view import GroupView
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.groups.identity import OFFSETS_TOPIC
from headrace.core.limits import (
    INTERNAL_REPLICAS_MAX,
    OFFSETS_MESSAGE_BYTES,
    OFFSETS_PARTITIONS,
    OFFSETS_SEGMENT_BYTES,
    STAGING_MESSAGE_BYTES,
)
from headrace.core.resources.internal_topics import internal_manifest, quantity
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.topic import (
    IN_USE_FINALIZER,
    INTERNAL_LABEL,
    CleanupPolicy,
    DeletionPolicy,
    Topic,
    TopicSpec,
)
from headrace.core.staging.writers import COMMITS_TOPIC, STAGING_TOPIC
from headrace.core.units import UNLIMITED


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of Headrace for a topic; stricter settings are allowed."""

    whose: str
    """The dependents, as a sentence."""
    cleanup_policy: CleanupPolicy
    message_bytes: int
    """The least size."""
    why: Mapping[str, str]
    """The reasons by the field that is put back."""
    segment_bytes: int | None = None
    """The largest size; None: any."""
    keeps_all: bool = False
    """True where nothing may be deleted by age or size."""


def ready_brokers(observed: Observed) -> int:
    """Return the number of brokers that can be given data; 0 while it is not known of all of them."""
    if observed.in_state(BrokerState.UNPROVEN):
        return 0
    return sum(map(observed.is_open_to, observed.brokers))


def label_of(topic: Topic) -> dict[str, Any]:
    """Return the label of internal topics as a patch of metadata, where it is missing."""
    return {} if topic.metadata.labels.get(INTERNAL_LABEL) == "true" else {"labels": {INTERNAL_LABEL: "true"}}


def kept(
    topic: Topic, needs: Needs, observed: Observed, metadata: Mapping[str, Any], partitions: int
) -> PatchTopic | None:
    """Return the write that makes the topic right, with this patch of metadata and so many partitions; None where it is
    right."""
    spec, edits = _edits(topic.spec, needs)
    notices = [Notice("Restored", f"{needs.whose}: {'; '.join(edits)}", warning=True)] if edits else []
    if partitions > topic.spec.partitions:
        spec["partitions"] = partitions
        told = f"from {topic.spec.partitions} to {partitions}, for good: {needs.why['partitions']}"
        notices.append(Notice("PartitionsRaised", told))
    replicas = min(INTERNAL_REPLICAS_MAX, ready_brokers(observed))
    if replicas > topic.spec.replicas:
        spec["replicas"] = replicas
        notices.append(Notice("ReplicasRaised", f"from {topic.spec.replicas} to {replicas}: as many as brokers"))
    patch: dict[str, Any] = {name: value for name, value in (("metadata", metadata), ("spec", spec)) if value}
    if not patch:
        return None
    reason = "; ".join(notice.message for notice in notices) or "it is internal"
    return PatchTopic(topic, patch, reason, tuple(notices))


def _edits(spec: TopicSpec, needs: Needs) -> tuple[dict[str, Any], list[str]]:
    """Return the needed changes, as a patch and in words."""
    patch, told = dict[str, Any](), list[str]()
    if spec.cleanup_policy is not needs.cleanup_policy:
        patch["cleanupPolicy"] = needs.cleanup_policy.value
        said = f"cleanupPolicy is {needs.cleanup_policy.value} again, not {spec.cleanup_policy.value}"
        told.append(f"{said}: {needs.why['cleanupPolicy']}")
    if spec.max_message_bytes < needs.message_bytes:
        patch["maxMessageBytes"] = quantity(needs.message_bytes)
        told.append(f"maxMessageBytes is {patch['maxMessageBytes']} again: {needs.why['maxMessageBytes']}")
    if needs.keeps_all and not (spec.retention_ms is spec.retention_bytes is None):
        patch["retention"] = {"time": UNLIMITED, "bytes": UNLIMITED}
        told.append(f"retention is unlimited again: {needs.why['retention']}")
    if spec.deletion_policy is not DeletionPolicy.RETAIN:
        patch["deletionPolicy"] = DeletionPolicy.RETAIN.value
        told.append(f"deletionPolicy is Retain again: {needs.why['deletionPolicy']}")
    if needs.segment_bytes is not None and spec.segment_bytes > needs.segment_bytes:
        patch["segment"] = {"bytes": quantity(needs.segment_bytes)}
        told.append(f"segment.bytes is {quantity(needs.segment_bytes)} again: {needs.why['segment']}")
    return {**patch, **_safe(spec, needs, told)}, told


def _safe(spec: TopicSpec, needs: Needs, told: list[str]) -> dict[str, Any]:
    """Return the settings without which one broker's loss would lose what was acknowledged."""
    patch = dict[str, Any]()
    if spec.unclean_leader_election:
        patch["uncleanLeaderElection"] = False
        told.append(f"uncleanLeaderElection is false again: {needs.why['uncleanLeaderElection']}")
    if spec.min_insync_replicas < max(1, spec.replicas - 1):
        patch["minInsyncReplicas"] = None
        told.append(f"minInsyncReplicas is not {spec.min_insync_replicas}, but one less than replicas")
    return patch


_STAGING_NEEDS: Final[Mapping[str, Needs]] = {
    COMMITS_TOPIC: Needs(
        whose="writers depend on it",
        cleanup_policy=CleanupPolicy.COMPACT,
        message_bytes=OFFSETS_MESSAGE_BYTES,
        segment_bytes=OFFSETS_SEGMENT_BYTES,
        why={
            "cleanupPolicy": "old records are how far writers are",
            "maxMessageBytes": "a decision is one batch",
            "deletionPolicy": "decisions stay when somebody deletes it",
            "segment": "a new coordinator reads all of one",
            "uncleanLeaderElection": "a batch whose decision is lost would be written twice",
        },
    ),
    STAGING_TOPIC: Needs(
        whose="writers depend on it",
        cleanup_policy=CleanupPolicy.DELETE,
        message_bytes=STAGING_MESSAGE_BYTES,
        keeps_all=True,
        why={
            "cleanupPolicy": "records with the same key are all wanted",
            "maxMessageBytes": "whatever a topic takes can be staged",
            "retention": "coordinators delete what nobody needs, and nobody else may",
            "deletionPolicy": "what is committed stays when somebody deletes it",
            "uncleanLeaderElection": "records that are committed would be lost",
        },
    ),
}


def plan_staging_topics(view: GroupView) -> PatchTopic | None:
    """Return the next write, if one is needed."""
    for topic in view.topics:
        needs = _STAGING_NEEDS.get(topic.metadata.name)
        if needs is None or topic.metadata.namespace != view.home or not _is_kept(topic, view):
            continue
        write = kept(topic, needs, view.observed, label_of(topic), topic.spec.partitions)
        if write is not None:
            return write
    return None


def _is_kept(topic: Topic, view: GroupView) -> bool:
    going = topic.metadata.deletion_timestamp is not None
    return topic.spec.cluster == view.observed.cluster and not topic.paused and not going


_OFFSETS_NEEDS = Needs(
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
    """Return what to do next about it; `now_ms` is wall time, for conditions."""
    topic = view.offsets_topic
    if topic is None:
        return _create(view)
    if topic.spec.cluster != view.observed.cluster or topic.paused or topic.is_going:
        return None
    if not view.coordinated:
        return _let_go(topic)
    # While the topic's own status is being written, this would only conflict with it.
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
    """Return the write that puts back edits, and raises the replicas."""
    metadata = _marks(topic)
    wanted = OFFSETS_PARTITIONS if "labels" in metadata else topic.spec.partitions
    return kept(topic, _OFFSETS_NEEDS, observed, metadata, max(wanted, topic.spec.partitions))


def _marks(topic: Topic) -> dict[str, Any]:
    """Return its label and finalizer, where they are missing; Kubernetes adds no finalizer to an object that is being
    deleted."""
    marks = label_of(topic)
    if IN_USE_FINALIZER not in topic.metadata.finalizers:
        marks["finalizers"] = [*topic.metadata.finalizers, IN_USE_FINALIZER]
    return marks


def _tell(topic: Topic, now_ms: int) -> PatchStatus | None:
    """Return the patch with the condition InUse, beside the others."""
    conditions = topic.status.get("conditions") or ()
    previous = by_type(conditions)
    condition = _in_use(topic)
    written = render(condition, previous, topic.metadata.generation, now_ms)
    if previous.get(condition.type) == written:
        return None
    others = [dict(each) for each in conditions if each.get("type") != condition.type.value]
    status = {"conditions": [written, *others]}  # The order is that of the topic's own status.
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
