"""A broker's HTTP application in this process, on real sockets, with one partition that it leads: `default/flights/0`.

For what a process of its own would make slow or impossible to see: heartbeats, bounds, what a stalled client costs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.core.errors import StorageFailedError
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.epochs import Fence
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import split_batches
from headrace.core.replication.isr import InSyncRules
from headrace.core.replication.replica import Replica
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import Acks, PartitionId, PartitionKey, TopicName, TopicUid
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server import Server, serve
from headrace_broker.admission import Admission
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.cluster.view import ClusterView
from headrace_broker.http.app import Components, broker_app
from headrace_broker.http.proxy import Proxy
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.batches import batch_of
from tests.support.components import components
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.partitions import alone

SPEC = TopicSpec.parse({"partitions": 1, "replicas": 1, "durability": "Replicated"})
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
PLACE = Place(TopicName("default", "flights"), PartitionId(0))


@dataclass(frozen=True, slots=True)
class _One:
    partition: Partition

    def find(self, key: PartitionKey) -> Partition | None:
        return self.partition if key == KEY else None


@dataclass(slots=True)
class BrokerApp:
    components: Components
    partition: Partition
    server: Server

    @property
    def admission(self) -> Admission:
        return self.components.admission

    @property
    def url(self) -> str:
        """Of the partition's records."""
        return f"http://127.0.0.1:{self.server.port}/v1/namespaces/default/topics/flights/partitions/0/records"

    async def produce(self, *values: bytes) -> None:
        """One batch, committed."""
        batches = split_batches([batch_of(*values)], batch_bytes_max=64 << 20)
        await self.partition.produce(batches, ProduceQuery(Acks.ALL, 30_000, Fence()))


@asynccontextmanager
async def running_app(data_path: Path) -> AsyncIterator[BrokerApp]:
    data = DataDirectory.open(data_path)
    log = data.open_log(PartitionDescription(PLACE.topic, KEY, SPEC.to_object()), LogConfig.of_topic(SPEC), now_ms=0)
    metrics = Metrics()
    disk = BrokerDisk(data_path, DiskLimits(), metrics, lambda reason: None)
    replica = Replica(seat(0), InSyncRules.of_topic(SPEC), log, durable_end=log.durable_end)
    partition = Partition(KEY, PLACE, log, replica, alone(metrics, disk))
    state = partition_state(leader=seat(0))
    partition.apply(state)
    view = ClusterView("headrace")
    view.list_topics([Topic(Metadata(name="flights", namespace="default", uid=KEY.uid), SPEC)])
    view.list_sets([partition_set(state)])
    view.list_leases([], 0)
    async with AsyncTransport() as transport:
        made = components(seat(0), view, _One(partition), Proxy(transport), metrics)
        server = await serve(broker_app(made), host="127.0.0.1", port=0)
        try:
            yield BrokerApp(made, partition, server)
        finally:
            partition.drain()
            await server.close(5.0)
            with suppress(StorageFailedError):  # a test may have broken the disk
                await partition.close("the test is over")
            data.close(clean=False)
