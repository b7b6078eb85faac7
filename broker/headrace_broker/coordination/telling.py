"""Warnings for the owner of a Topic: a line in the log, and an Event on it, whether the Topic is still there or not."""

import asyncio
import logging

from headrace.core.limits import EVENTS_PENDING_MAX
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, TopicName, TopicUid
from headrace.kube.client import KubeClient
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import TOPICS

_log = logging.getLogger(__name__)


class Teller:
    """One per process. Nobody waits for an Event; of too many at once only the log knows."""

    def __init__(self, client: KubeClient, broker: BrokerId) -> None:
        self._events = EventRecorder(client, f"headrace-broker-{broker}")
        self._pending: set[asyncio.Task[None]] = set()

    def warn(self, name: TopicName, uid: TopicUid, reason: str, message: str) -> None:
        _log.warning("%s: %s: %s", name, reason, message)
        if len(self._pending) < EVENTS_PENDING_MAX:
            topic = Regarding(TOPICS, Metadata(name=name.name, namespace=name.namespace, uid=uid))
            event = asyncio.create_task(self._events.record(topic, EventType.WARNING, reason, message))
            self._pending.add(event)
            event.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """What is not recorded in time is lost: each call has its own time limit."""
        await asyncio.gather(*self._pending, return_exceptions=True)
