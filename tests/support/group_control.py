"""ConsumerGroups, the internal topic and an API server in memory, for tests of what the operator does about groups."""

from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from headrace.core.control.actions import (
    CreateTopic,
    GroupAction,
    PatchStatus,
    PatchTopic,
    ReleaseTopic,
    SetGroupFinalizers,
    TopicAction,
    WriteGroupStatus,
)
from headrace.core.control.conditions import by_type
from headrace.core.control.group_errands import ErrandVerdict, Wish, wish_of
from headrace.core.control.group_plan import GroupPlan, plan_groups
from headrace.core.control.group_view import GroupView
from headrace.core.groups.identity import OFFSETS_TOPIC, GroupEpoch, GroupName, GroupState, MemberId
from headrace.core.resources.consumer_group import (
    ConsumerGroup,
    ConsumerGroupSpec,
    ConsumerGroupStatus,
    LastReset,
    MemberStatus,
    TopicShare,
)
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic
from headrace.core.types import PartitionId, TopicUid
from tests.support.control import NOW_MS, ModelApi

HOME = "default"
_PASSES_MAX = 20


def group(name: str = "billing", *, metadata: dict[str, Any] | None = None, **spec: Any) -> ConsumerGroup:
    """As a user has just created it, in namespace default."""
    fields: dict[str, Any] = {"uid": f"uid-{name}", "resource_version": "1", "generation": 1, **(metadata or {})}
    return ConsumerGroup(Metadata(name, "default", **fields), ConsumerGroupSpec.parse(spec))


def member(name: str, *topics: str, **fields: Any) -> MemberStatus:
    return MemberStatus(MemberId(name), topics=topics or ("flights",), **fields)


def share(topic: str, *partitions: int) -> TopicShare:
    return TopicShare(topic, tuple(map(PartitionId, partitions)))


