"""Kubernetes Events, for people who run `kubectl describe`. Best effort: an Event that cannot be recorded is logged,
and that is all.

A repeat (same object, reason and message) raises the `count` of the Event that is there already. One recorder per
process; it remembers the last RECORDED_EVENTS_MAX Events.
"""

import logging
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from headrace.core.resources.metadata import Metadata
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, NotFoundError
from headrace.kube.resource import EVENTS, Resource

RECORDED_EVENTS_MAX = 512
"""Kubernetes Events that a process remembers, so that a repeat raises a count instead of adding one more."""


_log = logging.getLogger(__name__)
_MESSAGE_LENGTH_MAX = 1024
"""The API server's bound on `message`."""


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about."""

    resource: Resource[Any]
    metadata: Metadata


@dataclass(slots=True)
class _Recorded:
    name: str
    count: int


class EventRecorder:
    def __init__(self, client: KubeClient, component: str) -> None:
        self._client = client
        self._component = component
        self._recorded: OrderedDict[tuple[str, ...], _Recorded] = OrderedDict()

    async def record(self, regarding: Regarding, type_: EventType, reason: str, message: str) -> None:
        """Record an Event, or raise the count of one that is there. Never raises an ApiError."""
        metadata = regarding.metadata
        key = (regarding.resource.kind, metadata.namespace, metadata.name, metadata.uid, reason, message)
        try:
            known = self._recorded.get(key)
            if known is None or not await self._repeat(known, metadata.namespace):
                self._remember(key, await self._create(regarding, type_, reason, message))
        except ApiError as error:
            _log.warning("event %s of %s/%s is lost: %s", reason, metadata.namespace, metadata.name, error)

    async def _repeat(self, known: _Recorded, namespace: str) -> bool:
        known.count += 1
        change = {"count": known.count, "lastTimestamp": _now()}
        try:
            await self._client.patch(EVENTS, known.name, namespace or "default", change)
        except NotFoundError:  # the API server drops Events after an hour
            return False
        return True

    async def _create(self, regarding: Regarding, type_: EventType, reason: str, message: str) -> str:
        metadata, now = regarding.metadata, _now()
        namespace = metadata.namespace or "default"
        name = f"{metadata.name}.{uuid.uuid4().hex[:16]}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": regarding.resource.api_version,
                "kind": regarding.resource.kind,
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "type": type_.value,
            "reason": reason,
            "message": message[:_MESSAGE_LENGTH_MAX],
            "source": {"component": self._component},
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        await self._client.create(EVENTS, event)
        return name

    def _remember(self, key: tuple[str, ...], name: str) -> None:
        self._recorded[key] = _Recorded(name, 1)
        self._recorded.move_to_end(key)
        if len(self._recorded) > RECORDED_EVENTS_MAX:
            self._recorded.popitem(last=False)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
