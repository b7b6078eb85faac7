"""Futures of records on an event loop: ordinary ones, but for what nobody has looked at."""

import asyncio

import pytest

from headrace.client.producer.async_sender import AsyncDelivery, LoopRows
from headrace.client.record import RecordMetadata, TopicPartition
from headrace.core.errors import NotLeaderError

ERROR = NotLeaderError("no")


def row_batch(rows: int) -> tuple[LoopRows, list[AsyncDelivery[RecordMetadata]]]:
    batch = LoopRows(TopicPartition("flights", 1), 0)
    return batch, [batch.add((None, b"v", 0, ())) for _ in range(rows)]


async def test_should_tell_each_future_its_offset_whoever_was_cancelled() -> None:
    batch, futures = row_batch(3)
    futures[1].cancel()
    batch.delivered(41)
    assert [future.cancelled() or future.result().offset for future in futures] == [41, True, 43]


async def test_should_know_no_offsets_when_nobody_acknowledges() -> None:
    batch, futures = row_batch(2)
    batch.delivered(-1)
    assert [(await future).offset for future in futures] == [-1, -1]


async def test_should_count_failures_that_nobody_will_see() -> None:
    batch, (awaited, asked, heard, left, cancelled) = row_batch(5)
    waiting = asyncio.create_task(wait(awaited))
    heard.add_done_callback(lambda _: None)
    leaving = asyncio.create_task(wait(cancelled))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    batch.failed(ERROR)
    with pytest.raises(NotLeaderError):
        await waiting
    assert asked.exception() is ERROR
    assert batch.overlooked() == 2
    assert left.exception() is ERROR
    assert batch.overlooked() == 1


async def wait(future: AsyncDelivery[RecordMetadata]) -> RecordMetadata:
    return await future
