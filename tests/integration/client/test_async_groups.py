"""Members on event loops: they come and go under load, and no record is skipped."""

import asyncio
from collections import Counter

import pytest

from headrace import AsyncConsumer, TopicPartition
from headrace.core.errors import FencedMemberError, LocalError, PollIntervalExceededError
from tests.support.client_bench import Bench, number
from tests.support.waiting import eventually


async def committed(bench: Bench) -> dict[int, int]:
    async with bench.async_member(auto_commit=False) as consumer:
        return {place.partition: offset.offset for place, offset in (await consumer.group_offsets()).items()}


async def test_should_go_on_where_the_group_stopped(bench: Bench) -> None:
    bench.fill(30)
    async with bench.async_member() as consumer:
        async for record in consumer:
            if record.offset == 9:
                break
    assert await committed(bench) == {0: 10}
    with pytest.raises(ZeroDivisionError):
        await fail_at(bench.async_member(), 12)
    assert await committed(bench) == {0: 12}
    async with bench.async_member() as consumer:
        assert sum([batch.num_rows async for batch in consumer.batches(follow=False)]) == 18
    assert await committed(bench) == {0: 30}


async def fail_at(consumer: AsyncConsumer, offset: int) -> None:
    async with consumer:
        async for record in consumer:
            if record.offset == offset:
                raise ZeroDivisionError


async def test_should_commit_what_its_user_commits(bench: Bench) -> None:
    bench.fill(10, partitions=2)
    async with bench.async_member(auto_commit=False) as consumer:
        record = await anext(aiter(consumer))
        await consumer.commit()
        mine, other = (TopicPartition(bench.topic, p) for p in (record.partition, 1 - record.partition))
        assert (await consumer.group_offsets())[mine].offset == 1
        await consumer.commit({other: 3}, metadata="mine")
        assert (await consumer.group_offsets())[other][:2] == (3, "mine")
        with pytest.raises(FencedMemberError):
            await consumer.commit({TopicPartition(bench.topic, 2): 3})
    assert await committed(bench) == {mine.partition: 1, other.partition: 3}
    async with bench.async_consumer() as single:
        with pytest.raises(LocalError, match="in no group"):
            await single.commit()
    with pytest.raises(LocalError, match="closed"):
        await consumer.commit()


async def test_should_skip_nothing_while_members_come_and_go_under_load(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.create(partitions=6)
    seen: list[int] = []
    moved: list[int] = []
    lost: list[TopicPartition] = []
    written = 0
    stop = asyncio.Event()

    async def write() -> None:
        """A little ahead of those who read."""
        nonlocal written

        def is_read() -> bool:
            return written - len(seen) < 2_000 or stop.is_set()

        async with bench.async_producer() as producer:
            while not stop.is_set():
                for _ in range(50):
                    await producer.send(bench.topic, str(written), partition=written % 6)
                    written += 1
                await eventually(is_read, "somebody reads")

    async def read(records: int) -> None:
        async def revoked(partitions: list[TopicPartition]) -> None:
            moved.append(len(partitions))

        async with bench.async_member(auto_commit_interval_ms=100, on_revoked=revoked, on_lost=lost.extend) as consumer:
            left = records
            async for record in consumer:
                seen.append(number(record))
                left -= 1
                if not left:
                    return

    writing = asyncio.create_task(write())
    stays = asyncio.create_task(read(1_000_000))
    for _ in range(3):
        await asyncio.gather(read(300), read(600))
    stop.set()
    await writing
    await eventually(lambda: len(set(seen)) == written, "all are read")
    stays.cancel()
    await asyncio.gather(stays, return_exceptions=True)
    assert set(seen) == set(range(written)), "a record was skipped"
    may_repeat = range(6) if "were not committed" in caplog.text else [place.partition for place in lost]
    assert repeated(seen) <= {*may_repeat}, "members that leave in peace repeat nothing"
    assert sum(moved) > 6


def repeated(seen: list[int]) -> set[int]:
    """The partitions of what was read more than once."""
    return {number % 6 for number, times in Counter(seen).items() if times > 1}


async def test_should_leave_the_group_for_a_task_that_does_not_come_back(bench: Bench) -> None:
    bench.fill(20, partitions=2)
    lost: list[TopicPartition] = []
    async with bench.async_member(max_poll_interval_ms=1_000, on_lost=lost.extend) as stalled:
        records = aiter(stalled)
        await anext(records)
        async with bench.async_member() as other:
            reading = aiter(other)
            assert len({(r.partition, r.offset) for r in [await anext(reading) for _ in range(20)]}) == 20
            with pytest.raises(PollIntervalExceededError, match="iterate again to join again"):
                await anext(records)
            assert len(lost) == 2
        assert [record async for record in stalled.records(follow=False)] == []


async def test_should_go_on_when_waiting_was_cancelled(bench: Bench) -> None:
    bench.fill(3_000, partitions=3)
    seen: list[int] = []

    async def read(consumer: AsyncConsumer) -> None:
        async for record in consumer:
            seen.append(number(record))
            if len(seen) % 97 == 0:
                await asyncio.sleep(0)

    async with bench.async_member() as consumer:
        while len(seen) < 3_000:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(consumer), 0.05)
    assert sorted(seen) == list(range(3_000))
    assert sum((await committed(bench)).values()) == 3_000
