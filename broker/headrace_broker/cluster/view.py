"""The cluster as this broker knows it from its watches: topics, who leads, and where the brokers are.

One endless watch per kind keeps the view up to date for the whole life of the process; the answers to this broker's own
writes change it too. All of it runs on the event loop; it is read by routes, coordinators and the reconcile loop. It
stays as it was last seen during an outage of the API server. An object never goes back to an older version: of two
versions of a PartitionSet the one that is nowhere older stays, by partition epoch and by what else never goes back:
which partitions there are, and that the data is to be deleted.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from hmac import compare_digest
from typing import Any

from headrace.core.control.liveness import Liveness
from headrace.core.errors import NotReadyError, UnknownPartitionError, UnknownTopicError
from headrace.core.replication.seats import older_partitions
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease, Doubts
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import BrokerId, PartitionId, PartitionKey, Seat, TopicName, TopicUid
from headrace.kube.client import KubeClient
from headrace.kube.resource import LEASES, PARTITION_SETS, TOPICS
from headrace.kube.watch import Changed, Listed, Removed, watch
from headrace_broker.clock import monotonic_ms

_log = logging.getLogger(__name__)


class News(asyncio.Event):
    """An event that has more than one reader: each of the others clears an event of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[asyncio.Event] = []

    def set(self) -> None:
        super().set()
        for other in self.others:
            other.set()


class ClusterView:
    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.changed = News()
        """An event that is set whenever topics or their states changed, not by Leases; the reconcile loop clears it."""
        self._topics: dict[TopicName, Topic] = {}
        self._sets: dict[tuple[str, str], PartitionSet] = {}
        self.states: dict[PartitionKey, PartitionState] = {}
        """The state of every partition of every set, for reading."""
        self._leases: dict[BrokerId, BrokerLease] = {}
        self.doubts: Doubts | None = None
        """The doubts about what Leases say of brokers' addresses; None before this process has a URL of its own."""
        self._liveness = Liveness()
        self._listed: set[str] = set()
        self._doubted: set[str] = set()
        """The uids of sets of which something older than what is known was shown: by a late watch, or because the API
        server's data went back."""

    @property
    def is_complete(self) -> bool:
        """Return whether everything has been listed at least once."""
        return self._listed == {"topics", "sets", "leases"}

    def check_complete(self) -> None:
        """Raises NotReadyError until everything has been listed."""
        if not self.is_complete:
            raise NotReadyError("this broker does not know its topics yet; try again")

    def topics(self) -> list[Topic]:
        """Return the cluster's topics, by name."""
        return [topic for _, topic in sorted(self._topics.items()) if topic.spec.cluster == self.cluster]

    def topic(self, name: TopicName) -> Topic:
        """Return the topic. Raises UnknownTopicError."""
        topic = self._topics.get(name)
        if topic is None or topic.spec.cluster != self.cluster:
            raise UnknownTopicError(
                f"topic {name.name!r} does not exist in namespace {name.namespace!r}; `kubectl apply` a Topic first",
                topic=str(name),
            )
        return topic

    def state(self, topic: Topic, partition: PartitionId) -> PartitionState | None:
        """Return the state; None where the operator has not placed the partition yet. Raises UnknownPartitionError."""
        if partition >= topic.spec.partitions:
            raise UnknownPartitionError(
                f"partition {partition} of topic {topic.full_name} does not exist: it has {topic.spec.partitions}, from"
                f" 0 to {topic.spec.partitions - 1}",
                partitions=topic.spec.partitions,
            )
        return self.states.get(PartitionKey(topic.uid, partition))

    def sets(self, held: Iterable[TopicUid] = ()) -> list[PartitionSet]:
        """Return the sets of the cluster's topics, and of the topics in `held`, whose data is here whatever the API
        shows."""
        uids = {topic.uid for topic in self.topics()} | set(held)
        return [partition_set for partition_set in self._sets.values() if partition_set.topic_uid in uids]

    def specs(self) -> dict[TopicUid, TopicSpec]:
        return {topic.uid: topic.spec for topic in self.topics()}

    def lease(self, broker: BrokerId) -> BrokerLease | None:
        return self._leases.get(broker)

    def url_of(self, broker: BrokerId) -> str:
        """Return the URL that the broker's Lease says; empty where there is none."""
        lease = self._leases.get(broker)
        return lease.url if lease is not None else ""

    def has_peer_key(self, key: str) -> bool:
        """Return whether some broker's Lease has this key."""
        said = key.encode(errors="replace")
        return any(each.peer_key and compare_digest(each.peer_key.encode(), said) for each in self._leases.values())

    def brokers(self) -> list[tuple[BrokerLease, str]]:
        """Return each broker with its state: Ready, Draining, Stopped or Lost.

        A broker is lost when its Lease stands still while others change: when all stand still, this broker itself is
        out of touch with the API server and knows nothing new.
        """
        as_of_ms = self._liveness.last_change_ms()
        return [(lease, self._state_of(lease, as_of_ms)) for _, lease in sorted(self._leases.items())]

    def ready_seats(self, now_ms: int) -> frozenset[Seat]:
        """Return the seats of all brokers whose Leases are live by this broker's own clock, that do not drain and have
        room."""
        ready = (lease for lease in self._leases.values() if not (lease.clean or lease.draining or lease.full))
        live = (lease for lease in ready if lease.incarnation > 0 and self._liveness.is_live(lease.broker, now_ms))
        return frozenset(Seat(lease.broker, lease.incarnation) for lease in live)

    def regressed(self, now_ms: int) -> frozenset[TopicUid]:
        """Return the topics of which any broker that is live knows later states than the API server."""
        live = (lease for lease in self._leases.values() if self._liveness.is_live(lease.broker, now_ms))
        return frozenset(uid for lease in live for uid in lease.regressed)

    def take_doubted(self) -> set[str]:
        """Take the uids of sets that must be read to know whether they went back in time; each is returned once."""
        doubted, self._doubted = self._doubted, set()
        return doubted

    def _state_of(self, lease: BrokerLease, as_of_ms: int) -> str:
        if lease.clean:
            return "Stopped"
        if not self._liveness.is_live(lease.broker, as_of_ms):
            return "Lost"
        return "Draining" if lease.draining else "Ready"

    def list_topics(self, topics: Iterable[Topic]) -> None:
        self._topics = {topic.full_name: topic for topic in topics}
        self._note_listed("topics")

    def put_topic(self, topic: Topic) -> None:
        self._topics[topic.full_name] = topic
        self.changed.set()

    def remove_topic(self, topic: Topic) -> None:
        self._topics.pop(topic.full_name, None)
        self.changed.set()

    def list_sets(self, sets: Iterable[PartitionSet]) -> None:
        listed = {_name(partition_set): partition_set for partition_set in sets}
        for gone in [known for name, known in self._sets.items() if name not in listed]:
            self.remove_set(gone)
        for partition_set in listed.values():
            self.put_set(partition_set)
        self._note_listed("sets")

    def put_set(self, changed: PartitionSet) -> None:
        known = self._sets.get(_name(changed))
        if known is not None and _is_newer(known, changed):
            self._doubted.add(known.metadata.uid)
            self.changed.set()
            return
        if known is not None:
            self._forget(known)
        self._sets[_name(changed)] = changed
        self.states.update((changed.key(state.id), state) for state in changed.partitions)
        self.changed.set()

    def put_answer(self, answered: PartitionSet) -> None:
        """Put the answer of a call about a set, if that set is still there: the answer may come later than the watch.

        A set that was deleted meanwhile, and maybe made anew under the same name, must not return.
        """
        known = self._sets.get(_name(answered))
        if known is not None and known.uid == answered.uid:
            self.put_set(answered)

    def remove_set(self, removed: PartitionSet) -> None:
        known = self._sets.get(_name(removed))
        if known is not None and known.metadata.uid == removed.metadata.uid:
            self._forget(known)
            del self._sets[_name(removed)]
            self.changed.set()

    def list_leases(self, leases: Iterable[BrokerLease], now_ms: int) -> None:
        self._leases = {lease.broker: self._believed(lease) for lease in leases}
        self._liveness.observe_all(self._leases.values(), now_ms)
        self._note_listed("leases")

    def put_lease(self, lease: BrokerLease, now_ms: int) -> None:
        self._leases[lease.broker] = self._believed(lease)
        self._liveness.observe(lease, now_ms)

    def remove_lease(self, lease: BrokerLease) -> None:
        self._leases.pop(lease.broker, None)

    def _believed(self, lease: BrokerLease) -> BrokerLease:
        return lease if self.doubts is None else self.doubts.believed(lease, _log.warning)

    def _forget(self, known: PartitionSet) -> None:
        for state in known.partitions:
            self.states.pop(known.key(state.id), None)

    def _note_listed(self, what: str) -> None:
        self._listed.add(what)
        self.changed.set()


