"""What a broker sees of topics, as groups are told of it: which there are, and which were deleted for sure.

A topic that is out of sight may be back: the API server's data may have been lost or restored, and brokers keep the
records. So a namespace whose topics all vanish is not told to groups, unless every one of them was on its way out. A
deletion is sure where the Topic was seen while it was being deleted together with its data, and then was gone.

One `TopicSight` per broker, for the life of the process; bounded by the topics there are, and
DELETED_TOPICS_REMEMBERED_MAX.
"""

from collections.abc import Iterable, Mapping

from headrace.core.groups.coordinator import TopicsListed
from headrace.core.groups.events import TopicDeleted
from headrace.core.groups.identity import TopicShape
from headrace.core.limits import DELETED_TOPICS_REMEMBERED_MAX
from headrace.core.resources.topic import DeletionPolicy, Topic
from headrace.core.types import TopicUid


class TopicSight:
    def __init__(self) -> None:
        self.topics: dict[str, Mapping[str, TopicShape]] = {}
        """By namespace, as groups were told last."""
        self._going: set[TopicUid] = set()
        """Those whose deletion has begun."""
        self._deleted: dict[TopicUid, None] = {}
        """Oldest first."""

    def look(self, topics: Iterable[Topic]) -> list[TopicsListed | TopicDeleted]:
        """All topics of the cluster, as they are now; what is news to groups."""
        seen: dict[str, dict[str, TopicShape]] = {}
        going: set[TopicUid] = set()
        for topic in topics:
            shape = TopicShape(topic.uid, topic.spec.partitions)
            seen.setdefault(topic.metadata.namespace, {})[topic.metadata.name] = shape
            if topic.metadata.deletion_timestamp and topic.spec.deletion_policy is DeletionPolicy.DELETE:
                going.add(topic.uid)
        present = {shape.uid for listed in seen.values() for shape in listed.values()}
        for uid in self._deleted.keys() & present:
            del self._deleted[uid]  # a restored API server has it again, and groups commit again
        deleted = sorted(self._going - present)
        self._going = going
        self._remember(deleted)
        namespaces = sorted({*self.topics, *seen})
        told = [self._listed(namespace, seen.get(namespace, {})) for namespace in namespaces]
        return [*(each for each in told if each is not None), *map(TopicDeleted, deleted)]

    def all(self) -> list[TopicsListed | TopicDeleted]:
        """For a coordinator that has heard of nothing yet."""
        listed = [TopicsListed(namespace, topics) for namespace, topics in sorted(self.topics.items())]
        return [*listed, *map(TopicDeleted, self._deleted)]

    def _listed(self, namespace: str, topics: Mapping[str, TopicShape]) -> TopicsListed | None:
        before = self.topics.get(namespace, {})
        if topics == before or (not topics and any(shape.uid not in self._deleted for shape in before.values())):
            return None
        self.topics[namespace] = topics
        return TopicsListed(namespace, topics)

    def _remember(self, deleted: Iterable[TopicUid]) -> None:
        self._deleted |= dict.fromkeys(deleted)
        while len(self._deleted) > DELETED_TOPICS_REMEMBERED_MAX:
            del self._deleted[next(iter(self._deleted))]
