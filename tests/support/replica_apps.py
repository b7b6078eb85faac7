"""Brokers in this process that replicate partitions of one topic over real sockets: no API server, no claims, no drain.

Whoever leads is what `lead` says. For what processes of their own would make slow or impossible to see: bounds, what a
stalled follower costs, which stream a partition is on.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.core.errors import StorageFailedError
from headrace.core.frames.replication_messages import StreamRole
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.epochs import Fence
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import split_batches
from headrace.core.replication.isr import InSyncRules
from headrace.core.replication.leadership import Contact
from headrace.core.replication.replica import Replica
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import (
    Acks,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicName,
    TopicUid,
)
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server import Server, serve
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.view import ClusterView
from headrace_broker.http.app import Components, broker_app
from headrace_broker.http.proxy import Proxy
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Host, Partition
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.replication.follower_streams import FollowerStreams
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription
from headrace_broker.tls import Transports
from tests.support.batches import batch_of
from tests.support.components import components
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.waiting import eventually

UID = TopicUid("uid-1")
TOPIC = TopicName("default", "flights")


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(UID, PartitionId(partition))


@dataclass(slots=True)
class _Open:
    partitions: dict[PartitionKey, Partition] = field(default_factory=dict)

    def find(self, key: PartitionKey) -> Partition | None:
        return self.partitions.get(key)


@dataclass(slots=True)
class ReplicaApp:
    """One broker."""

    seat: Seat
    components: Components
    server: Server
    streams: FollowerStreams
    metrics: Metrics

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def partition(self, number: int = 0) -> Partition:
        found = self.components.partitions.find(key_of(number))
        assert found is not None
        return found

    async def produce(self, *values: bytes, partition: int = 0, acks: Acks = Acks.ALL) -> None:
        """One batch."""
        batches = split_batches([batch_of(*values)], batch_bytes_max=64 << 20)
        await self.partition(partition).produce(batches, ProduceQuery(acks, 30_000, Fence()))

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@dataclass(slots=True)
class ReplicaApps:
    spec: TopicSpec
    path: Path
    partitions: int
    states: dict[int, PartitionState] = field(default_factory=dict)
    running: dict[int, ReplicaApp] = field(default_factory=dict)
    _stacks: dict[int, AsyncExitStack] = field(default_factory=dict)

    def __getitem__(self, broker: int) -> ReplicaApp:
        return self.running[broker]

    @property
    def everybody(self) -> Sequence[ReplicaApp]:
        return list(self.running.values())

    async def start(self, broker: int, **options: object) -> ReplicaApp:
        stack = AsyncExitStack()
        app = await stack.enter_async_context(_running(self, seat(broker), **options))  # type: ignore[arg-type]
        self.running[broker], self._stacks[broker] = app, stack
        for each in self.everybody:
            _know(each, self.everybody)
        for state in self.states.values():
            app.partition(state.id).apply(state)
        return app

    async def stop(self, broker: int) -> None:
        del self.running[broker]
        await self._stacks.pop(broker).aclose()

    def lead(self, broker: int, *, isr: Iterable[int] = (0, 1, 2), partition: int = 0) -> None:
        """In the next epoch; everybody hears of it."""
        before = self.states.get(partition)
        self.states[partition] = partition_state(
            partition,
            seat(broker),
            leader_epoch=LeaderEpoch(before.leader_epoch + 1 if before else 1),
            partition_epoch=PartitionEpoch(before.partition_epoch + 1 if before else 1),
            replicas=(BrokerId(0), BrokerId(1), BrokerId(2)),
            isr=tuple(map(seat, isr)),
        )
        self.tell(partition)

    def lead_all(self, broker: int, isr: Iterable[int] = (0, 1, 2)) -> None:
        for partition in range(self.partitions):
            self.lead(broker, isr=isr, partition=partition)

    def tell(self, partition: int = 0) -> None:
        state = self.states[partition]
        for app in self.everybody:
            app.components.view.list_sets([partition_set(*self.states.values())])
            app.partition(partition).apply(state)

    def shrink(self, *isr: int, partition: int = 0) -> None:
        """As a leader whose write of the ISR has landed."""
        state = self.states[partition]
        epoch = PartitionEpoch(state.partition_epoch + 1)
        self.states[partition] = replace(state, isr=tuple(map(seat, isr)), partition_epoch=epoch)
        self.tell(partition)

    async def agree(self, partition: int = 0, timeout_s: float = 30) -> None:
        """Until all logs are the leader's, and all high watermarks their end."""

        def ends() -> set[tuple[int, int]]:
            parts = [app.partition(partition) for app in self.everybody]
            return {end for part in parts for end in ((part.log.log_end_offset, part.high_watermark),)}

        await eventually(lambda: len(found := ends()) == 1 and len({*found.copy().pop()}) == 1, "equal logs", timeout_s)

    async def close(self) -> None:
        for broker in list(self.running):
            await self.stop(broker)


