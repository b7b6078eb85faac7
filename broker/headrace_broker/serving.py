"""What every route works with: the cluster view, the partitions that are open here, the way to the other brokers.

Made once at the start; `locate` is how a path becomes a partition, here or elsewhere. All checks that need no body are
made before a body is read.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from headrace.core.control.broker_reports import Epochs, HeldLog, PromisedLog
from headrace.core.errors import InternalTopicError, NotReadyError, PartitionOfflineError
from headrace.core.groups.publishing import Newcomers
from headrace.core.holders import holder_of
from headrace.core.log.epochs import Fence
from headrace.core.resources.internal_topics import INTERNAL_TOPICS, STAGED_INTO
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, LeaderEpoch, PartitionKey, Seat, TopicName, TopicUid
from headrace_broker.admission import Admission, Budget, BudgetShare, Requests
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.coordinators import GroupCoordinators, WriterCoordinators
from headrace_broker.coordinators.writer_coordinator import PartitionAccess
from headrace_broker.http.proxy import PEER_KEY_HEADER, Elsewhere, Proxy, passed_on_for
from headrace_broker.http.uploads import Questions
from headrace_broker.metrics import Metrics
from headrace_broker.partition.fetch import OpenWatches
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Place
from headrace_broker.replication.open_streams import ServedStreams, StreamMetrics
from headrace_broker.sessions.open_sessions import OpenSessions


class Partitions(Protocol):
    """The partitions that this broker holds."""

    def find(self, key: PartitionKey) -> Partition | None:
        """None where it is not open."""

    async def survey(self, uids: Collection[TopicUid] | None = None) -> dict[PartitionKey, HeldLog]:
        """Every log on this broker's disk, or of these topics, open or not."""

    def remembered(self, uids: Collection[TopicUid] | None = None) -> dict[PartitionKey, LeaderEpoch]:
        """The greatest epochs that it has acted on, of what it does not hold as well."""

    async def promise(self, asked: Mapping[PartitionKey, Epochs]) -> dict[PartitionKey, PromisedLog]:
        """Of those that are open and led by nobody: what they hold, once the epochs are on disk."""


@dataclass(slots=True)
class Readiness:
    """Why this broker does not take requests just now, as a clause; empty when it does."""

    why_not: str = "it is starting"


