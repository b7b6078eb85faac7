"""All writers that this broker decides for: a `WriterCoordinating` for each partition of the commits topic that is open
here (`internal_topics.coordinators`). One per process."""

import asyncio

from prometheus_client import CollectorRegistry

from headrace.core.errors import CoordinatorLoadingError
from headrace.core.limits import COMMITS_PARTITIONS, ROLL_SHARES_MAX
from headrace.core.records.time_rules import TimeRules
from headrace.core.resources.topic import Topic
from headrace.core.staging.requests import Staging
from headrace.core.staging.writers import (
    COMMITS_TOPIC,
    STAGING_TOPIC,
    WriterName,
    commits_partition,
    staging_partitions,
)
from headrace.core.types import BrokerId, PartitionId, TopicName, TopicUid
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.internal_topics.coordinators import CoordinatorElsewhere, LogCoordinators, OpenPartitions
from headrace_broker.partition import Partition
from headrace_broker.staging.coordinating import WriterCoordinating
from headrace_broker.staging.metrics import WriterMetrics
from headrace_broker.staging.reach import Reach
from headrace_broker.staging.rolling import Rolling


class WriterCoordinators(LogCoordinators[WriterCoordinating]):
    def __init__(
        self,
        me: BrokerId,
        namespace: str,
        view: ClusterView,
        partitions: OpenPartitions,
        reach: Reach,
        registry: CollectorRegistry,
    ) -> None:
        """`namespace` is that of the brokers' Leases: both topics are there."""
        super().__init__(me, TopicName(namespace, COMMITS_TOPIC), view, partitions, COMMITS_PARTITIONS)
        self.staging_name = TopicName(namespace, STAGING_TOPIC)
        self.wanted = asyncio.Event()
        """Somebody wants to commit, and a topic for it is not there."""
        self._reach = reach
        self._staging: Topic | None = None
        self._rolling = Rolling(reach, self.staging_name, asyncio.Semaphore(ROLL_SHARES_MAX))
        self._metrics = WriterMetrics(registry)
        self._metrics.writers.set_function(lambda: sum(len(each.coordinator.writers) for each in self._here.values()))

    def locate(self, writer: WriterName) -> WriterCoordinating | CoordinatorElsewhere:
        """Raises CoordinatorLoadingError while there is none, and no stages: then both topics are about to be made."""
        if self._topic is None or self._staging is None:
            self.wanted.set()
            raise CoordinatorLoadingError(
                f"writer {writer} has no coordinator yet: the topics {COMMITS_TOPIC} and {STAGING_TOPIC} come with the"
                " first writer of the cluster; try again"
            )
        return self._locate(f"writer {writer}", commits_partition(writer))

    def staging(self, writer: WriterName) -> Staging:
        """Where its stages belong, once `locate` has found who decides for it."""
        assert self._staging is not None, "located"
        numbers = tuple(map(PartitionId, staging_partitions(commits_partition(writer))))
        return Staging(self.staging_name, self._staging.uid, numbers)

    def _look_at_topics(self, topics: list[Topic]) -> None:
        found = next((topic for topic in topics if topic.full_name == self.staging_name), None)
        self._staging = found or self._staging
        for coordinating in self._here.values():
            self._introduce(coordinating)

    def _made(self, number: PartitionId, partition: Partition) -> WriterCoordinating:
        made = WriterCoordinating(
            partition, self._reach, self.staging_name, self._rolling, self._metrics, self._time_rules
        )
        self._introduce(made)
        return made

    def _time_rules(self, topic: TopicUid) -> TimeRules | None:
        spec = self._view.specs().get(topic)
        return None if spec is None else TimeRules.of_topic(spec)

    def _introduce(self, coordinating: WriterCoordinating) -> None:
        coordinating.staging_uid = None if self._staging is None else self._staging.uid
