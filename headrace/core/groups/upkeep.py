"""What a broker does about the ConsumerGroup of a group that it coordinates: create, write its status, delete. Pure.

    the group lives, there is no ConsumerGroup ──> Create       there is one, which says something else ──> WriteStatus
    it is dead, and a broker created its ConsumerGroup ──> Delete; one that somebody made stays, and is empty

A ConsumerGroup that was created for a group whose offsets topic was not there yet has no group for a while: it goes
only if nobody has joined by GROUP_UNUSED_MS. One of the same name that belongs to another cluster is left alone, and so
is one of another type than the group that lives: it was made while the group was out of sight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from headrace.core.groups.identity import GroupState
from headrace.core.groups.status import Report, reported
from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup, auto_created
from headrace.core.resources.consumer_group_status import ConsumerGroupStatus
from headrace.core.resources.metadata import Metadata
from headrace.core.types import TopicUid


@dataclass(frozen=True, slots=True)
class Create:
    manifest: Mapping[str, Any]
    reason: str = "it has none"


@dataclass(frozen=True, slots=True)
class WriteStatus:
    resource: ConsumerGroup
    """With the version that it is based on."""
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Nobody is to hold it any more: an operator that comes late would delete the offsets of those who join again."""

    metadata: Metadata
    reason: str

    @property
    def release(self) -> dict[str, Any] | None:
        """A merge patch that comes first, on the version that was read; None where it is not held."""
        if GROUP_FINALIZER not in self.metadata.finalizers:
            return None
        others = [each for each in self.metadata.finalizers if each != GROUP_FINALIZER]
        return {"metadata": {"resourceVersion": self.metadata.resource_version, "finalizers": others}}


Upkeep: TypeAlias = Create | WriteStatus | Delete


def upkeep(
    resource: ConsumerGroup | None, report: Report, cluster: str, wall_ms: int, *, is_for_lag: bool, is_unused: bool
) -> Upkeep | None:
    """`is_for_lag`: it is time to show the lag. `is_unused`: there was time enough for somebody to join."""
    is_dead = report.state is GroupState.DEAD
    if resource is None:
        return None if is_dead else Create(auto_created(report.group, cluster, report.retention, report.type))
    if resource.spec.cluster != cluster or not (is_dead or resource.spec.type is report.type):
        return None
    if is_dead and resource.auto_created:
        if resource.deleting or not (is_unused or was_shown(resource)):
            return None
        return Delete(resource.metadata, "the group is forgotten" if was_shown(resource) else "nobody has joined")
    return _status(resource, reported(resource, report, wall_ms), is_for_lag=is_for_lag)


def was_shown(resource: ConsumerGroup) -> bool:
    """Whether a coordinator has ever said anything of it."""
    return resource.status.state is not None


def lags_shown(resource: ConsumerGroup | None) -> dict[TopicUid, int | None]:
    """What its status says: as good as anything until a new coordinator has looked for itself."""
    return {} if resource is None else {topic.uid: topic.lag for topic in resource.status.topics}


def _status(before: ConsumerGroup, after: ConsumerGroup, *, is_for_lag: bool) -> WriteStatus | None:
    if before.status == after.status:
        return None
    if _without_lags(before.status) != _without_lags(after.status):
        return WriteStatus(after, "the group changed")
    return WriteStatus(after, "its lag changed") if is_for_lag else None


def _without_lags(status: ConsumerGroupStatus) -> ConsumerGroupStatus:
    return replace(status, topics=tuple(topic._replace(lag=None) for topic in status.topics))