def _name(partition_set: PartitionSet) -> tuple[str, str]:
    return partition_set.metadata.namespace, partition_set.metadata.name


def _is_newer(known: PartitionSet, other: PartitionSet) -> bool:
    """Return whether `known` is a newer version of the same object than `other`."""
    return known.metadata.uid == other.metadata.uid and bool(older_partitions(other, known))


def follow_cluster(client: KubeClient, view: ClusterView, lease_namespace: str) -> list[Coroutine[Any, Any, None]]:
    """Return the three watches, each to be run as a task until it is cancelled."""
    return [
        _follow_topics(client, view),
        _follow_sets(client, view),
        _follow_leases(client, view, lease_namespace),
    ]


async def _follow_topics(client: KubeClient, view: ClusterView) -> None:
    async with aclosing(watch(client, TOPICS)) as events:
        async for event in events:
            match event:
                case Listed(items):
                    view.list_topics(items)
                case Changed(item):
                    view.put_topic(item)
                case Removed(item):
                    view.remove_topic(item)


async def _follow_sets(client: KubeClient, view: ClusterView) -> None:
    async with aclosing(watch(client, PARTITION_SETS)) as events:
        async for event in events:
            match event:
                case Listed(items):
                    view.list_sets(items)
                case Changed(item):
                    view.put_set(item)
                case Removed(item):
                    view.remove_set(item)


async def _follow_leases(client: KubeClient, view: ClusterView, namespace: str) -> None:
    selector = f"{CLUSTER_LABEL}={view.cluster}"
    async with aclosing(watch(client, LEASES, namespace=namespace, label_selector=selector)) as events:
        async for event in events:
            match event:
                case Listed(items):
                    view.list_leases(items, monotonic_ms())
                case Changed(item):
                    view.put_lease(item, monotonic_ms())
                case Removed(item):
                    view.remove_lease(item)
