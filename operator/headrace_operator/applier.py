"""Carries out what the planner wants: every write a compare-and-set on what was observed, in the planner's order.

Changes of several PartitionSets go out together, so that a broker that led a thousand partitions costs one round trip.
Decides nothing. Where the world has moved on (409, 404) the rest of a topic's actions is dropped: they were planned for
another state, and the next pass plans again. `ApiUnavailableError` is for the loop.
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
    DeleteOrphanSet,
    DeleteSet,
    PatchStatus,
    ReplaceSet,
    SetFinalizers,
    TopicPlan,
)
from headrace.core.limits import SET_CALLS_MAX
from headrace.core.resources.metadata import Metadata, Object
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
from headrace.core.types import TopicName
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError, ApiUnavailableError, ConflictError, NotFoundError
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import PARTITION_SETS, TOPICS, Resource, raw_resource

_log = logging.getLogger(__name__)
# Not parsed: a Topic that this version cannot read is there all the same.
_ANY_TOPIC: Resource[Object] = raw_resource(TOPICS.group, TOPICS.version, TOPICS.plural, TOPICS.kind)


class Outcome(Enum):
    DONE = "done"
    OVERTAKEN = "overtaken"
    """Someone else was faster: plan again."""
    REFUSED = "refused"
    """The API server does not want this; it is in the log."""
    BUSY = "busy"
    """It could not do this now, while it did other things."""


class Applier:
    def __init__(self, client: KubeClient, recorder: EventRecorder, landed: Callable[[Action], None]) -> None:
        """`landed` hears of each action that has been carried out."""
        self._client = client
        self._recorder = recorder
        self._landed = landed
        self._calls = asyncio.Semaphore(SET_CALLS_MAX)

    async def apply(self, plan: TopicPlan) -> Outcome:
        """All actions of one topic, or as many as land. Raises ApiUnavailableError."""
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
        """Of actions that were carried out together. Raises ApiUnavailableError."""
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
    """In order; changes of several sets, of which each makes sense without the others, are together."""
    return [
        list(group) for _, group in groupby(actions, key=lambda action: isinstance(action, ReplaceSet) or id(action))
    ]


def _owner_of(partition_set: PartitionSet) -> Metadata:
    """As much of its Topic as an Event names."""
    return Metadata(partition_set.topic, partition_set.metadata.namespace, uid=partition_set.topic_uid)


def _as_read(topic: Topic) -> dict[str, Any]:
    """What makes a patch of this Topic a compare-and-set, on this very object."""
    return {"resourceVersion": topic.metadata.resource_version}
