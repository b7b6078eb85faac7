"""What tasks send is written, in order, while the loop does other things; whatever is cancelled, nothing is lost."""

import asyncio
import gc
import logging
import re

import pyarrow as pa
import pytest

from headrace import AsyncProducer, RecordMetadata
from headrace.core.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    LocalError,
    StalledError,
    UnknownPartitionError,
)
from headrace.core.murmur2 import partition_for_key
from tests.support.client_bench import Bench
from tests.support.waiting import eventually


def own_tasks() -> list[asyncio.Task[object]]:
    """Those that the SDK runs on this loop."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("headrace-")]


async def test_should_write_every_field_and_keep_the_order_of_a_task(bench: Bench) -> None:
    bench.create(partitions=3)
    keys = [f"N{number:05}" for number in range(40)]
    async with bench.async_producer(linger_ms=1, compression="lz4") as producer:
        sent = await producer.send(bench.topic, "ü", "key", headers={"a": "1"}, timestamp_ms=7, partition=2)
        assert await sent == RecordMetadata(bench.topic, 2, 0)
        for number in range(2_000):
            await producer.send(bench.topic, str(number), keys[number % len(keys)])
        await producer.flush()
        assert {task.get_name() for task in own_tasks()} <= {"headrace-session"}
    assert own_tasks() == []
    first, *records = bench.read_all(partitions=[2])
    assert first == (bench.topic, 2, 0, 7, b"key", "ü".encode(), (("a", b"1"),))
    records += bench.read_all(partitions=[0, 1])
    seen: dict[bytes | None, list[int]] = {}
    for record in records:
        assert record.partition == partition_for_key(record.key or b"", 3)
        seen.setdefault(record.key, []).append(int(record.value or b""))
    assert sum(map(len, seen.values())) == 2_000
    assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_should_write_columns_whole_and_piece_by_piece(bench: Bench) -> None:
    bench.create(partitions=2)
    values = pa.array([f"value {number}" for number in range(5_000)])
    async with bench.async_producer(batch_bytes=10_000, buffer_bytes=40_000) as producer:
        whole = await producer.send_batch(bench.topic, values=values, partition=0, timestamps_ms=5)
        pieces = await producer.send_batch(bench.topic, values=(f"{n}" for n in range(5_000)), partition=1)
        for written in await asyncio.gather(whole, pieces):
            assert sum(batch.record_count for batch in written) == 5_000
            assert len(written) > 4
    assert [record.value for record in bench.read_all(partitions=[0])] == values.cast(pa.binary()).to_pylist()
    assert [int(record.value or b"") for record in bench.read_all(partitions=[1])] == list(range(5_000))


async def test_should_let_the_loop_send_while_a_task_never_waits(bench: Bench) -> None:
    bench.create()
    async with bench.async_producer(linger_ms=0) as producer:
        first = await producer.send(bench.topic, b"0")
        count = 1
        while not first.done():
            await producer.send(bench.topic, b"x")
            count += 1
            assert count < 1_000_000, "the loop had its turn"
    assert len(bench.read_all()) == count


async def test_should_keep_many_senders_within_a_small_buffer(bench: Bench) -> None:
    bench.create(partitions=2)

    async def send(sender: int) -> None:
        for number in range(50):
            await producer.send(bench.topic, f"{sender} {number}".ljust(1_000), key=f"{sender}")

    async with bench.async_producer(batch_bytes=20_000, buffer_bytes=20_000, linger_ms=60_000) as producer:
        await asyncio.gather(*(send(sender) for sender in range(10)))
        await producer.send(bench.topic, b"x" * 100_000)
    records = bench.read_all()
    assert len(records) == 501
    numbers = [(record.value or b"").split() for record in records if len(record.value or b"") == 1_000]
    for sender in range(10):
        assert [int(number) for name, number in numbers if int(name) == sender] == list(range(50))


async def test_should_wake_one_of_those_who_wait_for_room_and_not_all(bench: Bench) -> None:
    bench.create()
    async with bench.async_producer(linger_ms=0, batch_bytes=8_192, buffer_bytes=8_192) as producer:
        await (await producer.send(bench.topic, b"first"))
        with bench.frozen_brokers():
            sends = [asyncio.create_task(producer.send(bench.topic, bytes(5_000))) for _ in range(50)]
            await asyncio.wait(sends[:1])
            assert len(producer._sender._progress._waiters) == 1
            assert [send.done() for send in sends] == [True] + [False] * 49
        await asyncio.gather(*sends)
    assert len(bench.read_all()) == 51


async def test_should_write_exactly_what_was_taken_when_waits_are_cancelled(bench: Bench) -> None:
    bench.create()
    async with bench.async_producer(linger_ms=0, batch_bytes=8_192, buffer_bytes=8_192) as producer:
        await (await producer.send(bench.topic, b"first"))
        with bench.frozen_brokers():
            taken = await producer.send(bench.topic, b"taken".ljust(5_000))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send(bench.topic, b"never".ljust(5_000)), 0.1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send_batch(bench.topic, values=[b"never".ljust(5_000)]), 0.1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(taken, 0.1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.flush(), 0.1)
        await producer.send(bench.topic, b"last")
    assert [(record.value or b"").strip() for record in bench.read_all()] == [b"first", b"taken", b"last"]


async def test_should_tell_whoever_waits_when_close_is_cancelled(bench: Bench) -> None:
    bench.create()
    producer = bench.async_producer(linger_ms=0, batch_bytes=8_192, buffer_bytes=8_192)
    await (await producer.send(bench.topic, b"first"))
    with bench.frozen_brokers():
        lost = await producer.send(bench.topic, bytes(5_000))
        waiting = asyncio.create_task(producer.send(bench.topic, bytes(5_000)))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.1)
        assert own_tasks() == []
        with pytest.raises(LocalError, match="its close was cancelled"):
            await lost
        with pytest.raises(LocalError, match="this producer is closed"):
            await waiting
    with pytest.raises(LocalError, match="was closed before all was written"):
        await producer.send(bench.topic, b"more")


async def test_should_raise_when_somebody_cancels_the_task_that_sends(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.create()
    async with bench.async_producer(linger_ms=0) as producer:
        await (await producer.send(bench.topic, b"first"))
        with bench.frozen_brokers():
            lost = [await producer.send(bench.topic, b"second"), await producer.send(bench.topic, b"third")]
            flush = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            for task in own_tasks():
                task.cancel()
            for delivery in lost:
                with pytest.raises(StalledError, match=r"a task that reads the answers of .* was cancelled"):
                    await delivery
            with pytest.raises(StalledError, match=r"a task that reads the answers of .* was cancelled"):
                await flush
        with pytest.raises(StalledError):
            await producer.send(bench.topic, b"fourth")
        with pytest.raises(StalledError):
            await producer.close()
    assert "was cancelled: make a new AsyncProducer" in caplog.text


async def test_should_give_up_in_time_where_nobody_answers() -> None:
    async with AsyncProducer("http://127.0.0.1:1", delivery_timeout_ms=1_000) as producer:
        with pytest.raises(BrokerUnreachableError, match=r"gave up on the metadata of flights after \d+ tr"):
            await producer.send("flights", b"a")


async def test_should_say_what_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == "headrace.client"]

    async with AsyncProducer("http://127.0.0.1:1", delivery_timeout_ms=3_600_000) as producer:
        sending = asyncio.create_task(producer.send("flights", b"a"))
        await eventually(lambda: bool(told()), "it says so")
        sending.cancel()
        await asyncio.wait([sending])
    assert {record.levelno for record in told()} == {logging.WARNING}
    said = r"the metadata of flights: broker 127\.0\.0\.1:1 cannot be reached: Connection refused; trying again"
    assert all(re.fullmatch(said, record.message) for record in told())


async def test_should_name_the_mistake_at_once(bench: Bench) -> None:
    bench.create(maxMessageBytes="64Ki")
    async with bench.async_producer() as producer:
        with pytest.raises(UnknownPartitionError, match="it has 1, numbered from 0"):
            await producer.send(bench.topic, "a", partition=1)
        with pytest.raises(BatchTooLargeError, match="split it"):
            await producer.send(bench.topic, bytes(100_000))
        with pytest.raises(TypeError, match=r"json\.dumps"):
            await producer.send(bench.topic, 1)  # type: ignore[arg-type]
        with pytest.raises(LocalError, match="timestamp_ms is -1"):
            await producer.send(bench.topic, "a", timestamp_ms=-1)
    await producer.close()
    with pytest.raises(LocalError, match="this producer is closed"):
        await producer.send(bench.topic, "a")
    assert bench.read_all() == []


def test_should_belong_to_one_event_loop(bench: Bench) -> None:
    bench.create()
    producer = bench.async_producer()

    async def send() -> None:
        await (await producer.send(bench.topic, "a"))
        await producer.close()

    asyncio.run(send())
    with pytest.raises(LocalError, match="belongs to another event loop"):
        asyncio.run(send())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Of the connection, left open too.
def test_should_say_so_when_an_event_loop_ends_before_the_records_are_sent(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.create()

    async def forget() -> asyncio.Future[RecordMetadata]:
        return await bench.async_producer(linger_ms=60_000).send(bench.topic, b"unsent")

    forgotten = asyncio.run(forget())
    gc.collect()
    assert "an AsyncProducer was never closed, and its event loop has ended: 1 records were" in caplog.text
    assert f"not acknowledged, for {bench.topic}/0; use it in `async with`" in caplog.text
    with pytest.raises(LocalError, match="this producer was never closed"):
        forgotten.result()
