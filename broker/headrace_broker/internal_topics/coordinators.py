"""All that this broker coordinates of one kind: a `LogCoordinating` for each partition of an internal topic that is
open here.

Level-triggered, as the reconcile loop: whenever the cluster view or the holdings changed, it looks which partitions
there are. Where the topic is out of sight (the API server's data is lost, or restored), what was known of it stays:
coordinators go on. One of each kind per process, run by one task; everything else is called on the event loop.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from headrace.core.errors import CoordinatorLoadingError, NotCoordinatorError
from headrace.core.limits import COORDINATOR_RELOAD_MS
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionId, PartitionKey, TopicName
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.internal_topics.coordinating import LogCoordinating
from headrace_broker.partition import Partition

_log = logging.getLogger(__name__)


class OpenPartitions(Protocol):
    def find(self, key: PartitionKey) -> Partition | None:
        """None where it is not open."""


@dataclass(frozen=True, slots=True)
class CoordinatorElsewhere:
    """The broker that coordinates something, as somebody to pass a request on to."""

    label: str
    """Whom the request is about."""
    partition: PartitionId
    broker: BrokerId
    url: str
    """Empty where it is not known."""

    def error(self, why: str) -> NotCoordinatorError:
        said = f"this broker does not coordinate {self.label}; broker {self.broker} does{why}"
        return NotCoordinatorError(said, leader=self.broker, url=self.url)


CoordinatingT = TypeVar("CoordinatingT", bound=LogCoordinating[Any, Any])


class LogCoordinators(ABC, Generic[CoordinatingT]):
    def __init__(
        self, me: BrokerId, topic: TopicName, view: ClusterView, partitions: OpenPartitions, partitions_max: int
    ) -> None:
        """`partitions_max`: what somebody adds to the topic coordinates nothing, else all would move."""
        self._me = me
        self.topic_name = topic
        self._view = view
        self._partitions = partitions
        self._partitions_max = partitions_max
        self._topic: Topic | None = None
        """As it was seen last."""
        self._here: dict[PartitionId, CoordinatingT] = {}
        self._tasks: dict[PartitionId, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Cancelled, and not done yet."""
        self._stopped = False
        self._news = asyncio.Event()

    @abstractmethod
    def _made(self, number: PartitionId, partition: Partition) -> CoordinatingT:
        """The coordinator of a partition that is open here, with what it must know before it begins."""

    def _look_at_topics(self, topics: list[Topic]) -> None:
        """What each kind makes of the topics that there are."""

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
        self._look_at_topics(topics)
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

    def _locate(self, label: str, partition: PartitionId) -> CoordinatingT | CoordinatorElsewhere:
        """Of a topic that is there. Raises CoordinatorLoadingError while nobody leads the partition, and while this
        broker does and is about to begin."""
        assert self._topic is not None, "it has partitions"
        here = self._here.get(partition)
        if here is not None and here.leads:
            here.check_begun(label)
            return here
        state = self._view.states.get(PartitionKey(self._topic.uid, partition))
        place = f"partition {partition} of {self.topic_name}"
        if state is None or state.leader is None:
            raise CoordinatorLoadingError(f"{label} has no coordinator: {place} has no leader just now; try again")
        leader = state.leader.broker
        if leader == self._me:
            raise CoordinatorLoadingError(
                f"the coordinator of {label} starts on broker {leader}; try again in a moment"
            )
        lease = self._view.lease(leader)
        return CoordinatorElsewhere(label, partition, leader, lease.url if lease is not None else "")

    @property
    def is_loading(self) -> bool:
        """Whether something may be coordinated here that it does not know yet."""
        return any(each.leads and not each.is_active for each in self._here.values())

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return sum(each.requests.waiting for each in self._here.values())

    @property
    def _partition_count(self) -> int:
        return min(self._topic.spec.partitions, self._partitions_max) if self._topic is not None else 0

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
        coordinating = self._here[number] = self._made(number, partition)
        task = self._tasks[number] = asyncio.create_task(coordinating.run(), name=f"coordinate {partition.place}")
        task.add_done_callback(self._ended)

    def _end(self, number: PartitionId, reason: str) -> None:
        self._here.pop(number).depose(reason)
        task = self._tasks.pop(number)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %r", task.get_name(), error, exc_info=error)
            asyncio.get_running_loop().call_later(COORDINATOR_RELOAD_MS / 1000, self._news.set)
