"""Keeps a topic of Headrace's own as it must be: what somebody has edited is put back, with an Event, and the number of
its replicas follows that of the brokers, and never falls. Pure; one write for a topic in one pass.
"""

from collections.abc import Mapping
from typing import Any

from headrace.core.control.actions import Notice
from headrace.core.control.group_actions import PatchTopic
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.limits import INTERNAL_REPLICAS_MAX
from headrace.core.resources.internal_topics import quantity
from headrace.core.resources.topic import INTERNAL_LABEL, CleanupPolicy, DeletionPolicy, Topic, TopicSpec
from headrace.core.slotted import dataclass
from headrace.core.units import UNLIMITED


@dataclass(frozen=True, slots=True)
class Needs:
    """What Headrace needs of a topic; stricter is allowed."""

    whose: str
    """Who depends on it, as a sentence."""
    cleanup_policy: CleanupPolicy
    message_bytes: int
    """The least."""
    why: Mapping[str, str]
    """By the field that is put back."""
    segment_bytes: int | None = None
    """The most; None: as it likes."""
    keeps_all: bool = False
    """Whether nothing may be deleted by age or size."""


def ready_brokers(observed: Observed) -> int:
    """Brokers that can be given data; 0 while it is not known of all of them."""
    if observed.in_state(BrokerState.UNPROVEN):
        return 0
    return sum(map(observed.is_open_to, observed.brokers))


def label_of(topic: Topic) -> dict[str, Any]:
    """The label of internal topics as a patch of metadata, where it is missing."""
    return {} if topic.metadata.labels.get(INTERNAL_LABEL) == "true" else {"labels": {INTERNAL_LABEL: "true"}}


def kept(
    topic: Topic, needs: Needs, observed: Observed, metadata: Mapping[str, Any], partitions: int
) -> PatchTopic | None:
    """The write that makes it right, with this patch of metadata and so many partitions; None where it is right."""
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
    """What must be otherwise, as a patch and in words."""
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
    """That what was acknowledged is not lost with one broker."""
    patch = dict[str, Any]()
    if spec.unclean_leader_election:
        patch["uncleanLeaderElection"] = False
        told.append(f"uncleanLeaderElection is false again: {needs.why['uncleanLeaderElection']}")
    if spec.min_insync_replicas < max(1, spec.replicas - 1):
        patch["minInsyncReplicas"] = None
        told.append(f"minInsyncReplicas is not {spec.min_insync_replicas}, but one less than replicas")
    return patch
