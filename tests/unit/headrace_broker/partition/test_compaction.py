"""Compaction of what a broker holds: what becomes of a pass that fails, or whose log changes meanwhile."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headrace.core.limits import COMPACTION_KEYS_MAX
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.epochs import Fence
from headrace.core.log.segments import LogConfig
from headrace.core.replication.isr import InSyncRules
from headrace.core.replication.replica import Replica
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Acks, Offset, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.metrics import Metrics
from headrace_broker.partition.compaction import Compaction
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.storage.compaction_files import (
    Cleaned,
    CompactorMessage,
    FailureCause,
    Job,
    PassDone,
    PassFailed,
    UnreadableBatches,
)
from headrace_broker.storage.compaction_worker import compact
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.compaction import append, keyed
from tests.support.partition_sets import partition_state, seat
from tests.support.partitions import alone
from tests.support.waiting import eventually

ME = seat(0)
SPEC = TopicSpec.parse(
    {
        "partitions": 1,
        "replicas": 1,
        "cleanupPolicy": "Compact",
        "segment": {"bytes": "1Mi"},
    }
)
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
PLACE = Place(TopicName("default", "prices"), PartitionId(0))
PLENTY = 64 << 30


class Holding:
    """A broker that holds one partition."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def open_partitions(self) -> list[Partition]:
        return [self._partition]

    def find(self, key: PartitionKey) -> Partition | None:
        return self._partition if key == self._partition.key else None


class InProcess:
    """Passes without a process; `trouble` may replace what is told, or raise."""

    def __init__(self, trouble: Callable[[CompactorMessage], CompactorMessage] = lambda told: told) -> None:
        self.jobs: list[Job] = []
        self.trouble = trouble

    async def run(self, job: Job) -> AsyncGenerator[CompactorMessage, None]:
        self.jobs.append(job)
        for told in compact(job, lambda size: None):
            yield self.trouble(told)

    async def close(self) -> None:
        pass


@pytest.fixture
async def partition(tmp_path: Path) -> AsyncIterator[Partition]:
    """Led by this broker; two segments are closed, in which each key comes many times."""
    data, metrics = DataDirectory.open(tmp_path / "data"), Metrics()
    log = data.open_log(PartitionDescription(PLACE.topic, KEY, SPEC.to_object()), LogConfig.of_topic(SPEC), now_ms=0)
    replica = Replica(ME, InSyncRules.of_topic(SPEC), log, durable_end=log.durable_end)
    disk = BrokerDisk(data.path, DiskLimits(), metrics, pytest.fail)
    partition = Partition(KEY, PLACE, log, replica, alone(metrics, disk))
    for number in range(24):
        append(log, keyed((f"key-{number % 5}", str(number) * 60_000)))
    await log.sync()
    replica = Replica(ME, InSyncRules.of_topic(SPEC), log, durable_end=log.durable_end)
    partition = Partition(KEY, PLACE, log, replica, alone(metrics, disk))
    partition.configure(SPEC)
    partition.apply(partition_state(leader=ME))
    yield partition
    await partition.close("the test is over")
    data.close(clean=False)


class Running:
    """Compaction of that partition, as often as can be."""

    def __init__(self, partition: Partition, passes: InProcess) -> None:
        self.registry = CollectorRegistry()
        compaction = Compaction(Holding(partition), passes, self.registry, interval_ms=1, memory_bytes=PLENTY)
        self._task = asyncio.create_task(compaction.run())

    def value(self, name: str, **labels: str) -> float | None:
        assert not self._task.done(), "compaction goes on whatever happens"
        return self.registry.get_sample_value(f"headrace_broker_compaction_{name}", labels)

    async def passed(self, outcome: str) -> None:
        await eventually(lambda: bool(self.value("passes_total", outcome=outcome)), f"a pass is {outcome}")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_should_not_take_a_segment_for_compacted_that_lost_records_before_it_was_swapped_in(
    partition: Partition,
) -> None:
    deleted = False

    def delete(told: CompactorMessage) -> CompactorMessage:
        nonlocal deleted
        if isinstance(told, Cleaned) and not deleted:
            deleted = True
            # Records of its first segment go: what is told now stands for segments that are no longer all there.
            return told._replace(base_offset=Offset(told.base_offset + 1))
        return told

    passes = InProcess(delete)
    running = Running(partition, passes)
    await running.passed("changed")
    await running.passed("done")
    await running.stop()
    assert [job.dirty_from for job in passes.jobs] == [0, 0], "all of it is dirty still at the second pass"


async def test_should_leave_a_log_alone_for_longer_and_longer_whatever_is_appended(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    passes = InProcess(lambda told: PassFailed(FailureCause.ENDED, "killed"))
    running = Running(partition, passes)
    leftover = partition.log.directory / f"{0:020d}.log.cleaned"
    leftover.write_bytes(b"half of it")
    with caplog.at_level(logging.WARNING):
        await running.passed("ended")
        await eventually(lambda: not leftover.exists(), "what was left takes no room")
        segment = partition.log.active_segment
        while partition.log.active_segment == segment:
            append(partition.log, keyed(("key", "x" * 100_000)))
        for _ in range(20):
            await asyncio.sleep(0.001)  # ticks of compaction, which have nothing to do
    assert running.value("failing_partitions") == 1
    assert len(passes.jobs) == 1
    assert passes.jobs[0].keys_max == COMPACTION_KEYS_MAX
    assert "tried again in 60 s: killed" in caplog.text
    await running.stop()


async def test_should_survive_a_mistake_of_its_own(partition: Partition) -> None:
    def mistake(told: CompactorMessage) -> CompactorMessage:
        raise AssertionError("a mistake")

    running = Running(partition, InProcess(mistake))
    await running.passed("ended")
    assert running.value("damaged_partitions") == 0
    await running.stop()


async def test_should_tell_once_of_batches_that_nobody_can_decode(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[UnreadableBatches | None] = [UnreadableBatches(2, Offset(7))]

    def with_some(told: CompactorMessage) -> CompactorMessage:
        return told._replace(unreadable=found[-1]) if isinstance(told, PassDone) else told

    async def another_pass() -> float | None:
        jobs = len(passes.jobs)
        while len(passes.jobs) == jobs:
            batch = keyed(("key", "x" * 700_000))
            await partition.produce([batch], ProduceQuery(Acks.ALL, 30_000, Fence()))
        done = len(passes.jobs)
        await eventually(lambda: (running.value("passes_total", outcome="done") or 0) >= done, "it is done")
        return running.value("unreadable_batches")

    passes = InProcess(with_some)
    running = Running(partition, passes)
    await running.passed("done")
    with caplog.at_level(logging.WARNING):
        counted = [running.value("unreadable_batches")]
        for unreadable in (found[0], UnreadableBatches(3, Offset(7)), None):
            found.append(unreadable)
            counted.append(await another_pass())
    await running.stop()
    assert counted == [2, 2, 3, 0]
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "2 batches cannot be decoded by anybody, from offset 7 on; they stay as they are",
        "3 batches cannot be decoded by anybody, from offset 7 on; they stay as they are",
    ]
