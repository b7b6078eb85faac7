"""Carries out what the planner wants for consumer groups: each write a compare-and-set, Events once it has landed.

Groups do not depend on each other: their writes go out together, GROUP_CALLS_MAX at a time. Decides nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from headrace.core.control.actions import (
    CreateTopic,
    GroupAction,
    Notice,
    PatchStatus,
    PatchTopic,
    ReleaseTopic,
    SetGroupFinalizers,
    TopicAction,
    WriteGroupStatus,
)
from headrace.core.control.conditions import Restraint
from headrace.core.control.group_view import coordinated_in
from headrace.core.limits import GROUP_CALLS_MAX
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.metadata import Metadata
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
from headrace.kube.resource import CONSUMER_GROUPS, TOPICS, Resource
from headrace_operator.applier import Outcome
from headrace_operator.observer import monotonic_ms

_log = logging.getLogger(__name__)


class GroupApplier:
    def __init__(
        self, client: KubeClient, recorder: EventRecorder, acts: Callable[[], bool], turn: asyncio.Event
    ) -> None:
        """`turn`: set while nobody elects leaders, who come first."""
        self._turn = turn
        self._client = client
        self._recorder = recorder
        self._acts = acts
        self._calls = asyncio.Semaphore(GROUP_CALLS_MAX)
        self._restraint = Restraint()

    async def apply_groups(
        self, actions: Sequence[GroupAction], landed: Callable[[GroupAction, ConsumerGroup], None]
    ) -> list[Outcome]:
        """One outcome for each; `landed` is given each group as it is then.

        Raises ApiUnavailableError where none of them has got an answer: the API server is away.
        """
        results = await asyncio.gather(*(self._apply_group(action, landed) for action in actions))
        unanswered = [error for error in results if error is not None and _is_unanswered(error)]
        if unanswered and len(unanswered) == len(results):
            raise unanswered[0]
        return [_outcome(f"group {action.group.name}", result) for action, result in zip(actions, results, strict=True)]

    async def apply_topic(self, action: TopicAction) -> Outcome:
        """Raises ApiUnavailableError."""
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
        for notice in self._restraint.heard(metadata.uid, notices, monotonic_ms()):
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
