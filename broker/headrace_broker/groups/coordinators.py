"""All groups that this broker coordinates: a `Coordinating` for each partition of the offsets topic that is open here.

Level-triggered, as the reconcile loop: whenever the cluster view or the holdings changed, it looks which partitions
there are, and what is new of topics. Where the offsets topic is out of sight (the API server's data is lost, or
restored), what was known of it stays: groups go on. One per process, run by one task; everything else is called on the
event loop.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import is_not
from typing import Protocol

from headrace.core.errors import CoordinatorLoadingError, NotCoordinatorError
from headrace.core.groups.coordinator import ForGroup, GroupConfigured
from headrace.core.groups.events import GroupSettings, TargetOffered
from headrace.core.groups.group import Group
from headrace.core.groups.identity import OFFSETS_TOPIC, GroupName, TopicShape, coordinator_partition
from headrace.core.groups.sight import TopicSight
from headrace.core.groups.topic_partitions import Names, names_in
from headrace.core.limits import COORDINATOR_RELOAD_MS, GROUPS_PER_COORDINATOR_MAX, OFFSETS_PARTITIONS
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionId, PartitionKey, TopicName
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.groups.coordinating import Coordinating
from headrace_broker.groups.ports import GroupsListener
from headrace_broker.groups.requests import Requests
from headrace_broker.partition import Partition

_log = logging.getLogger(__name__)
_partition_of = lru_cache(GROUPS_PER_COORDINATOR_MAX)(coordinator_partition)
"""Every request about a group asks for it."""


class OpenPartitions(Protocol):
    def find(self, key: PartitionKey) -> Partition | None:
        """None where it is not open."""


@dataclass(frozen=True, slots=True)
class CoordinatorElsewhere:
    """The broker that coordinates a group, as somebody to pass a request on to."""

    group: GroupName
    partition: PartitionId
    broker: BrokerId
    url: str
    """Empty where it is not known."""

    def error(self, why: str) -> NotCoordinatorError:
        said = f"this broker does not coordinate {self.group}; broker {self.broker} does{why}"
        return NotCoordinatorError(said, leader=self.broker, url=self.url)


class Coordinators:
    def __init__(self, me: BrokerId, namespace: str, view: ClusterView, partitions: OpenPartitions) -> None:
        """`namespace` is that of the brokers' Leases: the offsets topic is there."""
        self._me = me
        self.topic_name = TopicName(namespace, OFFSETS_TOPIC)
        self._view = view
        self._partitions = partitions
        self.listeners: list[GroupsListener] = []
        self._topic: Topic | None = None
        """As it was seen last."""
        self._here: dict[PartitionId, Coordinating] = {}
        self._tasks: dict[PartitionId, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Cancelled, and not done yet."""
        self._seen: list[Topic] = []
        """All topics, as they were looked at last."""
        self._sight = TopicSight()
        self._settings: dict[GroupName, GroupSettings] = {}
        self._names: dict[str, tuple[Mapping[str, TopicShape], Names]] = {}
        """With the topics that they were made of."""
        self._stopped = False
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        self._view.changed.others.append(self._news)
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            self.look()

    def look(self) -> None:
        if not self._view.is_complete or self._stopped:
            return
        topics = self._view.topics()
        # Most of what changes is no topic, and a Topic that has not changed is the same object.
        if len(topics) != len(self._seen) or any(map(is_not, topics, self._seen)):
            self._seen = topics
            for news in self._sight.look(topics):
                for coordinating in self._here.values():
                    coordinating.step(news)
        self._topic = next((topic for topic in topics if topic.full_name == self.topic_name), self._topic)
        for number in range(self._partition_count):
            self._look_at(PartitionId(number))

    def drain(self) -> None:
        """This broker is about to stop: whoever waits asks the next coordinator."""
        self._stopped = True
        for number in [*self._here]:
            self._end(number, "the broker stops")

    async def close(self) -> None:
        self.drain()
        await asyncio.gather(*self._ending, return_exceptions=True)

    # -- what routes need ----------------------------------------------------------------------------------------------

    def locate(self, group: GroupName) -> Coordinating | CoordinatorElsewhere:
        """Raises CoordinatorLoadingError while nobody leads the group's partition of the offsets topic, and while this
        broker does and is about to begin."""
        if self._topic is None:
            raise CoordinatorLoadingError(
                f"{group} has no coordinator yet: the topic {self.topic_name} comes with the first group of the"
                " cluster; try again"
            )
        partition = _partition_of(group, self._partition_count)
        here = self._here.get(partition)
        if here is not None and here.leads:
            here.check_begun(group)
            return here
        state = self._view.states.get(PartitionKey(self._topic.uid, partition))
        place = f"partition {partition} of {self.topic_name}"
        if state is None or state.leader is None:
            raise CoordinatorLoadingError(f"{group} has no coordinator: {place} has no leader just now; try again")
        leader = state.leader.broker
        if leader == self._me:
            raise CoordinatorLoadingError(f"broker {leader} is about to lead {place}, and to coordinate {group}")
        lease = self._view.lease(leader)
        return CoordinatorElsewhere(group, partition, leader, lease.url if lease is not None else "")

    def want(self, group: GroupName) -> None:
        """Somebody uses it: where the offsets topic is not there, that brings it."""
        if self._topic is None:
            for listener in self.listeners:
                listener.wanted(group)

    def topics(self, namespace: str) -> Mapping[str, TopicShape]:
        """As groups know them."""
        return self._sight.topics.get(namespace, {})

    def names(self, namespace: str) -> Names:
        """Of its topics, by uid."""
        topics = self.topics(namespace)
        known = self._names.get(namespace)
        if known is None or known[0] is not topics:
            known = self._names[namespace] = (topics, names_in(topics))
        return known[1]

    def partition_of(self, group: GroupName) -> PartitionId:
        """Of the offsets topic, which is there."""
        return _partition_of(group, self._partition_count)

    def leaders(self) -> dict[BrokerId, str]:
        """Everybody who leads a partition of the offsets topic, and where; the URL is empty where it is not known."""
        found: dict[BrokerId, str] = {}
        for number in range(self._partition_count):
            assert self._topic is not None, "it has partitions"
            state = self._view.states.get(PartitionKey(self._topic.uid, PartitionId(number)))
            if state is not None and state.leader is not None:
                lease = self._view.lease(state.leader.broker)
                found[state.leader.broker] = lease.url if lease is not None else ""
        return found

    @property
    def is_loading(self) -> bool:
        """Whether groups may be coordinated here that it does not know yet."""
        return any(each.leads and not each.is_active for each in self._here.values())

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return sum(each.requests.waiting for each in self._here.values())

    # -- what those need who show groups (`ports.CoordinatedGroups`) ---------------------------------------------------

    def configure(self, group: GroupName, settings: GroupSettings | None) -> None:
        if settings is None:
            self._settings.pop(group, None)
        else:
            self._settings[group] = settings
        coordinating = self._coordinating(group)
        if coordinating is not None:
            coordinating.step(GroupConfigured(group, settings))

    def offer(self, group: GroupName, target: TargetOffered) -> None:
        coordinating = self._coordinating(group)
        if coordinating is not None:
            coordinating.step(ForGroup(group, target))

    def coordinates(self, group: GroupName) -> bool:
        coordinating = self._coordinating(group)
        return coordinating is not None and coordinating.is_active

    def is_settled(self, group: GroupName) -> bool:
        coordinating = self._coordinating(group)
        return coordinating is not None and coordinating.coordinator.is_settled(group)

    def find(self, group: GroupName) -> Group | None:
        coordinating = self._coordinating(group)
        return coordinating.coordinator.groups.get(group) if coordinating is not None else None

    def all(self) -> list[Group]:
        return [group for each in self._here.values() for group in each.coordinator.groups.values()]

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _partition_count(self) -> int:
        """Partitions that somebody added to the topic coordinate nothing: groups would change their coordinators."""
        return min(self._topic.spec.partitions, OFFSETS_PARTITIONS) if self._topic is not None else 0

    def _coordinating(self, group: GroupName) -> Coordinating | None:
        if self._topic is None:
            return None
        return self._here.get(coordinator_partition(group, self._partition_count))

    def _look_at(self, number: PartitionId) -> None:
        assert self._topic is not None, "it has partitions"
        partition = self._partitions.find(PartitionKey(self._topic.uid, number))
        here = self._here.get(number)
        if here is not None and (here.partition is not partition or self._tasks[number].done()):
            self._end(number, "its partition is open here no more")
            here = None
        if here is None and partition is not None:
            self._begin(number, partition)

    def _begin(self, number: PartitionId, partition: Partition) -> None:
        coordinating = self._here[number] = Coordinating(partition, Requests(self._committed), self.listeners)
        for news in self._sight.all():
            coordinating.step(news)
        for group, settings in self._settings.items():
            if _partition_of(group, self._partition_count) == number:
                coordinating.step(GroupConfigured(group, settings))
        task = self._tasks[number] = asyncio.create_task(coordinating.run(), name=f"groups of {partition.place}")
        task.add_done_callback(self._ended)

    def _end(self, number: PartitionId, reason: str) -> None:
        self._here.pop(number).depose(reason)
        task = self._tasks.pop(number)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    def _committed(self, group: GroupName, offsets: int) -> None:
        for listener in self.listeners:
            listener.committed(group, offsets)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %r", task.get_name(), error, exc_info=error)
            asyncio.get_running_loop().call_later(COORDINATOR_RELOAD_MS / 1000, self._news.set)
