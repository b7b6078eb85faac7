"""Ctrl-C at every point, and the same again: nothing is skipped, repeated, lost or left hanging."""

import asyncio
import gc
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace import AsyncConsumer, Consumer
from headrace.core.errors import HeadraceError
from headrace.http2.blocking_transport import BlockingTransport
from tests.support.cancelled_clients import AsyncConsumerUser, AsyncProducerUser
from tests.support.client_bench import Bench
from tests.support.cluster import http
from tests.support.interrupted_clients import ConsumerUser, ProducerUser
from tests.support.interrupted_clients import fill as fill_for_users
from tests.support.interrupts import Points, interrupt_at_each_point, interrupted
from tests.support.patience import patient
from tests.support.waiting import wait_for

# An interrupt while a generator is thrown away is told to nobody: Python has nobody to tell.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

RECORDS, PARTITIONS, BATCH = 24, 2, 6
ROUNDS = 60
"""The number of interrupts at random points; after them the rest is read without any."""
ALL = {partition: list(range(RECORDS)) for partition in range(PARTITIONS)}


def fill(bench: Bench) -> None:
    """Several batches in each partition; the values are the offsets."""
    bench.create(partitions=PARTITIONS)
    with bench.producer() as producer:
        for begin in range(0, RECORDS, BATCH):
            for partition in range(PARTITIONS):
                values = [str(offset) for offset in range(begin, begin + BATCH)]
                producer.send_batch(bench.topic, values=values, partition=partition).result(patient(30))


class Reader:
    """What a consumer's user was handed, by partition."""

    def __init__(self, consumer: Consumer, how: str) -> None:
        self.consumer = consumer
        self.seen: dict[int, list[int]] = defaultdict(list)
        self._loop: Callable[[], Iterator[tuple[int, list[int]]]] = getattr(self, how)

    def records(self) -> Iterator[tuple[int, list[int]]]:
        for record in self.consumer.records(follow=False):
            yield record.partition, [record.offset]

    def endless(self) -> Iterator[tuple[int, list[int]]]:
        for record in self.consumer:
            yield record.partition, [record.offset]

    def batches(self) -> Iterator[tuple[int, list[int]]]:
        for batch in self.consumer.batches(follow=False):
            yield batch.column("partition")[0].as_py(), batch.column("offset").to_pylist()

    def read(self) -> None:
        """All that is left: an endless loop would wait for more."""
        for partition, offsets in () if self.is_complete else self._loop():
            self.seen[partition] += offsets
            if self.is_complete:
                return

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    @property
    def is_complete(self) -> bool:
        return self.count >= RECORDS * PARTITIONS

    def begin_again(self) -> None:
        self.seen.clear()
        for partition in range(PARTITIONS):
            self.consumer.seek(partition, 0)


@pytest.mark.parametrize("group", [None, "interrupted"])
@pytest.mark.parametrize("how", ["records", "endless", "batches"])
def test_should_hand_out_what_it_had_not_when_its_loop_is_interrupted(
    bench: Bench, how: str, group: str | None
) -> None:
    fill(bench)
    options: dict[str, Any] = {} if group is None else {"group": f"{bench.topic}-{group}", "auto_commit_interval_ms": 1}
    with bench.consumer(**options) as consumer:
        reader = Reader(consumer, how)
        reader.read()  # A member is given its partitions in the first loop.
        for point in interrupt_at_each_point(reader.begin_again, reader.read, Random(1)):
            while not reader.is_complete:
                before = reader.count
                reader.read()
                assert reader.count > before, f"{point}: the next loop ends with nothing"
            assert reader.seen == ALL, point


@pytest.mark.parametrize("how", ["endless", "batches"])
def test_should_commit_nothing_that_it_has_not_handed_out_when_its_loop_is_interrupted(bench: Bench, how: str) -> None:
    fill(bench)
    random = Random(2)
    with bench.consumer(group=f"{bench.topic}-group", auto_commit=False) as consumer:
        reader = Reader(consumer, how)
        points = 900  # Among which an interrupt strikes: more when they were too few to be handed anything.
        for _ in range(ROUNDS):
            before = reader.count
            interrupted(reader.read, random.randint(1, points))
            points += 0 if reader.count > before else 100
            interrupted(consumer.commit, random.randint(1, 300))
            handed = {place.partition: len(reader.seen[place.partition]) for place in consumer.group_offsets()}
            committed = {place.partition: offset.offset for place, offset in consumer.group_offsets().items()}
            assert all(committed[partition] <= handed[partition] for partition in committed), (committed, handed)
        while not reader.is_complete:
            reader.read()
        assert reader.seen == ALL
        consumer.commit()
        assert {offset.offset for offset in consumer.group_offsets().values()} == {RECORDS}


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_should_write_each_record_once_and_in_order_when_sending_is_interrupted(bench: Bench, linger_ms: int) -> None:
    bench.create()
    sent, tried = list[int](), 0
    with bench.producer(linger_ms=linger_ms) as producer:

        def send() -> None:
            nonlocal tried
            for _ in range(3):
                tried += 1
                producer.send(bench.topic, str(tried), key="one", headers={"a": "b"})
                sent.append(tried)
            tried += 1
            producer.send_batch(bench.topic, values=[str(tried)])
            sent.append(tried)
            producer.flush()

        for _ in interrupt_at_each_point(lambda: None, send, Random(3)):
            pass
        producer.flush()
    there = [int(record.value or b"") for record in bench.read_all()]
    assert there == sorted(set(there))
    assert set(sent) <= set(there)


