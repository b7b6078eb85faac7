"""The coordinators of this broker, of groups and of writers: one for each partition of an internal topic that is open
here.

`LocalCoordinators` are those of one internal topic. They are level-triggered, as the reconcile loop: whenever the
cluster view or the holdings changed, they look which partitions there are. If the topic is out of sight (the API
server's data is lost, or restored), the last knowledge of it stays: coordinators go on. One of each kind per process,
run by one task; everything else is called on the event loop.

`GroupCoordinators` and `WriterCoordinators` make and ask them. The first also keeps what groups must know of topics and
of ConsumerGroups. `CommitTopicMaker` makes the topics of staged commits when somebody wants to commit for the first
time; one task per broker.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import is_not
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry

from headrace.core.errors import CoordinatorLoadingError, NotCoordinatorError
from headrace.core.groups.assignment import Names, names_in
from headrace.core.groups.events import TargetOffered
from headrace.core.groups.group import Group
from headrace.core.groups.group_machine import ForGroup, GroupConfigured, VisibleTopics
from headrace.core.groups.identity import (
    OFFSETS_TOPIC,
    GroupName,
    GroupSettings,
    GroupType,
    TopicShape,
    coordinator_partition,
)
from headrace.core.limits import (
    COMMITS_PARTITIONS,
    COORDINATOR_RELOAD_MS,
    GROUPS_PER_COORDINATOR_MAX,
    INTERNAL_REPLICAS_MAX,
    OFFSETS_PARTITIONS,
    RECONCILE_BACKOFF_MAX_MS,
)
from headrace.core.records.time_rules import TimeRules
from headrace.core.resources.internal_topics import commits_manifest, staging_manifest
from headrace.core.resources.topic import Topic
from headrace.core.staging.requests import Staging
from headrace.core.staging.writers import (
    COMMITS_TOPIC,
    STAGING_TOPIC,
    WriterName,
    commits_partition,
    staging_partitions,
)
from headrace.core.types import BrokerId, PartitionId, PartitionKey, TopicName, TopicUid
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError
from headrace.kube.resource import TOPICS
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.locator import OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.group_coordinator import GroupCoordinator, GroupsListener
from headrace_broker.coordinators.writer_coordinator import (
    PartitionAccess,
    RollForward,
    WriterCoordinator,
    WriterMetrics,
)
from headrace_broker.partition.partition import Partition

ROLL_SHARES_MAX = 8
"""The partitions that one coordinator gives their shares at the same time."""


_log = logging.getLogger(__name__)
CoordinatorT = TypeVar("CoordinatorT", GroupCoordinator, WriterCoordinator)
_partition_of = lru_cache(GROUPS_PER_COORDINATOR_MAX)(coordinator_partition)
"""The partition of a group: every request about the group asks for it."""


@dataclass(frozen=True, slots=True)
class CoordinatorElsewhere:
    """Another broker that coordinates something, to pass a request on to."""

    label: str
    """The group or writer that the request is about."""
    partition: PartitionId
    broker: BrokerId
    url: str
    """The URL of the broker; empty where it is not known."""

    def error(self, why: str) -> NotCoordinatorError:
        said = f"this broker does not coordinate {self.label}; broker {self.broker} does{why}"
        return NotCoordinatorError(said, leader=self.broker, url=self.url)


class LocalCoordinators(Generic[CoordinatorT]):
    def __init__(
        self,
        me: BrokerId,
        topic: TopicName,
        view: ClusterView,
        partitions: OpenPartitions,
        partitions_max: int,
        make: Callable[[PartitionId, Partition], CoordinatorT],
    ) -> None:
        """`make` gives the coordinator of a partition that is open here, with what it must know before it begins.
        Partitions that somebody adds to the topic above `partitions_max` coordinate nothing, else all would move."""
        self._me = me
        self.topic_name = topic
        self._view = view
        self._partitions = partitions
        self._partitions_max = partitions_max
        self._make: Callable[[PartitionId, Partition], CoordinatorT] = make
        self.on_topics: Callable[[list[Topic]], None] = lambda _: None
        """The function that is called with all topics that there are, before partitions are looked at."""
        self.topic: Topic | None = None
        """The internal topic, as it was seen last."""
        self._here: dict[PartitionId, CoordinatorT] = {}
        self._tasks: dict[PartitionId, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """The tasks that were cancelled, and are not done yet."""
        self._stopped = False
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Look again whenever there is news, until this is cancelled."""
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
        self.on_topics(topics)
        self.topic = next((topic for topic in topics if topic.full_name == self.topic_name), self.topic)
        for number in range(self.partition_count):
            self._look_at(PartitionId(number))

    def drain(self) -> None:
        """End all coordinators, as this broker is about to stop: waiting clients ask the next coordinator."""
        self._stopped = True
        for number in [*self._here]:
            self._end(number, "the broker stops")

    async def close(self) -> None:
        self.drain()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def locate(self, label: str, partition: PartitionId) -> CoordinatorT | CoordinatorElsewhere:
        """Find who coordinates this partition of a topic that is there. Raise CoordinatorLoadingError while nobody
        leads the partition, and while this broker does and is about to begin."""
        assert self.topic is not None, "it has partitions"
        here = self._here.get(partition)
        if here is not None and here.shell.leads:
            here.shell.check_begun(label)
            return here
        state = self._view.states.get(PartitionKey(self.topic.uid, partition))
        place = f"partition {partition} of {self.topic_name}"
        if state is None or state.leader is None:
            raise CoordinatorLoadingError(f"{label} has no coordinator: {place} has no leader just now; try again")
        leader = state.leader.broker
        if leader == self._me:
            raise CoordinatorLoadingError(
                f"the coordinator of {label} starts on broker {leader}; try again in a moment"
            )
        return CoordinatorElsewhere(label, partition, leader, self._view.url_of(leader))

    def find(self, partition: PartitionId) -> CoordinatorT | None:
        """Return the coordinator of this partition, active or not; None where the partition is not open here."""
        return self._here.get(partition)

    def all(self) -> Collection[CoordinatorT]:
        return self._here.values()

    @property
    def is_loading(self) -> bool:
        """Return whether something may be coordinated here whose log is not read yet."""
        return any(each.shell.leads and not each.shell.is_active for each in self._here.values())

    @property
    def waiting(self) -> int:
        """The number of requests that are not answered yet."""
        return sum(each.shell.requests.waiting for each in self._here.values())

    @property
    def partition_count(self) -> int:
        return min(self.topic.spec.partitions, self._partitions_max) if self.topic is not None else 0

    def _look_at(self, number: PartitionId) -> None:
        assert self.topic is not None, "it has partitions"
        partition = self._partitions.find(PartitionKey(self.topic.uid, number))
        here = self._here.get(number)
        if here is not None and (here.shell.partition is not partition or self._tasks[number].done()):
            self._end(number, "its partition is open here no more")
            here = None
        if here is None and partition is not None:
            self._begin(number, partition)

    def _begin(self, number: PartitionId, partition: Partition) -> None:
        coordinator = self._here[number] = self._make(number, partition)
        task = self._tasks[number] = asyncio.create_task(coordinator.shell.run(), name=f"coordinate {partition.place}")
        task.add_done_callback(self._ended)

    def _end(self, number: PartitionId, reason: str) -> None:
        self._here.pop(number).shell.depose(reason)
        task = self._tasks.pop(number)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %r", task.get_name(), error, exc_info=error)
            asyncio.get_running_loop().call_later(COORDINATOR_RELOAD_MS / 1000, self._news.set)