@asynccontextmanager
async def replica_apps(
    path: Path, *, brokers: int = 3, partitions: int = 1, **spec: object
) -> AsyncIterator[ReplicaApps]:
    """Brokers 0 to `brokers` - 1, none of which leads yet."""
    parsed = TopicSpec.parse({"partitions": partitions, "replicas": 3, "minInsyncReplicas": 1, **spec})
    apps = ReplicaApps(parsed, path, partitions)
    try:
        for broker in range(brokers):
            await apps.start(broker)
        yield apps
    finally:
        await apps.close()


@asynccontextmanager
async def _running(apps: ReplicaApps, me: Seat, catch_up_rate: int | None = None) -> AsyncIterator[ReplicaApp]:
    data = DataDirectory.open(apps.path / f"broker-{me.broker}")
    metrics, opened = Metrics(), _Open()
    view = ClusterView("headrace")
    topic = Topic(Metadata(name=TOPIC.name, namespace=TOPIC.namespace, uid=UID), apps.spec)
    view.list_topics([topic])
    view.list_leases([], 0)
    async with AsyncTransport() as transport:
        made = components(me, view, opened, Proxy(transport), metrics, catch_up_rate)
        streams = FollowerStreams(me, view, Transports(transport), made.served_streams.metrics)
        disk = BrokerDisk(data.path, DiskLimits(), metrics, lambda reason: None)
        host = Host(metrics, disk, streams, lambda: Contact(monotonic_ms(), monotonic_ms()))
        for number in range(apps.partitions):
            opened.partitions[key_of(number)] = _partition(data, apps.spec, me, number, host)
        server = await serve(broker_app(made), host="127.0.0.1", port=0)
        try:
            yield ReplicaApp(me, made, server, streams, metrics)
        finally:
            made.drain()
            await server.close(5.0)
            await streams.close()
            with suppress(StorageFailedError):
                await asyncio.gather(*(each.close("the test is over") for each in opened.partitions.values()))
            data.close(clean=False)


def _partition(data: DataDirectory, spec: TopicSpec, me: Seat, number: int, host: Host) -> Partition:
    key, place = key_of(number), Place(TOPIC, PartitionId(number))
    log = data.open_log(PartitionDescription(TOPIC, key, spec.to_object()), LogConfig.of_topic(spec), now_ms=0)
    replica = Replica(me, InSyncRules.of_topic(spec), log, durable_end=log.durable_end)
    partition = Partition(key, place, log, replica, host)
    partition.configure(spec)
    return partition


def _know(app: ReplicaApp, others: Iterable[ReplicaApp]) -> None:
    leases = [
        BrokerLease(Metadata(name=f"broker-{each.seat.broker}"), each.seat.broker, each.seat.incarnation, each.url)
        for each in others
    ]
    app.components.view.list_leases(leases, monotonic_ms())


def roles_of(app: ReplicaApp) -> dict[StreamRole, int]:
    """How many partitions it follows on which."""
    return {lane: int(app.metric("headrace_broker_replication_followed", lane=lane.value)) for lane in StreamRole}
