"""The way from a path to its partition: here, or at the broker that leads it, or a refusal that says when to come back.

One per process. Routes, sessions and the coordinator of writers ask it; nothing here waits, so that all checks that
need no body are made before a body is read.
"""

from dataclasses import dataclass
from typing import Protocol

from headrace.core.errors import NotLeaderError, NotReadyError, PartitionOfflineError
from headrace.core.log.epochs import Fence
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionKey, TopicName
from headrace_broker.cluster.view import ClusterView
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Place


class OpenPartitions(Protocol):
    """The partitions that are open on this broker."""

    def find(self, key: PartitionKey) -> Partition | None:
        """None where it is not open."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The leader of a partition that this broker does not lead."""

    place: Place
    leader: BrokerId
    url: str
    """Empty where it is not known."""

    def error(self, why: str) -> NotLeaderError:
        return NotLeaderError(
            f"this broker does not lead {self.place}; broker {self.leader} does{why}", leader=self.leader, url=self.url
        )


class Locator:
    def __init__(self, me: BrokerId, view: ClusterView, partitions: OpenPartitions) -> None:
        self._me = me
        self._view = view
        self._partitions = partitions

    def topic(self, name: TopicName, fence: Fence) -> Topic:
        """Raises NotReadyError, UnknownTopicError, StaleTopicError."""
        self._view.check_complete()
        topic = self._view.topic(name)
        fence.check_topic(str(name), topic.uid)
        return topic

    def locate(self, place: Place, fence: Fence) -> Partition | Elsewhere:
        """Raises what `topic` raises, UnknownPartitionError, PartitionOfflineError, NotReadyError."""
        topic = self.topic(place.topic, fence)
        state = self._view.state(topic, place.partition)
        partition = self._partitions.find(PartitionKey(topic.uid, place.partition))
        if partition is not None and partition.leads:
            return partition
        if state is None:
            raise PartitionOfflineError(f"{place} is not placed on a broker yet; try again")
        if state.leader is None:
            raise PartitionOfflineError(f"{place} has no leader just now; try again")
        if state.leader.broker == self._me:
            if partition is not None:
                partition.replica.check_not_regressed(str(place))
            raise NotReadyError(f"broker {self._me} is about to lead {place}; try again")
        return Elsewhere(place, state.leader.broker, self._view.url_of(state.leader.broker))
