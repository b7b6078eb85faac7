"""Tasks read what was written, from wherever they want; a cancelled wait skips nothing and repeats nothing."""

import asyncio
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace import AsyncConsumer, TopicPartition
from headrace.client.consumed_records import CONSUMED_SCHEMA
from headrace.client.transport.retry import TROUBLE_UNANSWERED_MS
from headrace.core.errors import LocalError, OffsetOutOfRangeError, StalledError, UnknownTopicError
from tests.support.client_bench import Bench, number
from tests.support.patience import patient


async def read_all(consumer: AsyncConsumer) -> list[int]:
    return [number(record) async for record in consumer.records(follow=False)]


async def test_should_read_records_and_columns_up_to_the_end(bench: Bench) -> None:
    bench.fill(1_000, partitions=2)
    async with bench.async_consumer() as consumer:
        reading = consumer.records(follow=False)
        assert sorted([number(record) async for record in reading]) == list(range(1_000))
        assert [record async for record in reading] == []
        await consumer.seek(0, "earliest")
        await consumer.seek(1, 0)
        table = pa.Table.from_batches([batch async for batch in consumer.batches(follow=False)])
        assert (table.schema, table.num_rows) == (CONSUMED_SCHEMA, 1_000)
        assert await consumer.end_offsets() == {TopicPartition(bench.topic, n): 500 for n in range(2)}
        assert consumer.partitions == [TopicPartition(bench.topic, n) for n in range(2)]


async def test_should_go_on_when_waiting_for_the_next_record_was_cancelled(bench: Bench) -> None:
    bench.fill(3)
    async with bench.async_consumer() as consumer, bench.async_producer() as producer:
        records = aiter(consumer)
        assert [number(await anext(records)) for _ in range(3)] == [0, 1, 2]
        for later in (3, 4):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.05)
            await producer.send(bench.topic, str(later))
            assert number(await asyncio.wait_for(anext(records), patient(30))) == later


async def test_should_read_each_record_once_however_often_it_is_cancelled(bench: Bench) -> None:
    bench.fill(3_000, partitions=3)
    seen: list[int] = []

    async def read() -> None:
        async for record in consumer:
            seen.append(number(record))
            if len(seen) % 97 == 0:
                await asyncio.sleep(0)

    async with bench.async_consumer(prefetch_bytes=1) as consumer:
        while len(seen) < 3_000:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(), 0.02)
    assert sorted(seen) == list(range(3_000))


async def test_should_go_on_where_a_loop_was_left_and_where_it_is_sought(bench: Bench) -> None:
    bench.fill(100, apart_ms=1_000)
    async with bench.async_consumer() as consumer:
        async for record in consumer:
            if record.offset == 9:
                break
        assert consumer.position(0) == 10
        records = aiter(consumer)
        assert [number(await anext(records)) for _ in range(5)] == [10, 11, 12, 13, 14]
        assert await read_all(consumer) == list(range(15, 100))
        seen = []
        await consumer.seek(0, "earliest")
        async for record in consumer.records(follow=False):
            seen.append(record.offset)
            if record.offset == 4:
                await consumer.seek(0, 98)
        assert seen == [0, 1, 2, 3, 4, 98, 99]
        await consumer.seek_to_time(datetime.fromtimestamp(97, UTC))
        assert await read_all(consumer) == [97, 98, 99]
        await consumer.seek_to_time(datetime(1960, 1, 1, tzinfo=UTC))
        assert consumer.position(0) == 0
        with pytest.raises(LocalError, match="time is -5: it must be a datetime, or milliseconds"):
            await consumer.seek_to_time(-5)


async def test_should_leave_out_partitions_that_are_paused(bench: Bench) -> None:
    bench.fill(300, partitions=3)
    async with bench.async_consumer() as consumer:
        consumer.pause(0, 1)
        assert {n % 3 for n in await read_all(consumer)} == {2}
        consumer.resume(0)
        seen = []
        async for record in consumer.records(follow=False):
            seen.append(record.offset)
            if record.offset == 9:
                consumer.pause(0)
        assert seen == list(range(10))
        consumer.resume()
        assert len(await read_all(consumer)) == 190