@dataclass(slots=True)
class Serving:
    me: BrokerId
    view: ClusterView
    partitions: Partitions
    proxy: Proxy
    metrics: Metrics
    readiness: Readiness
    admission: Admission = field(default_factory=Admission)
    watches: OpenWatches = field(default_factory=OpenWatches)
    newcomers: Newcomers = field(default_factory=Newcomers)
    catch_up_rate: int | None = None
    """Bytes a second for followers that are far behind; None: as fast as it goes."""
    namespace: str = "default"
    """Of the brokers' Leases."""
    life: Seat | None = None
    """Of this very process, once it has one. The view may show the Lease of an earlier or a later one."""
    groups: GroupCoordinators = field(init=False)
    writers: WriterCoordinators = field(init=False)
    sessions: OpenSessions = field(init=False)
    followers: ServedStreams = field(init=False)
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.groups = GroupCoordinators(self.me, self.namespace, self.view, self.partitions)
        reach = PartitionAccess(self.locate, self.proxy)
        registry = self.metrics.registry
        self.writers = WriterCoordinators(self.me, self.namespace, self.view, self.partitions, reach, registry)
        self.followers = ServedStreams(StreamMetrics(self.metrics.registry), self.catch_up_rate)
        self.questions = Questions(self.admission.control_bodies)
        self.sessions = OpenSessions.for_memory(self.admission.bodies.limit_bytes)

    def is_broker(self, request: web.Request) -> bool:
        """Whether another broker of this cluster sends it, be it for a client."""
        key = request.headers.get(PEER_KEY_HEADER)
        return key is not None and self.view.has_peer_key(key)

    def client_address(self, request: web.Request) -> str:
        """Of whoever asked first: by what another broker says, which must be an address, or a client of itself."""
        return (passed_on_for(request) if self.is_broker(request) else None) or request.remote or "1"

    def holder(self, request: web.Request) -> str | None:
        """Whose share it is counted in: the client's, or None where another broker asks for itself."""
        if not self.is_broker(request):
            return holder_of(request.remote or "unknown")
        address = passed_on_for(request)
        return holder_of(address) if address is not None else None

    def question(self, request: web.Request, places: Requests, limit_bytes: int) -> AbstractAsyncContextManager[bytes]:
        """The body of what an operator or a broker asks, while it is answered. Raises what `Questions.asked` raises."""
        return self.questions.asked(request, self.holder(request), places, limit_bytes)

    def body_share(self, request: web.Request) -> BudgetShare:
        """Of what bodies of requests may take."""
        return self.bodies.share(self.holder(request))

    def answer_share(self, request: web.Request) -> BudgetShare:
        """Of what answers may take."""
        return self.answers.share(self.holder(request))

    @property
    def bodies(self) -> Budget:
        return self.admission.bodies

    @property
    def answers(self) -> Budget:
        return self.admission.answers

    def seat(self) -> Seat:
        """What this process signs with. Raises NotReadyError until it has an incarnation."""
        if self.life is None:
            raise NotReadyError("this broker has no incarnation yet; try again")
        return self.life

    def drain(self) -> None:
        """This broker is about to stop: what would go on for ever ends. Its partitions drain by themselves."""
        self.proxy.drain()
        self.groups.local.drain()
        self.writers.local.drain()
        self.watches.drain()
        self.sessions.drain()
        self.followers.drain()

    def topic(self, name: TopicName, fence: Fence) -> Topic:
        """Raises NotReadyError, UnknownTopicError, StaleTopicError."""
        self.check_view()
        topic = self.view.topic(name)
        fence.check_topic(str(name), topic.uid)
        return topic

    def check_writable(self, name: TopicName, *, stages: bool = False) -> None:
        """That clients may write records there; `stages`: whole batches to one partition. Raises InternalTopicError."""
        if self._is_internal(name) and not (stages and name.name in STAGED_INTO):
            raise self._internal(name, "written")

    def check_readable(self, name: TopicName, request: web.Request | None = None) -> None:
        """That its records may be read, by clients or by whoever sends the request. Raises InternalTopicError."""
        if self._is_internal(name) and (request is None or not self.is_broker(request)):
            raise self._internal(name, "read")

    def check_deletable(self, name: TopicName, request: web.Request) -> None:
        """That its records may be deleted by whoever sends the request. Raises InternalTopicError."""
        if self._is_internal(name) and not self.is_broker(request):
            raise self._internal(name, "deleted from")

    def _is_internal(self, name: TopicName) -> bool:
        return name.namespace == self.namespace and name.name in INTERNAL_TOPICS

    def _internal(self, name: TopicName, what: str) -> InternalTopicError:
        kind, path = ("consumer groups", "groups") if name == self.groups.local.topic_name else ("writers", "writers")
        return InternalTopicError(
            f"{name} is where coordinators keep what is theirs, and is {what} by brokers alone: ask about {kind}"
            f" (/v1/namespaces/{{namespace}}/{path}/...)"
        )

    def locate(self, place: Place, fence: Fence) -> Partition | Elsewhere:
        """Raises what `topic` raises, UnknownPartitionError, PartitionOfflineError, NotReadyError."""
        topic = self.topic(place.topic, fence)
        state = self.view.state(topic, place.partition)
        partition = self.partitions.find(PartitionKey(topic.uid, place.partition))
        if partition is not None and partition.leads:
            return partition
        if state is None:
            raise PartitionOfflineError(f"{place} is not placed on a broker yet; try again")
        if state.leader is None:
            raise PartitionOfflineError(f"{place} has no leader just now; try again")
        if state.leader.broker == self.me:
            if partition is not None:
                partition.replica.check_not_regressed(str(place))
            raise NotReadyError(f"broker {self.me} is about to lead {place}; try again")
        return Elsewhere(place, state.leader.broker, self.url_of(state.leader.broker))

    def url_of(self, broker: BrokerId) -> str:
        lease = self.view.lease(broker)
        return lease.url if lease is not None else ""

    def check_view(self) -> None:
        """Raises NotReadyError until this broker knows the cluster."""
        if not self.view.is_complete:
            raise NotReadyError("this broker does not know its topics yet; try again")
