"""The futures of `send` promise more than those of the standard library: those of a batch share its result.

Futures of records on an event loop: ordinary ones, but for what nobody has looked at.
"""

import asyncio
import sys
import traceback
from concurrent.futures import as_completed

import pytest

from headrace.client.producer.async_sender import AsyncDelivery, LoopRows
from headrace.client.producer.batches import ColumnsDelivery
from headrace.client.producer.deliveries import BatchesDelivery, ThreadRows
from headrace.client.record import RecordMetadata, TopicPartition
from headrace.core.errors import NotLeaderError


def test_should_raise_an_error_of_its_own_for_each_record() -> None:
    batch = ThreadRows(TopicPartition("t", 0), 0)
    deliveries = [batch.add((None, b"v", 1, ())) for _ in range(50)]
    batch.failed(NotLeaderError("another leads", leaderId=1))
    lengths = set()
    for delivery in as_completed(deliveries):
        with pytest.raises(NotLeaderError, match="another leads") as caught:
            delivery.result()
        assert caught.value.details == {"leaderId": 1}
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1
    assert batch.overlooked() == 0


def test_should_tell_the_others_when_a_callback_exits() -> None:
    batch = ThreadRows(TopicPartition("t", 0), 0)
    deliveries = [batch.add((None, b"v", 1, ())) for _ in range(2)]
    told: list[int] = []
    deliveries[0].add_done_callback(lambda _: sys.exit(1))
    deliveries[1].add_done_callback(lambda delivery: told.append(delivery.result().offset))
    batch.delivered(5)
    assert told == [6]
    future = BatchesDelivery()
    future.add_done_callback(lambda _: sys.exit(1))
    ColumnsDelivery(future).settle()
    assert future.result() == ()


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