@dataclass(slots=True)
class ModelGroups:
    """Beside the topics of `api`: carries out what is planned for groups; not what was planned on an older version."""

    api: ModelApi
    groups: dict[GroupName, ConsumerGroup] = field(default_factory=dict)
    settled: bool = True
    verdicts: dict[Wish, ErrandVerdict] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """Reasons of Events."""
    writes: int = 0
    conflicts: int = 0

    @classmethod
    def of(cls, api: ModelApi, *groups: ConsumerGroup) -> "ModelGroups":
        return cls(api, {each.name: each for each in groups})

    def copy(self) -> "ModelGroups":
        return replace(self, api=self.api.copy(), groups=dict(self.groups), told=[*self.told])

    @property
    def view(self) -> GroupView:
        topics = tuple(self.api.topics.values())
        return GroupView(tuple(self.groups.values()), topics, self.api.observed, HOME, self.settled)

    @property
    def topic(self) -> Topic | None:
        return self.view.offsets_topic

    def plan(self, now_ms: int = NOW_MS) -> GroupPlan:
        return plan_groups(self.view, self.verdicts, now_ms)

    def actions(self, now_ms: int = NOW_MS) -> list[TopicAction | GroupAction]:
        plan = self.plan(now_ms)
        return [*([plan.topic] if plan.topic is not None else []), *plan.groups]

    def settle(self, now_ms: int = NOW_MS) -> None:
        """Both loops, until there is nothing to do."""
        for _ in range(_PASSES_MAX):
            self.api.settle()
            actions = self.actions(now_ms)
            if not actions:
                return
            for action in actions:
                self.carry_out(action)
        raise AssertionError(f"still something to do after {_PASSES_MAX} passes: {actions}")

    def carry_out(self, action: TopicAction | GroupAction) -> None:
        if isinstance(action, SetGroupFinalizers | WriteGroupStatus) and not self._is_current(action.group):
            self.conflicts += 1
            return
        self.writes += 1
        self.told += [notice.reason for notice in getattr(action, "notices", ())]
        match action:
            case CreateTopic():
                assert self.topic is None
                created = Topic.parse(action.manifest)
                uid = TopicUid(f"uid-{OFFSETS_TOPIC}-{self.writes}")
                metadata = replace(created.metadata, uid=uid, resource_version="1", generation=1)
                self.api.topics[uid] = replace(created, metadata=metadata)
            case PatchTopic():
                self._patch_topic(action)
            case ReleaseTopic(found, finalizers):
                metadata = replace(found.metadata, finalizers=finalizers)
                self.api.topics[found.uid] = replace(found, metadata=metadata)
                self.api.collect(found.uid)
            case PatchStatus():
                self.api.carry_out(action)
            case SetGroupFinalizers(found, finalizers):
                self.change(found.metadata.name, finalizers=finalizers)
                self.collect(found.name)
            case WriteGroupStatus(changed):
                self._put(replace(self.groups[changed.name], status=changed.status))
            case _:
                assert_never(action)

    def _is_current(self, seen: ConsumerGroup) -> bool:
        found = self.groups.get(seen.name)
        return found is not None and found.metadata.resource_version == seen.metadata.resource_version

    def _put(self, changed: ConsumerGroup) -> None:
        """As the API server does: it has another version now."""
        version = str(int(changed.metadata.resource_version) + 1)
        metadata = replace(changed.metadata, resource_version=version)
        self.groups[changed.name] = replace(changed, metadata=metadata)

    def _patch_topic(self, action: PatchTopic) -> None:
        found = self.api.topics[action.topic.uid]
        before = found.spec.to_object()
        if found.spec.min_insync_replicas == max(1, found.spec.replicas - 1):
            del before["minInsyncReplicas"]
        merged = {**before, **action.patch.get("spec", {})}
        spec = type(found.spec).parse({name: value for name, value in merged.items() if value is not None})
        changed = dict(action.patch.get("metadata", {}))
        labels = {**found.metadata.labels, **changed.get("labels", {})}
        finalizers = tuple(changed.get("finalizers", found.metadata.finalizers))
        going = found.metadata.deletion_timestamp is not None
        assert not going or {*finalizers} <= {*found.metadata.finalizers}, "no finalizer is added to what is going"
        self.api.topics[found.uid] = replace(
            found, spec=spec, metadata=replace(found.metadata, labels=labels, finalizers=finalizers)
        )
        self.api.collect(found.uid)

    def found(self, name: str = "billing") -> ConsumerGroup:
        return self.groups[GroupName("default", name)]

    def change(self, name: str = "billing", **metadata: Any) -> None:
        found = self.found(name)
        self._put(replace(found, metadata=replace(found.metadata, **metadata)))

    def configure(self, name: str = "billing", **spec: Any) -> None:
        """What a user does to a manifest."""
        found = self.found(name)
        metadata = replace(found.metadata, generation=found.metadata.generation + 1)
        changed = ConsumerGroupSpec.parse({**found.spec.to_object(), **spec})
        self._put(replace(found, spec=changed, metadata=metadata))

    def report(self, name: str = "billing", **status: Any) -> None:
        """What the coordinator writes."""
        found = self.found(name)
        self._put(replace(found, status=replace(found.status, **status)))

    def rebalance(self, *members: MemberStatus, name: str = "billing") -> None:
        """These are in it now, says the coordinator."""
        epoch = GroupEpoch(self.found(name).status.group_epoch + 1)
        self.report(name, state=GroupState.ASSIGNING, group_epoch=epoch, members=members)

    def stabilize(self, name: str = "billing") -> None:
        status = self.found(name).status
        assert status.assignment_epoch == status.group_epoch
        owned = tuple(replace(each, owned=each.assignment) for each in status.members)
        self.report(name, state=GroupState.STABLE, members=owned)

    def reset(self, name: str, reset: str) -> None:
        """The coordinator has carried it out, and says so."""
        self.report(name, last_reset=LastReset(reset, "2026-11-21T09:00:00Z", "Applied"))

    def answer(self, verdict: ErrandVerdict, name: str = "billing") -> None:
        """What brokers say to what is asked for it now."""
        wish = wish_of(self.found(name))
        assert wish is not None, "nothing is asked"
        self.verdicts = {wish: verdict}

    def delete(self, name: str = "billing") -> None:
        self.change(name, deletion_timestamp="2026-11-21T09:00:00Z")
        self.collect(GroupName("default", name))

    def collect(self, name: GroupName) -> None:
        metadata = self.groups[name].metadata
        if metadata.deletion_timestamp is not None and not metadata.finalizers:
            del self.groups[name]

    def condition(self, kind: str, name: str = "billing") -> tuple[str, str, str]:
        """(status, reason, message)"""
        found = by_type(self.found(name).status.conditions)[kind]
        return found["status"], found["reason"], found["message"]

    def has(self, kind: str, name: str = "billing") -> bool:
        return kind in by_type(self.found(name).status.conditions)


def status(**fields: Any) -> ConsumerGroupStatus:
    return ConsumerGroupStatus(**fields)
