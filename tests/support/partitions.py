"""A partition on a real log, led by the broker under test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from headrace.core.errors import StorageFailedError
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.segments import LogConfig
from headrace.core.replication.isr import Ends, InSyncRules
from headrace.core.replication.leadership import Contact
from headrace.core.replication.replica import Replica
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, Seat, TopicName, TopicUid
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Host, Partition
from headrace_broker.partition.queries import Place
from headrace_broker.partition.shell import PartitionShell
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.partition_sets import partition_state, seat

ME = seat(0)
SPEC = TopicSpec.parse({"partitions": 1, "replicas": 1})
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
PLACE = Place(TopicName("default", "flights"), PartitionId(0))


class NoStreams:
    """Of a broker that has no others: nobody is followed."""

    def follow(self, partition: PartitionShell, leader: Seat, leader_epoch: LeaderEpoch) -> None: ...
    def unfollow(self, partition: PartitionShell) -> None: ...
    def ask_epoch_end(self, partition: PartitionShell, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None: ...
    def fetch(self, partition: PartitionShell, leader_epoch: LeaderEpoch, offset: Offset) -> None: ...
    def report(self, partition: PartitionShell, leader_epoch: LeaderEpoch, ends: Ends) -> None: ...


def alone(metrics: Metrics, disk: BrokerDisk) -> Host:
    """A broker that has no others, and is in touch with the API server."""
    return Host(metrics, disk, NoStreams(), lambda: Contact(monotonic_ms(), monotonic_ms()))


@asynccontextmanager
async def led_partition(
    path: Path, metrics: Metrics, failed: Callable[[str], None], number: int = 0
) -> AsyncIterator[Partition]:
    """`number`: of the partition; each has a data directory of its own."""
    key, place = KEY._replace(partition=PartitionId(number)), replace(PLACE, partition=PartitionId(number))
    data = DataDirectory.open(path)
    description = PartitionDescription(place.topic, key, SPEC.to_object())
    log = data.open_log(description, LogConfig.of_topic(SPEC), now_ms=0)
    replica = Replica(ME, InSyncRules.of_topic(SPEC), log, durable_end=log.durable_end)
    disk = BrokerDisk(data.path, DiskLimits(), metrics, failed)
    partition = Partition(key, place, log, replica, alone(metrics, disk))
    partition.configure(SPEC)
    partition.apply(partition_state(number, leader=ME))
    yield partition
    with suppress(StorageFailedError):  # a test may have broken the disk
        await partition.close("the test is over")
    data.close(clean=False)