class GroupCoordinators:
    def __init__(self, me: BrokerId, namespace: str, view: ClusterView, partitions: OpenPartitions) -> None:
        """Coordinate nothing yet; `namespace` is that of the brokers' Leases, with the offsets topic."""
        topic = TopicName(namespace, OFFSETS_TOPIC)
        self.local = LocalCoordinators(me, topic, view, partitions, OFFSETS_PARTITIONS, self._make)
        self.local.on_topics = self._look_at_topics
        self._view = view
        self.listeners: list[GroupsListener] = []
        self._seen: list[Topic] = []
        """The list of all topics, as they were looked at last."""
        self._visible = VisibleTopics()
        self._settings: dict[GroupName, GroupSettings] = {}
        self._names: dict[str, tuple[Mapping[str, TopicShape], Names]] = {}
        """The names of each namespace's topics, with the topics that they were made of."""

    def _look_at_topics(self, topics: list[Topic]) -> None:
        # Most of what changes is no topic, and a Topic that has not changed is the same object.
        if len(topics) != len(self._seen) or any(map(is_not, topics, self._seen)):
            self._seen = topics
            for news in self._visible.look(topics):
                for coordinator in self.local.all():
                    coordinator.shell.step(news)

    def _make(self, number: PartitionId, partition: Partition) -> GroupCoordinator:
        made = GroupCoordinator(partition, self.listeners)
        for news in self._visible.all():
            made.shell.step(news)
        for group, settings in self._settings.items():
            if self.partition_of(group) == number:
                made.shell.step(GroupConfigured(group, settings))
        return made

    # -- what routes need ----------------------------------------------------------------------------------------------

    def locate(self, group: GroupName) -> GroupCoordinator | CoordinatorElsewhere:
        """Find who coordinates the group. Raise CoordinatorLoadingError while nobody leads its partition of the
        offsets topic, and while this broker does and is about to begin."""
        if self.local.topic is None:
            raise CoordinatorLoadingError(
                f"{group} has no coordinator yet: the topic {self.local.topic_name} comes with the first group of the"
                " cluster; try again"
            )
        return self.local.locate(str(group), self.partition_of(group))

    def want(self, group: GroupName, group_type: GroupType) -> None:
        """Note that somebody uses the group as one of this type: where the offsets topic is not there, that brings
        it."""
        if self.local.topic is None:
            for listener in self.listeners:
                listener.wanted(group, group_type)

    def topics(self, namespace: str) -> Mapping[str, TopicShape]:
        """Return the topics of a namespace, as groups know them."""
        return self._visible.topics.get(namespace, {})

    def names(self, namespace: str) -> Names:
        """Return the names of its topics, by uid."""
        topics = self.topics(namespace)
        known = self._names.get(namespace)
        if known is None or known[0] is not topics:
            known = self._names[namespace] = (topics, names_in(topics))
        return known[1]

    def partition_of(self, group: GroupName) -> PartitionId:
        """Return the group's partition of the offsets topic, which is there."""
        return _partition_of(group, self.local.partition_count)

    def leaders(self) -> dict[BrokerId, str]:
        """Return each broker that leads a partition of the offsets topic, with its URL, which is empty where it is not
        known."""
        found: dict[BrokerId, str] = {}
        for number in range(self.local.partition_count):
            assert self.local.topic is not None, "it has partitions"
            state = self._view.states.get(PartitionKey(self.local.topic.uid, PartitionId(number)))
            if state is not None and state.leader is not None:
                found[state.leader.broker] = self._view.url_of(state.leader.broker)
        return found

    # -- `CoordinatedGroups` -------------------------------------------------------------------------------------------

    def configure(self, group: GroupName, settings: GroupSettings | None) -> None:
        if settings is None:
            self._settings.pop(group, None)
        else:
            self._settings[group] = settings
        coordinator = self._coordinator(group)
        if coordinator is not None:
            coordinator.shell.step(GroupConfigured(group, settings))

    def offer(self, group: GroupName, target: TargetOffered) -> None:
        coordinator = self._coordinator(group)
        if coordinator is not None:
            coordinator.shell.step(ForGroup(group, target))

    def coordinates(self, group: GroupName) -> bool:
        coordinator = self._coordinator(group)
        return coordinator is not None and coordinator.shell.is_active

    def is_settled(self, group: GroupName) -> bool:
        coordinator = self._coordinator(group)
        return coordinator is not None and coordinator.machine.is_settled(group)

    def find(self, group: GroupName) -> Group | None:
        coordinator = self._coordinator(group)
        return coordinator.machine.groups.get(group) if coordinator is not None else None

    def is_known(self, group: GroupName) -> bool:
        """Return whether the group is there, or somebody has made a ConsumerGroup for it."""
        return self.find(group) is not None or group in self._settings

    def all(self) -> list[Group]:
        return [group for each in self.local.all() for group in each.machine.groups.values()]

    def _coordinator(self, group: GroupName) -> GroupCoordinator | None:
        return self.local.find(self.partition_of(group)) if self.local.topic is not None else None


