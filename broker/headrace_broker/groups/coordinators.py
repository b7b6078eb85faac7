"""All groups that this broker coordinates: a `Coordinating` for each partition of the offsets topic that is open here
(`internal_topics.coordinators`), and what these must know of topics and of ConsumerGroups. One per process."""

import logging
from collections.abc import Mapping
from functools import lru_cache
from operator import is_not

from headrace.core.errors import CoordinatorLoadingError
from headrace.core.groups.assignment import Names, names_in
from headrace.core.groups.coordinator import ForGroup, GroupConfigured, VisibleTopics
from headrace.core.groups.events import TargetOffered
from headrace.core.groups.group import Group
from headrace.core.groups.identity import (
    OFFSETS_TOPIC,
    GroupName,
    GroupSettings,
    GroupType,
    TopicShape,
    coordinator_partition,
)
from headrace.core.limits import GROUPS_PER_COORDINATOR_MAX, OFFSETS_PARTITIONS
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionId, PartitionKey, TopicName
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.groups.coordinating import Coordinating
from headrace_broker.groups.ports import GroupsListener
from headrace_broker.internal_topics.coordinators import CoordinatorElsewhere, LogCoordinators, OpenPartitions
from headrace_broker.internal_topics.requests import Requests
from headrace_broker.partition import Partition

_log = logging.getLogger(__name__)
_partition_of = lru_cache(GROUPS_PER_COORDINATOR_MAX)(coordinator_partition)
"""Every request about a group asks for it."""


class Coordinators(LogCoordinators[Coordinating]):
    def __init__(self, me: BrokerId, namespace: str, view: ClusterView, partitions: OpenPartitions) -> None:
        """`namespace` is that of the brokers' Leases: the offsets topic is there."""
        super().__init__(me, TopicName(namespace, OFFSETS_TOPIC), view, partitions, OFFSETS_PARTITIONS)
        self.listeners: list[GroupsListener] = []
        self._seen: list[Topic] = []
        """All topics, as they were looked at last."""
        self._sight = VisibleTopics()
        self._settings: dict[GroupName, GroupSettings] = {}
        self._names: dict[str, tuple[Mapping[str, TopicShape], Names]] = {}
        """With the topics that they were made of."""

    def _look_at_topics(self, topics: list[Topic]) -> None:
        # Most of what changes is no topic, and a Topic that has not changed is the same object.
        if len(topics) != len(self._seen) or any(map(is_not, topics, self._seen)):
            self._seen = topics
            for news in self._sight.look(topics):
                for coordinating in self._here.values():
                    coordinating.step(news)

    def _made(self, number: PartitionId, partition: Partition) -> Coordinating:
        coordinating = Coordinating(partition, Requests(), self.listeners)
        for news in self._sight.all():
            coordinating.step(news)
        for group, settings in self._settings.items():
            if _partition_of(group, self._partition_count) == number:
                coordinating.step(GroupConfigured(group, settings))
        return coordinating

    # -- what routes need ----------------------------------------------------------------------------------------------

    def locate(self, group: GroupName) -> Coordinating | CoordinatorElsewhere:
        """Raises CoordinatorLoadingError while nobody leads the group's partition of the offsets topic, and while this
        broker does and is about to begin."""
        if self._topic is None:
            raise CoordinatorLoadingError(
                f"{group} has no coordinator yet: the topic {self.topic_name} comes with the first group of the"
                " cluster; try again"
            )
        return self._locate(str(group), _partition_of(group, self._partition_count))

    def want(self, group: GroupName, group_type: GroupType) -> None:
        """Somebody uses it as what it is then: where the offsets topic is not there, that brings it."""
        if self._topic is None:
            for listener in self.listeners:
                listener.wanted(group, group_type)

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

    def is_known(self, group: GroupName) -> bool:
        """It is there, or somebody has made a ConsumerGroup for it."""
        return self.find(group) is not None or group in self._settings

    def all(self) -> list[Group]:
        return [group for each in self._here.values() for group in each.coordinator.groups.values()]

    def _coordinating(self, group: GroupName) -> Coordinating | None:
        if self._topic is None:
            return None
        return self._here.get(coordinator_partition(group, self._partition_count))