@pytest.mark.parametrize(("start", "first"), [("latest", 10), (4, 4), (datetime.fromtimestamp(7, UTC), 7)])
async def test_should_start_where_it_is_told(bench: Bench, start: str | int | datetime, first: int) -> None:
    bench.fill(10, apart_ms=1_000)
    async with bench.async_consumer(start=start) as consumer, bench.async_producer() as producer:
        await (await producer.send(bench.topic, "10"))
        assert await read_all(consumer) == list(range(first, 11))


async def test_should_name_the_valid_range_and_go_on_when_an_offset_is_not_there(bench: Bench) -> None:
    bench.fill(10)
    async with bench.async_consumer(start=1_000) as consumer:
        with pytest.raises(OffsetOutOfRangeError, match="1000"):
            await anext(aiter(consumer))
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 1000 .* its next record will have 10"):
            await anext(consumer.records(follow=False))
        await consumer.seek(0, 8)
        assert await read_all(consumer) == [8, 9]


async def test_should_raise_and_go_on_when_somebody_cancels_the_task_that_reads(bench: Bench) -> None:
    bench.fill(3)
    async with bench.async_consumer() as consumer:
        records = aiter(consumer)
        assert [number(await anext(records)) for _ in range(3)] == [0, 1, 2]
        waiting = asyncio.create_task(anext(records))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name().startswith("headrace-"):
                task.cancel()
        with pytest.raises(StalledError, match=r"the task that reads from .* was cancelled"):
            await waiting
        with bench.producer() as producer:
            producer.send(bench.topic, "3")
        assert number(await anext(records)) == 3


async def test_should_say_so_when_it_has_not_started_or_is_closed(bench: Bench) -> None:
    bench.fill(1)
    consumer = bench.async_consumer()
    with pytest.raises(LocalError, match="has not started: use it in `async with"):
        consumer.position(0)
    assert await read_all(consumer) == [0]
    waiting = asyncio.create_task(anext(aiter(consumer)))
    await asyncio.sleep(0)
    await consumer.close()
    await consumer.close()
    with pytest.raises(LocalError, match="this consumer is closed"):
        await waiting
    with pytest.raises(LocalError, match="this consumer is closed"):
        await anext(aiter(consumer))
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        async with bench.async_consumer("no-such-topic"):
            pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("headrace-")]


async def test_should_read_partitions_that_are_added_later(bench: Bench) -> None:
    bench.fill(3)
    with bench.consumer() as blocking, bench.consumer(partitions=[0]) as fixed:
        async with bench.async_consumer() as consumer:
            records = aiter(consumer)
            assert [number(await anext(records)) for _ in range(3)] == [0, 1, 2]
            assert [number(next(iter(blocking))) for _ in range(3)] == [0, 1, 2]
            bench.add_partitions(2)
            for client in (consumer, blocking, fixed):  # As after a minute.
                client._brokers.directory.forget(bench.topic)
            with bench.producer() as producer:
                for partition in range(2):
                    producer.send(bench.topic, "3", partition=partition)
            added = sorted([await asyncio.wait_for(anext(records), patient(30)) for _ in range(2)])
            assert [(record.partition, record.offset) for record in added] == [(0, 3), (1, 0)]
            assert sorted([next(iter(blocking)) for _ in range(2)]) == added
            assert consumer.partitions == blocking.partitions == [TopicPartition(bench.topic, n) for n in range(2)]
            assert [record.partition for record in fixed.records(follow=False)] == [0, 0, 0, 0]
            await consumer.seek(1, 0)
            assert await read_all(consumer) == [3]


async def test_should_not_miss_an_answer_when_its_user_waits_for_a_moment_at_a_time(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.create()
    async with bench.async_consumer() as consumer:
        records = aiter(consumer)
        reading = consumer._reading_now

        async def wait_until_it_has_looked() -> None:
            looked_ms = reading._looked_ms
            while reading._looked_ms == looked_ms:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(records), 0.05)

        await wait_until_it_has_looked()
        for cursor in reading.plan.cursors.values():
            cursor.attempt_ms -= TROUBLE_UNANSWERED_MS  # As if that long ago.
        await wait_until_it_has_looked()
    assert caplog.messages == []