class WriterCoordinators:
    def __init__(
        self,
        me: BrokerId,
        namespace: str,
        view: ClusterView,
        partitions: OpenPartitions,
        access: PartitionAccess,
        registry: CollectorRegistry,
    ) -> None:
        """Coordinate nothing yet; `namespace` is that of the brokers' Leases, with both topics."""
        topic = TopicName(namespace, COMMITS_TOPIC)
        self.local = LocalCoordinators(me, topic, view, partitions, COMMITS_PARTITIONS, self._make)
        self.local.on_topics = self._look_at_topics
        self._view = view
        self.staging_name = TopicName(namespace, STAGING_TOPIC)
        self.wanted = asyncio.Event()
        """Set when somebody wants to commit, and a topic for it is not there."""
        self._access = access
        self._staging: Topic | None = None
        self._roll_forward = RollForward(access, self.staging_name, asyncio.Semaphore(ROLL_SHARES_MAX))
        self._metrics = WriterMetrics(registry)
        self._metrics.writers.set_function(lambda: sum(each.machine.count for each in self.local.all()))

    def locate(self, writer: WriterName) -> WriterCoordinator | CoordinatorElsewhere:
        """Find who decides for the writer. Raise CoordinatorLoadingError while there is nobody, and no place for
        stages: then both topics are about to be made."""
        if self.local.topic is None or self._staging is None:
            self.wanted.set()
            raise CoordinatorLoadingError(
                f"writer {writer} has no coordinator yet: the topics {COMMITS_TOPIC} and {STAGING_TOPIC} come with the"
                " first writer of the cluster; try again"
            )
        return self.local.locate(f"writer {writer}", commits_partition(writer))

    def staging(self, writer: WriterName) -> Staging:
        """Return where its stages belong, once `locate` has found who decides for it."""
        assert self._staging is not None, "located"
        numbers = tuple(map(PartitionId, staging_partitions(commits_partition(writer))))
        return Staging(self.staging_name, self._staging.uid, numbers)

    def _look_at_topics(self, topics: list[Topic]) -> None:
        found = next((topic for topic in topics if topic.full_name == self.staging_name), None)
        self._staging = found or self._staging
        for coordinator in self.local.all():
            self._introduce(coordinator)

    def _make(self, number: PartitionId, partition: Partition) -> WriterCoordinator:
        made = WriterCoordinator(
            partition, self._access, self.staging_name, self._roll_forward, self._metrics, self._time_rules
        )
        self._introduce(made)
        return made

    def _time_rules(self, topic: TopicUid) -> TimeRules | None:
        spec = self._view.specs().get(topic)
        return None if spec is None else TimeRules.of_topic(spec)

    def _introduce(self, coordinator: WriterCoordinator) -> None:
        coordinator.staging_uid = None if self._staging is None else self._staging.uid


class CommitTopicMaker:
    def __init__(self, client: KubeClient, view: ClusterView, writers: WriterCoordinators) -> None:
        self._client = client
        self._view = view
        self._writers = writers

    async def run(self) -> None:
        """Make the topics when they are wanted, until this is cancelled. A topic that cannot be made is tried again
        while somebody asks."""
        while True:
            await self._writers.wanted.wait()
            self._writers.wanted.clear()
            try:
                await self._make()
            except ApiError as error:
                _log.warning("the topics of staged commits cannot be made: %s", error)
            await asyncio.sleep(RECONCILE_BACKOFF_MAX_MS / 1000)

    async def _make(self) -> None:
        replicas = min(INTERNAL_REPLICAS_MAX, max(1, len(self._view.ready_seats(monotonic_ms()))))
        namespace, cluster = self._writers.local.topic_name.namespace, self._view.cluster
        for manifest in (
            staging_manifest(namespace, cluster, replicas),
            commits_manifest(namespace, cluster, replicas),
        ):
            name = manifest["metadata"]["name"]
            try:
                await self._client.create(TOPICS, manifest)
            except AlreadyExistsError:
                continue  # another broker was asked as well
            _log.info("made the topic %s/%s with %d replicas: somebody commits", namespace, name, replicas)
