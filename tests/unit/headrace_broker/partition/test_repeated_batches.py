"""What an idempotent producer sends again stands in the log once, and is answered when its original would be."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace.core.errors import FencedProducerError, HeadraceError, OutOfOrderSequenceError
from headrace.core.log.epochs import Fence
from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import Acks, Record
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import ProduceQuery
from tests.support.batches import TIMESTAMP_MS
from tests.support.partitions import led_partition

ALL = ProduceQuery(Acks.ALL, 30_000, Fence())
LEADER = ProduceQuery(Acks.LEADER, 30_000, Fence())
NONE = ProduceQuery(Acks.NONE, 30_000, Fence())


def batch(sequence: int, *values: bytes, epoch: int = 0, producer: int = 7) -> RawBatch:
    records = columns_of([Record(None, value, TIMESTAMP_MS) for value in values or (b"v",)])
    chunks = encode_batch(records, numbers=ProducerNumbers(producer, epoch, sequence))
    return split_batches(chunks, batch_bytes_max=1 << 20)[0]


async def places(partition: Partition, *batches: RawBatch, query: ProduceQuery = ALL) -> list[tuple[int, int]]:
    written, _ = await partition.produce(list(batches), query)
    return list(zip(written.base_offsets, written.last_offsets, strict=True))


@pytest.fixture
async def partition(tmp_path: Path) -> AsyncIterator[Partition]:
    async with led_partition(tmp_path / "data", Metrics(), print) as partition:
        yield partition


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
