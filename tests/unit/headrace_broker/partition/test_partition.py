"""A partition on a real log: what is acknowledged is there, what is waited for comes, nothing waits for ever.

A batch that an idempotent producer repeats stands in the log once, and is answered with its original.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import (
    FencedEpochError,
    FencedProducerError,
    HeadraceError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    StorageFailedError,
)
from headrace.core.holders import HolderRate
from headrace.core.log.epochs import Fence
from headrace.core.log.segments import SEGMENT_BYTES_MIN
from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionEpoch, RecordContent
from headrace_broker.admission import Budget
from headrace_broker.metrics import Metrics
from headrace_broker.partition.fetch import OpenWatches, fetch, find_offset, watch
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import (
    DeleteQuery,
    Edge,
    FetchQuery,
    OffsetsQuery,
    ProduceQuery,
    ValueFormat,
    WatchQuery,
)
from tests.support.batches import TIMESTAMP_MS, batch_of
from tests.support.descriptors import descriptors_left
from tests.support.failing_disk import failing_sync
from tests.support.logs import file_size_limit
from tests.support.partition_sets import partition_state, seat
from tests.support.partitions import ME, led_partition
from tests.support.patience import patient
from tests.support.waiting import eventually

ALL = ProduceQuery(Acks.ALL, 30_000, Fence())
SEGMENT = bytes(SEGMENT_BYTES_MIN)
"""A record that fills the smallest segment."""


def fetch_query(
    offset: Offset | Edge = Edge.EARLIEST, *, min_bytes: int = 1, max_wait_ms: int = 0, max_records: int = 1 << 20
) -> FetchQuery:
    return FetchQuery(offset, 1 << 20, max_records, min_bytes, max_wait_ms, Fence(), ValueFormat.TEXT)


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def partition(tmp_path: Path, metrics: Metrics, failures: list[str]) -> AsyncIterator[Partition]:
    async with led_partition(tmp_path / "data", metrics, failures.append) as partition:
        yield partition


async def produce(partition: Partition, *values: bytes, query: ProduceQuery = ALL) -> Offset:
    written, _ = await partition.produce(split_batches([batch_of(*values)], batch_bytes_max=1 << 20), query)
    return written.first_offset


async def test_should_show_what_is_acknowledged(partition: Partition) -> None:
    assert await produce(partition, b"a", b"b") == 0
    assert await produce(partition, b"c") == 2
    fetched = await fetch(partition, fetch_query())
    assert (fetched.next_offset, fetched.high_watermark, fetched.leader_epoch) == (3, 3, 1)
    assert sum(map(len, fetched.buffers)) == len(batch_of(b"a", b"b")) + len(batch_of(b"c"))


async def test_should_serve_concurrent_appends_with_few_syncs(partition: Partition) -> None:
    offsets = await asyncio.gather(*(produce(partition, b"x") for _ in range(50)))
    assert sorted(offsets) == list(range(50))
    assert partition.high_watermark == 50


async def test_should_not_wait_for_the_disk_when_the_leader_is_enough(partition: Partition) -> None:
    await produce(partition, b"a", query=ProduceQuery(Acks.LEADER, 1000, Fence()))
    assert partition.log.log_end_offset == 1
    assert partition.high_watermark == 0
    fetched = await fetch(partition, fetch_query(max_wait_ms=10_000))
    assert fetched.high_watermark == 1


async def test_should_wake_a_long_poll_when_there_is_enough(partition: Partition) -> None:
    size = len(batch_of(b"a"))
    waiting = asyncio.create_task(fetch(partition, fetch_query(min_bytes=2 * size, max_wait_ms=30_000)))
    await produce(partition, b"a")
    assert not waiting.done()
    await produce(partition, b"b")
    assert (await waiting).next_offset == 2


async def test_should_not_wait_for_bytes_that_would_not_fit(partition: Partition) -> None:
    size = len(batch_of(b"a"))
    for value in (b"a", b"b"):
        await produce(partition, value)
    query = replace(fetch_query(min_bytes=2 * size - 1, max_wait_ms=600_000), max_bytes=2 * size - 1)
    async with asyncio.timeout(patient(10)):
        assert (await fetch(partition, query)).next_offset == 1
        assert (
            await fetch(partition, fetch_query(min_bytes=9 * size, max_records=1, max_wait_ms=600_000))
        ).records == 1


async def test_should_answer_long_polls_with_what_there_is_when_it_drains(partition: Partition) -> None:
    waiting = asyncio.create_task(fetch(partition, fetch_query(max_wait_ms=30_000)))
    await asyncio.sleep(0)
    partition.drain()
    assert (await waiting).buffers == []


async def test_should_send_long_polls_away_when_another_leads(partition: Partition) -> None:
    waiting = asyncio.create_task(fetch(partition, fetch_query(max_wait_ms=30_000)))
    await asyncio.sleep(0)
    partition.apply(partition_state(leader=seat(1), partition_epoch=PartitionEpoch(2)))
    with pytest.raises(NotLeaderError, match="1@1 does"):
        await waiting


async def test_should_abandon_appends_when_it_leads_no_more(partition: Partition) -> None:
    waiting = asyncio.create_task(produce(partition, b"a"))
    await asyncio.sleep(0)
    partition.apply(partition_state(leader=None, partition_epoch=PartitionEpoch(2)))
    with pytest.raises(NotLeaderError, match="whether the records are written is not known"):
        await waiting
    with pytest.raises(PartitionOfflineError):
        await produce(partition, b"b")


async def test_should_survive_whoever_stops_waiting(partition: Partition) -> None:
    waiting = asyncio.create_task(produce(partition, b"a"))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await produce(partition, b"b") == 1
    assert partition.high_watermark == 2


async def test_should_say_the_range_when_an_offset_is_out_of_it(partition: Partition) -> None:
    await produce(partition, b"a")
    with pytest.raises(OffsetOutOfRangeError, match="offset 2 of default/flights/0 is not there yet") as refused:
        await fetch(partition, fetch_query(Offset(2)))
    assert refused.value.details == {"logStartOffset": 0, "highWatermark": 1}
    assert (await fetch(partition, fetch_query(Offset(1)))).buffers == []
    assert (await fetch(partition, fetch_query(Edge.LATEST))).next_offset == 1


async def test_should_cut_after_the_batch_that_has_enough_records(partition: Partition) -> None:
    for value in (b"a", b"b", b"c"):
        await produce(partition, value, value)
    fetched = await fetch(partition, fetch_query(max_records=3))
    assert fetched.next_offset == 4


async def test_should_find_the_ends_and_times(partition: Partition) -> None:
    await produce(partition, b"a")
    found = await find_offset(partition, OffsetsQuery(Edge.LATEST, Fence()))
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (1, None, 1)
    assert (await find_offset(partition, OffsetsQuery(Edge.EARLIEST, Fence()))).offset == 0
    assert (await find_offset(partition, OffsetsQuery(1, Fence()))).offset == 0
    assert (await find_offset(partition, OffsetsQuery(1 << 60, Fence()))).offset is None


async def test_should_delete_what_is_committed_and_no_more(partition: Partition) -> None:
    await produce(partition, b"a", b"b", b"c")
    await produce(partition, b"d", query=ProduceQuery(Acks.LEADER, 1000, Fence()))
    with pytest.raises(OffsetOutOfRangeError, match="beforeOffset 4 is above the high watermark") as refused:
        await partition.delete_records(DeleteQuery(Offset(4), Fence()))
    assert refused.value.details == {"logStartOffset": 0, "highWatermark": 3}
    assert await partition.delete_records(DeleteQuery(Offset(2), Fence())) == 2
    assert await partition.delete_records(DeleteQuery(Offset(1), Fence())) == 2
    with pytest.raises(OffsetOutOfRangeError, match="offset 1 of default/flights/0 is gone"):
        await fetch(partition, fetch_query(Offset(1)))
    assert (await find_offset(partition, OffsetsQuery(Edge.EARLIEST, Fence()))).offset == 2
    assert (await find_offset(partition, OffsetsQuery(0, Fence()))).offset == 2
    await fetch(partition, fetch_query(Offset(3), max_wait_ms=10_000))
    assert await partition.delete_records(DeleteQuery(Edge.LATEST, Fence())) == 4
    with pytest.raises(FencedEpochError):
        await partition.delete_records(DeleteQuery(Offset(2), Fence(leader_epoch=LeaderEpoch(9))))


async def test_should_not_say_that_it_deleted_when_another_leads_meanwhile(partition: Partition) -> None:
    await produce(partition, b"a")
    deleting = asyncio.create_task(partition.delete_records(DeleteQuery(Edge.LATEST, Fence())))
    await asyncio.sleep(0)
    partition.apply(partition_state(leader=seat(1), partition_epoch=PartitionEpoch(2)))
    with pytest.raises(NotLeaderError):
        await deleting


async def test_should_finish_a_deletion_that_nobody_waits_for_any_more(partition: Partition) -> None:
    await produce(partition, b"a", b"b")
    deleting = asyncio.create_task(partition.delete_records(DeleteQuery(Edge.LATEST, Fence())))
    await asyncio.sleep(0)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    await eventually(lambda: partition.log.log_start_offset == 2, "what is on disk is what is shown")


async def test_should_want_to_be_cleaned_when_retention_or_the_segment_is_another_one(partition: Partition) -> None:
    def wants_cleaning() -> bool:
        return partition.cleaner.wants_cleaning

    assert not wants_cleaning()
    partition.configure(TopicSpec.parse({"partitions": 1, "retention": {"time": "1h"}, "segment": {"bytes": "1"}}))
    assert wants_cleaning()
    await partition.cleaner.expire()
    assert not wants_cleaning()
    await produce(partition, SEGMENT)
    assert not wants_cleaning()
    await produce(partition, SEGMENT)
    assert wants_cleaning()
    partition.apply(partition_state(leader=seat(1), partition_epoch=PartitionEpoch(2)))
    assert not wants_cleaning()
    await partition.cleaner.expire()
    assert partition.log.log_start_offset == 0


async def test_should_delete_what_is_too_old_and_tell_the_metrics(partition: Partition, metrics: Metrics) -> None:
    await produce(partition, b"a", b"b")
    size = partition.log.size_bytes
    partition.configure(TopicSpec.parse({"partitions": 1, "retention": {"time": "1h"}}))
    await partition.cleaner.expire()
    assert (partition.log.log_start_offset, partition.log.size_bytes) == (2, 0)
    assert metrics.registry.get_sample_value("headrace_broker_deleted_segments_total", {"reason": "time"}) == 1
    assert metrics.registry.get_sample_value("headrace_broker_deleted_bytes_total", {"reason": "time"}) == size
    await produce(partition, b"c")
    await partition.delete_records(DeleteQuery(Edge.LATEST, Fence()))
    assert metrics.registry.get_sample_value("headrace_broker_deleted_segments_total", {"reason": "request"}) == 1


async def test_should_delete_what_is_closed_when_there_is_no_room_for_another_segment(partition: Partition) -> None:
    partition.configure(TopicSpec.parse({"partitions": 1, "segment": {"bytes": "1"}, "retention": {"time": "1h"}}))
    for _ in range(3):
        await produce(partition, SEGMENT)
    with descriptors_left(2):  # a segment is three files
        await partition.cleaner.expire()
    assert partition.log.log_start_offset == 2
    await partition.cleaner.expire()
    assert partition.log.log_start_offset == 3


async def test_should_close_its_log_when_the_disk_is_full(partition: Partition) -> None:
    await produce(partition, b"a")
    with file_size_limit(1):
        await partition.close("the broker stops")
    assert partition.log.durable_end == 1


async def test_should_put_closed_segments_on_disk_before_the_next_outgrows_its_size(partition: Partition) -> None:
    small = {"partitions": 1, "replicas": 1, "durability": "Replicated", "segment": {"bytes": "1"}}
    partition.configure(TopicSpec.parse({**small, "retention": {"time": "unlimited"}}))
    for _ in range(3):
        await produce(partition, SEGMENT)
        await partition.cleaner.expire()
    assert partition.log.durable_end == 0, "a few may wait"
    for _ in range(3):
        await produce(partition, SEGMENT)
    await partition.cleaner.expire()
    assert partition.log.durable_end == 6
    assert not partition.log.lags_in_syncs


async def test_should_write_nothing_once_it_is_closed(partition: Partition) -> None:
    await produce(partition, b"a", b"b")
    deletions = [
        asyncio.create_task(partition.delete_records(DeleteQuery(Offset(before), Fence()))) for before in (1, 2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await partition.close("it is taken away")
    checkpoint = partition.log.directory / "log-start-checkpoint"
    written = checkpoint.read_bytes()
    for refused in await asyncio.gather(*deletions, return_exceptions=True):
        assert isinstance(refused, NotLeaderError)
    assert checkpoint.read_bytes() == written
    assert partition.log.log_start_offset == 1


async def test_should_give_up_when_what_is_to_be_deleted_cannot_be_synced(
    partition: Partition, failures: list[str]
) -> None:
    partition.configure(TopicSpec.parse({"partitions": 1, "replicas": 1, "durability": "Replicated"}))
    await produce(partition, b"a")
    (segment,) = partition.log.directory.glob("*.log")
    with failing_sync(segment), pytest.raises(StorageFailedError):
        await partition.delete_records(DeleteQuery(Edge.LATEST, Fence()))
    assert len(failures) == 1


async def test_should_give_up_loudly_when_the_disk_fails(partition: Partition, failures: list[str]) -> None:
    await produce(partition, b"a")
    (segment,) = partition.log.directory.glob("*.log")
    with failing_sync(segment), pytest.raises(StorageFailedError, match="not known"):
        await produce(partition, b"b")
    assert len(failures) == 1
    assert "fdatasync" in failures[0]
    assert not partition.leads
    with pytest.raises(StorageFailedError, match="fdatasync"):
        await partition.close("it was no clean stop")


async def test_should_send_long_polls_away_when_the_disk_fails(partition: Partition) -> None:
    await produce(partition, b"a")
    waiting = asyncio.create_task(fetch(partition, fetch_query(Offset(1), max_wait_ms=600_000)))
    await asyncio.sleep(0)
    (segment,) = partition.log.directory.glob("*.log")
    with failing_sync(segment), pytest.raises(StorageFailedError):
        await produce(partition, b"b")
    async with asyncio.timeout(patient(10)):
        with pytest.raises(NotLeaderError):
            await waiting


async def test_should_follow_its_topic_when_the_spec_changes(partition: Partition) -> None:
    partition.configure(TopicSpec.parse({"partitions": 1, "replicas": 1, "durability": "Replicated"}))
    await produce(partition, b"a", query=ProduceQuery(Acks.LEADER, 1000, Fence()))
    assert partition.high_watermark == 1


async def test_should_keep_the_leaders_time_when_the_topic_asks_for_it(partition: Partition) -> None:
    partition.configure(TopicSpec.parse({"partitions": 1, "replicas": 1, "timestampType": "LogAppendTime"}))
    await produce(partition, b"a")
    found = await find_offset(partition, OffsetsQuery(TIMESTAMP_MS + 1, Fence()))
    assert found.offset == 0
    assert found.timestamp_ms is not None
    assert found.timestamp_ms > TIMESTAMP_MS


async def test_should_stamp_the_epoch_that_it_leads_in(partition: Partition) -> None:
    partition.apply(partition_state(leader=ME, leader_epoch=LeaderEpoch(7), partition_epoch=PartitionEpoch(9)))
    await produce(partition, b"a")
    assert partition.log.last_epoch == 7
    assert partition.gauges().leads


async def test_should_give_a_stream_its_next_piece_when_it_is_its_clients_turn(partition: Partition) -> None:
    watches, answers = OpenWatches(rate=HolderRate(1, 1e9, 10)), Budget("answers", 1 << 30)
    query = WatchQuery(Edge.LATEST, 1 << 20, None, Fence(), ValueFormat.TEXT)
    with answers.share("10.0.0.1") as share, answers.share(None) as unbounded:
        stream, others = (watch(partition, query, watches, each) for each in (share, unbounded))
        async with asyncio.timeout(patient(30)):
            for each in (stream, others):
                await anext(each)
            await produce(partition, b"a")
            for each in (stream, others):
                assert (await anext(each)).fetched.next_offset == 1
            waiting = asyncio.ensure_future(anext(stream))
            told = asyncio.ensure_future(anext(others))
            await produce(partition, b"b")
            assert (await told).fetched.next_offset == 2
            await asyncio.sleep(0)  # Both were woken by the same append.
        assert not waiting.done()
        assert share.taken == 0, "a stream that waits for its turn holds nothing"
        waiting.cancel()
        await asyncio.wait([waiting])


LEADER = ProduceQuery(Acks.LEADER, 30_000, Fence())
NONE = ProduceQuery(Acks.NONE, 30_000, Fence())


def batch(sequence: int, *values: bytes, epoch: int = 0, producer: int = 7) -> RawBatch:
    records = columns_of([RecordContent(None, value, TIMESTAMP_MS) for value in values or (b"v",)])
    chunks = encode_batch(records, numbers=ProducerNumbers(producer, epoch, sequence))
    return split_batches(chunks, batch_bytes_max=1 << 20)[0]


async def places(partition: Partition, *batches: RawBatch, query: ProduceQuery = ALL) -> list[tuple[int, int]]:
    written, _ = await partition.produce(list(batches), query)
    return list(zip(written.base_offsets, written.last_offsets, strict=True))


async def test_should_write_a_batch_once_when_it_comes_again(partition: Partition) -> None:
    assert await places(partition, batch(0, b"a", b"b")) == [(0, 1)]
    assert await places(partition, batch(0, b"a", b"b")) == [(0, 1)]
    assert await places(partition, batch(2)) == [(2, 2)]
    assert partition.log.log_end_offset == 3


async def test_should_write_what_is_new_of_a_list_that_comes_again(partition: Partition) -> None:
    await places(partition, batch(0, b"a", b"b"))
    written, _ = await partition.produce([batch(0, b"a", b"b"), batch(2), batch(2), batch(0, producer=8)], ALL)
    assert list(zip(written.base_offsets, written.last_offsets, strict=True)) == [(0, 1), (2, 2), (2, 2), (3, 3)]
    assert (written.first_offset, written.last_offset) == (0, 3)
    assert partition.log.log_end_offset == 4


async def test_should_write_nothing_of_a_list_with_a_gap(partition: Partition) -> None:
    with pytest.raises(OutOfOrderSequenceError):
        await places(partition, batch(0), batch(2))
    assert partition.log.log_end_offset == 0
    await places(partition, batch(0, epoch=1))
    with pytest.raises(FencedProducerError):
        await places(partition, batch(1))


async def test_should_answer_a_repetition_only_once_its_original_is_committed(
    partition: Partition, halted_syncs: Callable[[], None]
) -> None:
    """S30: the first attempt is written, and not yet on disk."""
    answers: list[HeadraceError | None] = []
    partition.append([batch(0)], ALL, answers.append)
    written, _ = partition.append([batch(0)], ALL, answers.append)
    assert written.base_offsets == (0,)
    for _ in range(10):
        await asyncio.sleep(0)
    assert answers == []
    assert await places(partition, batch(0), query=LEADER) == [(0, 0)], "who asks for less is answered"
    assert await places(partition, batch(0), query=NONE) == [(0, 0)]

    halted_syncs()
    assert await places(partition, batch(0)) == [(0, 0)]
    assert answers == [None, None]
    assert partition.high_watermark == 1


@pytest.fixture
async def halted_syncs(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], None]]:
    """The disk takes its time, until it is told to go on."""
    going, sync = asyncio.Event(), partition.log.sync

    async def wait_and_sync() -> int:
        await going.wait()
        return await sync()

    monkeypatch.setattr(partition.log, "sync", wait_and_sync)
    yield going.set
    going.set()
