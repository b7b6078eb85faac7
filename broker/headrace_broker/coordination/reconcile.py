"""The loop that makes this broker hold what the API server says: observe, plan (pure), carry out.

Level-triggered: woken whenever the cluster view or the holdings changed, it hands open partitions their state and
carries out what `plan_residency` says. Writes go out one by one, by compare-and-set on the version that the plan saw; a
conflict means to read again and plan anew. While the API server is away nothing here happens, and partitions that are
led go on.
"""

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import assert_never

from headrace.core.replication.residency import (
    Action,
    Delete,
    Observed,
    Open,
    Orphan,
    Purge,
    Report,
    Restore,
    Write,
    plan_residency,
)
from headrace.core.replication.seats import is_superseded
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Seat, TopicName, TopicUid
from headrace.kube.backoff import Backoff
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, ConflictError, InvalidObjectError, NotFoundError
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import PARTITION_SETS, TOPICS
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.coordination.lease import SupersededError
from headrace_broker.holdings import Holdings
from headrace_broker.opening import Opener
from headrace_broker.storage.partition_description import PartitionDescription

_log = logging.getLogger(__name__)


class Reconciler:
    """One per process, run by one task."""

    def __init__(self, me: Seat, client: KubeClient, view: ClusterView, holdings: Holdings, opener: Opener) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._holdings = holdings
        self._opener = opener
        self._events = EventRecorder(client, f"headrace-broker-{me.broker}")
        self._backoff = Backoff(Random())
        self._reported: set[Report] = set()
        self.settled = asyncio.Event()
        """Set once everything that belongs here was opened and claimed for the first time."""

    async def run(self) -> None:
        """Until it is cancelled. Raises SupersededError."""
        while True:
            await self._view.changed.wait()
            self._view.changed.clear()
            if self._view.is_complete:
                await self._reconcile()

    async def _reconcile(self) -> None:
        sets = self._view.sets(key.uid for key in self._holdings.held())
        if is_superseded(self._me, sets):
            raise SupersededError(f"a seat is of a later life than {self._me}: this process must not go on")
        specs = {**self._holdings.specs(), **self._view.specs()}
        self._apply(specs)
        # Only now: a partition that is being configured is busy, and nothing else may happen to it.
        held, logs = self._holdings.held(), self._holdings.logs(self._view.states)
        actions = plan_residency(Observed(self._me, sets, held, logs, specs.keys(), self._holdings.overdue))
        for action in actions:
            await self._carry_out(action, specs)
        if all(isinstance(action, Report) for action in actions) and not self._holdings.is_busy:
            self.settled.set()

    def _apply(self, specs: Mapping[TopicUid, TopicSpec]) -> None:
        for partition in self._holdings.open_partitions():
            state, spec = self._view.states.get(partition.key), specs.get(partition.key.uid)
            if state is not None:
                partition.apply(state)
            if spec is not None:
                self._holdings.configure(partition.key, spec)

    async def _carry_out(self, action: Action, specs: Mapping[TopicUid, TopicSpec]) -> None:
        match action:
            case Open(key, topic, state, reason):
                _log.debug("%s/%d: opening: %s", topic, key.partition, reason)
                description = PartitionDescription(topic, key, specs[key.uid].to_object())
                self._holdings.open(description, specs[key.uid], state, self._opener)
            case Delete(key, reason):
                _log.info("%s: deleting the data: %s", key, reason)
                self._holdings.delete(key)
            case Orphan(key, reason):
                self._holdings.orphan(key)
                await self._tell(self._holdings.topic_of(key), key.uid, "DataOrphaned", f"{key}: {reason}")
            case Purge(key, reason):
                _log.warning("%s (%s): deleting the orphaned data: %s", key, self._holdings.topic_of(key), reason)
                self._holdings.purge(key)
            case Restore(key, reason):
                _log.info("%s: taking the data back: %s", key, reason)
                self._holdings.restore(key)
            case Write():
                await self._write(action)
            case Report(key, topic, reason):
                if action not in self._reported:
                    self._reported.add(action)
                    await self._tell(topic, key.uid, "MetadataRegressed", f"partition {key.partition}: {reason}")
            case _:
                assert_never(action)

    async def _write(self, write: Write) -> None:
        try:
            written = await self._client.replace(PARTITION_SETS, write.partition_set.to_object())
        except (ConflictError, NotFoundError) as error:
            _log.info("%s changed meanwhile, reading it again: %s", write.partition_set.metadata.name, error)
            await self._read_again(write.partition_set)
        except InvalidObjectError as error:
            _log.error("the API server refuses %s: %s", write.partition_set.metadata.name, error)
        except ApiError as error:
            await self._retry_later(error)
        else:
            self._backoff.reset()
            _log.info("wrote %s: %s", written.metadata.name, "; ".join(write.reasons))
            self._view.put_set(written)
            for loss in write.losses:
                await self._tell(written.topic_name, written.topic_uid, "RecordsMayBeLost", loss)

    async def _read_again(self, partition_set: PartitionSet) -> None:
        metadata = partition_set.metadata
        try:
            self._view.put_set(await self._client.get(PARTITION_SETS, metadata.name, metadata.namespace))
        except NotFoundError:
            self._view.remove_set(partition_set)
        except ApiError as error:
            await self._retry_later(error)

    async def _retry_later(self, error: ApiError) -> None:
        wait_ms = self._backoff.next_ms()
        _log.warning("the API server does not answer, trying again in %.0f ms: %s", wait_ms, error)
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._view.changed.set)

    async def _tell(self, name: TopicName, uid: TopicUid, reason: str, message: str) -> None:
        """A Warning for the Topic's owner, whether the Topic is still there or not."""
        _log.warning("%s: %s: %s", name, reason, message)
        topic = Metadata(name=name.name, namespace=name.namespace, uid=uid)
        await self._events.record(Regarding(TOPICS, topic), EventType.WARNING, reason, message)