def test_should_close_when_its_close_was_interrupted(bench: Bench) -> None:
    fill(bench)
    random = Random(4)
    for _ in range(8):
        consumer = bench.consumer(group=f"{bench.topic}-group")
        next(iter(consumer))
        interrupted(consumer.close, random.randint(1, 600))
        consumer.close()
        with pytest.raises(HeadraceError, match="this consumer is closed"):
            next(iter(consumer))


class AsyncReader:
    """The same of an asyncio consumer."""

    def __init__(self, consumer: AsyncConsumer, how: str) -> None:
        self.seen: dict[int, list[int]] = defaultdict(list)
        self._consumer, self._how = consumer, how

    async def read(self) -> None:
        """All that is left."""
        if self._how == "batches":
            async for batch in self._consumer.batches(follow=False):
                self.seen[batch.column("partition")[0].as_py()] += batch.column("offset").to_pylist()
        elif not self.is_complete():
            async for record in self._consumer.records(follow=False) if self._how == "records" else self._consumer:
                self.seen[record.partition].append(record.offset)
                if self.is_complete():
                    return
                await asyncio.sleep(0)

    def is_complete(self) -> bool:
        return sum(map(len, self.seen.values())) >= RECORDS * PARTITIONS


@pytest.mark.parametrize("how", ["records", "batches", "endless"])
@pytest.mark.parametrize("group", [None, "cancelled"])
async def test_should_hand_out_what_it_had_not_when_an_async_loop_is_cancelled(
    bench: Bench, how: str, group: str | None
) -> None:
    await asyncio.to_thread(fill, bench)
    random = Random(5)
    async with bench.async_consumer(group=group and f"{bench.topic}-{group}") as consumer:
        reader = AsyncReader(consumer, how)
        for _ in range(ROUNDS):
            reading = asyncio.create_task(reader.read())
            for _ in range(random.randint(0, 40)):
                await asyncio.sleep(random.choice([0, 0, 0.001]))
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled() or reading.exception() is None
        while not reader.is_complete():
            await reader.read()
    assert reader.seen == ALL


# -- every method, at random: `make soak` does the same for longer ----------------------------------------------------

CALLS = 150
"""The number of calls of each user that are interrupted."""


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-")]


def readers(bench: Bench) -> set[threading.Thread]:
    """The threads that read from a connection to the broker each."""
    name = f"headrace-{urlsplit(bench.server).netloc}"
    return {thread for thread in threading.enumerate() if thread.name == name}


@pytest.mark.parametrize("who", ["producer", "consumer", "group"])
def test_should_keep_what_it_promises_when_any_call_is_interrupted(bench: Bench, who: str) -> None:
    bench.create(partitions=PARTITIONS)
    before = len(threads())
    user: ProducerUser | ConsumerUser
    if who == "producer":
        user = ProducerUser(bench.server, bench.topic, Random(6))
    else:
        fill_for_users(bench.server, bench.topic)
        user = ConsumerUser(bench.server, bench.topic, Random(7), is_shared=who == "group")
    while user.struck.total() < CALLS:
        user.step()
    user.end()
    gc.collect()
    wait_for(lambda: len(threads()) <= before, "its threads end")


@pytest.mark.parametrize("who", ["producer", "consumer", "group"])
async def test_should_keep_what_it_promises_when_any_call_is_cancelled(bench: Bench, who: str) -> None:
    await asyncio.to_thread(bench.create, PARTITIONS)
    user: AsyncProducerUser | AsyncConsumerUser
    if who == "producer":
        user = AsyncProducerUser(bench.server, bench.topic, Random(8))
    else:
        await asyncio.to_thread(fill_for_users, bench.server, bench.topic)
        user = AsyncConsumerUser(bench.server, bench.topic, Random(9), is_shared=who == "group")
    while user.struck.total() < CALLS:
        await user.step()
    await user.end()


def test_should_leave_no_member_behind_when_its_constructor_was_interrupted(bench: Bench) -> None:
    bench.create()
    made: list[Consumer] = []

    def make() -> None:
        made.append(bench.consumer(group=f"{bench.topic}-group"))

    points = Points()
    with points:
        make()
    made.pop().close()
    for before_its_end in range(1, 80, 4):  # While it joins, at last.
        interrupted(make, points.count - before_its_end)
        while made:
            made.pop().close()
        gc.collect()
        members = http("GET", f"{bench.server}/v1/namespaces/default/groups/{bench.topic}-group").json["members"]
        assert not members, f"{before_its_end} points before its end"


def test_should_answer_on_the_same_connection_when_a_request_on_it_was_interrupted(bench: Bench) -> None:
    before = readers(bench)
    url = f"{bench.server}/v1/cluster"
    with BlockingTransport() as transport:
        assert transport.request("GET", url).status == 200
        (reader,) = readers(bench) - before
        for point in interrupt_at_each_point(lambda: None, lambda: transport.request("GET", url), Random(10)):
            assert transport.request("GET", url, timeout_s=patient(10)).status == 200, point
            assert readers(bench) - before == {reader}, f"{point}: another connection was made"
    wait_for(lambda: reader not in readers(bench), "its thread ends")
