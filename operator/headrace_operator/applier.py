"""The writes that the planners want, carried out: each a compare-and-set on what was observed. The applier decides
nothing.

For topics they are made in the planner's order; changes of several PartitionSets go out together, so that a broker that
led a thousand partitions costs one round trip. If the state has changed (409, 404), the rest of a topic's actions is
dropped: they were planned for another state, and the next pass plans again. `ApiUnavailableError` is for the loop.

Consumer groups do not depend on each other: their writes go out together, GROUP_CALLS_MAX at a time, and their Events
once they have landed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import groupby
from typing import Any, assert_never

from headrace.core.control.actions import (
    Action,
    CreateSet,
    CreateTopic,
    DeleteOrphanSet,
    DeleteSet,
    GroupAction,
    Notice,
    PatchStatus,
    PatchTopic,
    ReleaseTopic,
    ReplaceSet,
    SetFinalizers,
    SetGroupFinalizers,
    TopicAction,
    TopicPlan,
    WriteGroupStatus,
)
from headrace.core.control.conditions import Restraint
from headrace.core.control.group_view import coordinated_in
from headrace.core.limits import GROUP_CALLS_MAX, SET_CALLS_MAX
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.metadata import Metadata, Object
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
from headrace.core.types import TopicName
from headrace.kube.client import KubeClient
from headrace.kube.errors import (
    AlreadyExistsError,
    ApiBusyError,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    NotFoundError,
)
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import CONSUMER_GROUPS, PARTITION_SETS, TOPICS, Resource, raw_resource
from headrace_operator.observer import monotonic_ms

_log = logging.getLogger(__name__)
# This is not parsed: a Topic that this version cannot read is there all the same.
_ANY_TOPIC: Resource[Object] = raw_resource(TOPICS.group, TOPICS.version, TOPICS.plural, TOPICS.kind)


class Outcome(Enum):
    DONE = "done"
    OVERTAKEN = "overtaken"
    """Another writer was faster: plan again."""
    REFUSED = "refused"
    """The API server refuses this; the reason is in the log."""
    BUSY = "busy"
    """The API server could not do this now."""


class Applier:
    def __init__(self, client: KubeClient, recorder: EventRecorder, landed: Callable[[Action], None]) -> None:
        """Take `landed`, which is called with each action that has been carried out."""
        self._client = client
        self._recorder = recorder
        self._landed = landed
        self._calls = asyncio.Semaphore(SET_CALLS_MAX)

    async def apply(self, plan: TopicPlan) -> Outcome:
        """Apply all actions of one topic, or as many as land. Raises ApiUnavailableError."""
        for group in _groups(plan.actions):
            results = await asyncio.gather(*map(self._try, group))
            landed = [action for action, error in zip(group, results, strict=True) if error is None]
            for action in landed:
                self._landed(action)
                _log.info("%s: %s: %s", plan.topic, type(action).__name__, action.reason)
            await asyncio.gather(*map(self._tell, landed))
            outcome = self._outcome(plan.topic, group, results)
            if outcome is not Outcome.DONE:
                return outcome
        return Outcome.DONE

    async def _try(self, action: Action) -> ApiError | None:
        try:
            async with self._calls:
                await self._carry_out(action)
        except ApiError as error:
            return error
        return None

    def _outcome(self, topic: TopicName, group: Sequence[Action], results: Sequence[ApiError | None]) -> Outcome:
        """Return the outcome of actions that were carried out together. Raises ApiUnavailableError."""
        failed = [(action, error) for action, error in zip(group, results, strict=True) if error is not None]
        for _, error in failed:
            if isinstance(error, ApiUnavailableError):
                raise error
        for _, error in failed:
            if isinstance(error, ConflictError | AlreadyExistsError | NotFoundError):
                _log.info("%s: planning again: %s", topic, error)
                return Outcome.OVERTAKEN
        for action, error in failed:
            _log.error("%s: %s was refused: %s", topic, type(action).__name__, error)
        return Outcome.REFUSED if failed else Outcome.DONE

    async def _carry_out(self, action: Action) -> None:
        match action:
            case CreateSet():
                await self._client.create(PARTITION_SETS, action.set.to_object())
            case ReplaceSet():
                await self._client.replace(PARTITION_SETS, action.set.to_object())
            case DeleteSet():
                await self._delete(action.set)
            case DeleteOrphanSet():
                await self._delete_orphan(action.set)
            case SetFinalizers():
                changed = {"finalizers": list(action.finalizers), "annotations": dict(action.annotations)}
                await self._patch(action.topic, {"metadata": {**_as_read(action.topic), **changed}})
            case PatchStatus():
                patch = {"metadata": _as_read(action.topic), "status": dict(action.status)}
                await self._patch(action.topic, patch, subresource="status")
            case _:
                assert_never(action)

    async def _delete(self, partition_set: PartitionSet) -> None:
        metadata = partition_set.metadata
        await self._client.delete(PARTITION_SETS, metadata.name, metadata.namespace, uid=metadata.uid)

    async def _delete_orphan(self, partition_set: PartitionSet) -> None:
        try:
            topic = await self._client.get(_ANY_TOPIC, partition_set.topic, partition_set.metadata.namespace)
        except NotFoundError:
            pass
        else:
            if topic["metadata"]["uid"] == partition_set.topic_uid:
                raise ConflictError(f"{partition_set.metadata.name} is no orphan: its topic is there")
        await self._delete(partition_set)

    async def _patch(self, topic: Topic, patch: Object, *, subresource: str | None = None) -> None:
        metadata = topic.metadata
        await self._client.patch(TOPICS, metadata.name, metadata.namespace, patch, subresource=subresource)

    async def _tell(self, action: Action) -> None:
        match action:
            case CreateSet() | ReplaceSet():
                topic = _owner_of(action.set)
            case SetFinalizers() | PatchStatus():
                topic = action.topic.metadata
            case _:
                return
        for notice in action.notices:
            kind = EventType.WARNING if notice.warning else EventType.NORMAL
            await self._recorder.record(Regarding(TOPICS, topic), kind, notice.reason, notice.message)


def _groups(actions: Sequence[Action]) -> list[list[Action]]:
    """Return the actions in order; changes of several sets, of which each makes sense without the others, are
    together."""
    return [
        list(group) for _, group in groupby(actions, key=lambda action: isinstance(action, ReplaceSet) or id(action))
    ]


def _owner_of(partition_set: PartitionSet) -> Metadata:
    """Return the part of its Topic that an Event names."""
    return Metadata(partition_set.topic, partition_set.metadata.namespace, uid=partition_set.topic_uid)


def _as_read(topic: Topic) -> dict[str, Any]:
    """Return what makes a patch of this Topic a compare-and-set, on this very object."""
    return {"resourceVersion": topic.metadata.resource_version}


class GroupApplier:
    def __init__(
        self, client: KubeClient, recorder: EventRecorder, acts: Callable[[], bool], turn: asyncio.Event
    ) -> None:
        """Take `turn`, which is set while no leaders are elected, which comes first."""
        self._turn = turn
        self._client = client
        self._recorder = recorder
        self._acts = acts
        self._calls = asyncio.Semaphore(GROUP_CALLS_MAX)
        self._restraint = Restraint()

    async def apply_groups(
        self, actions: Sequence[GroupAction], landed: Callable[[GroupAction, ConsumerGroup], None]
    ) -> list[Outcome]:
        """Apply actions, and return one outcome for each; `landed` is given each group as it is then.

        It raises ApiUnavailableError where none of them has got an answer: the API server is away.
        """
        results = await asyncio.gather(*(self._apply_group(action, landed) for action in actions))
        unanswered = [error for error in results if error is not None and _is_unanswered(error)]
        if unanswered and len(unanswered) == len(results):
            raise unanswered[0]
        return [_outcome(f"group {action.group.name}", result) for action, result in zip(actions, results, strict=True)]

    async def apply_topic(self, action: TopicAction) -> Outcome:
        """Apply an action. Raises ApiUnavailableError."""
        try:
            await self._write_topic(action)
        except ApiError as error:
            if _is_unanswered(error):
                raise
            return _outcome("the internal topic", error)
        _log.info("the internal topic: %s: %s", type(action).__name__, action.reason)
        if isinstance(action, PatchTopic | PatchStatus):
            await self._tell(TOPICS, action.topic.metadata, action.notices)
        return Outcome.DONE

    async def _apply_group(
        self, action: GroupAction, landed: Callable[[GroupAction, ConsumerGroup], None]
    ) -> ApiError | None:
        try:
            async with self._calls:
                await self._turn.wait()
                if not self._acts():
                    return ConflictError("another operator acts")
                written = await self._write_group(action)
        except ApiError as error:
            return error
        landed(action, written)
        _log.info("group %s: %s: %s", action.group.name, type(action).__name__, action.reason)
        await self._tell(CONSUMER_GROUPS, action.group.metadata, action.notices)
        return None

    async def _write_group(self, action: GroupAction) -> ConsumerGroup:
        metadata, version = action.group.metadata, {"resourceVersion": action.group.metadata.resource_version}
        patch: dict[str, Any]
        match action:
            case SetGroupFinalizers():
                patch, part = {"metadata": {**version, "finalizers": [*action.finalizers]}}, None
            case WriteGroupStatus():
                patch, part = {"metadata": version, "status": action.group.status.to_object()}, "status"
            case _:
                assert_never(action)
        return await self._client.patch(CONSUMER_GROUPS, metadata.name, metadata.namespace, patch, subresource=part)

    async def _write_topic(self, action: TopicAction) -> None:
        match action:
            case CreateTopic():
                await self._client.create(TOPICS, action.manifest)
            case PatchTopic():
                changed, version = dict(action.patch), action.topic.metadata.resource_version
                changed["metadata"] = {**changed.get("metadata", {}), "resourceVersion": version}
                await self._client.patch(TOPICS, action.topic.metadata.name, action.topic.metadata.namespace, changed)
            case ReleaseTopic():
                await self._release(action)
            case PatchStatus():
                metadata = action.topic.metadata
                patch = {"metadata": {"resourceVersion": metadata.resource_version}, "status": dict(action.status)}
                await self._client.patch(TOPICS, metadata.name, metadata.namespace, patch, subresource="status")
            case _:
                assert_never(action)

    async def _release(self, action: ReleaseTopic) -> None:
        metadata = action.topic.metadata
        groups = await self._client.list(CONSUMER_GROUPS)
        if groups.left_out or coordinated_in(groups.items, action.topic.spec.cluster):
            raise ConflictError(f"{metadata.name} stays: there are groups, or some that cannot be read")
        changed = {"resourceVersion": metadata.resource_version, "finalizers": [*action.finalizers]}
        await self._client.patch(TOPICS, metadata.name, metadata.namespace, {"metadata": changed})

    async def _tell(self, resource: Resource[Any], metadata: Metadata, notices: Sequence[Notice]) -> None:
        for notice in self._restraint.allowed(metadata.uid, notices, monotonic_ms()):
            kind = EventType.WARNING if notice.warning else EventType.NORMAL
            await self._recorder.record(Regarding(resource, metadata), kind, notice.reason, notice.message)


def _is_unanswered(error: ApiError) -> bool:
    return isinstance(error, ApiUnavailableError) and not isinstance(error, ApiBusyError)


def _outcome(what: str, error: ApiError | None) -> Outcome:
    if error is None:
        return Outcome.DONE
    if isinstance(error, ConflictError | AlreadyExistsError | NotFoundError):
        _log.info("%s: planning again: %s", what, error)
        return Outcome.OVERTAKEN
    if isinstance(error, ApiUnavailableError):
        _log.warning("%s: a write failed, it is tried again: %s", what, error)
        return Outcome.BUSY
    _log.error("%s: a write was refused: %s", what, error)
    return Outcome.REFUSED
