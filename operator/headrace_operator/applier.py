"""Carries out what the planner wants: every write a compare-and-set on what was observed, in the planner's order.

Decides nothing. Where the world has moved on (409, 404) the rest of a topic's actions is dropped: they were planned for
another state, and the next pass plans again. `ApiUnavailableError` is for the loop.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, assert_never

from headrace.core.control.actions import (
    Action,
    CreateSet,
    DeleteOrphanSet,
    DeleteSet,
    Notice,
    PatchStatus,
    ReplaceSet,
    SetFinalizers,
    TopicPlan,
)
from headrace.core.resources.metadata import Metadata, Object
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
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


class Applier:
    def __init__(self, client: KubeClient, recorder: EventRecorder, landed: Callable[[Action], None]) -> None:
        """`landed` hears of each action that has been carried out."""
        self._client = client
        self._recorder = recorder
        self._landed = landed

    async def apply(self, plan: TopicPlan) -> Outcome:
        """All actions of one topic, or as many as land. Raises ApiUnavailableError."""
        for action in plan.actions:
            try:
                await self._carry_out(action)
            except ApiUnavailableError:
                raise
            except (ConflictError, AlreadyExistsError, NotFoundError) as error:
                _log.info("%s: planning again: %s", plan.topic, error)
                return Outcome.OVERTAKEN
            except ApiError as error:
                _log.error("%s: %s was refused: %s", plan.topic, type(action).__name__, error)
                return Outcome.REFUSED
            self._landed(action)
            _log.info("%s: %s: %s", plan.topic, type(action).__name__, action.reason)
        return Outcome.DONE

    async def _carry_out(self, action: Action) -> None:
        match action:
            case CreateSet():
                await self._client.create(PARTITION_SETS, action.set.to_object())
            case ReplaceSet():
                await self._client.replace(PARTITION_SETS, action.set.to_object())
                await self._tell(_owner_of(action.set), action.notices)
            case DeleteSet():
                await self._delete(action.set)
            case DeleteOrphanSet():
                await self._delete_orphan(action.set)
            case SetFinalizers():
                metadata = {**_as_read(action.topic), "finalizers": list(action.finalizers)}
                await self._patch(action.topic, {"metadata": metadata})
                await self._tell(action.topic.metadata, action.notices)
            case PatchStatus():
                patch = {"metadata": _as_read(action.topic), "status": dict(action.status)}
                await self._patch(action.topic, patch, subresource="status")
                await self._tell(action.topic.metadata, action.notices)
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

    async def _tell(self, topic: Metadata, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            kind = EventType.WARNING if notice.warning else EventType.NORMAL
            await self._recorder.record(Regarding(TOPICS, topic), kind, notice.reason, notice.message)


def _owner_of(partition_set: PartitionSet) -> Metadata:
    """As much of its Topic as an Event names."""
    return Metadata(partition_set.topic, partition_set.metadata.namespace, uid=partition_set.topic_uid)


def _as_read(topic: Topic) -> dict[str, Any]:
    """What makes a patch of this Topic a compare-and-set, on this very object."""
    return {"resourceVersion": topic.metadata.resource_version}
