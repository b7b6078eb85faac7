"""Members are stopped from anywhere, at any time: promptly, with nothing handed out after it, and out of the group."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

import pytest

from headrace import Consumer, TopicPartition
from headrace.client.transport.errands import Errand
from headrace.core.errors import LocalError, PartitionOfflineError
from headrace.http2.blocking_connection import BlockingConnection
from tests.support.client_bench import Bench
from tests.support.group_calls import GroupCalls
from tests.support.patience import patient
from tests.support.waiting import eventually, wait_for

SIGNALLED = """
import os, signal, sys, threading
from headrace import Consumer
from headrace.core.errors import LocalError
how, topic = sys.argv[1:]
consumer = Consumer(topic, group=topic, max_poll_interval_ms=60_000)
signal.signal(signal.SIGTERM, lambda *_: getattr(consumer, how)())
kill = lambda: os.kill(os.getpid(), signal.SIGTERM)
read = 0
try:
    with consumer:
        for record in consumer:
            read += 1
            if read == 5:
                kill()
            if read == 10:  # After which there is nothing: it waits.
                threading.Timer(0.5, kill).start()
        print("ended", read)
        if how == "wakeup":
            for record in consumer:
                read += 1
                if read == 10:
                    threading.Timer(0.5, kill).start()
            print("ended", read)
except LocalError as error:
    print("closed" in error.message, read)
"""


def members(bench: Bench) -> int:
    return len(GroupCalls([bench.server], bench.topic).get("")["members"])


def run(work: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def caught() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=caught, daemon=True)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("records", [3, 3_000], ids=["while it waits", "while records flow"])
def test_should_end_a_loop_in_another_thread(bench: Bench, records: int) -> None:
    bench.fill(records)
    consumer = bench.member()
    seen: list[int] = []
    closed = threading.Event()

    def read() -> None:
        records = iter(consumer)
        while True:
            was_closed = closed.is_set()  # Before it asks: what it has in hand by then was handed out before.
            record = next(records)
            assert not was_closed, "handed out after it was closed"
            seen.append(record.offset)

    thread, errors = run(read)
    wait_for(lambda: len(seen) >= 3, "it reads")
    consumer.close()
    closed.set()
    thread.join(patient(20))
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [LocalError]
    assert members(bench) == 0
    with bench.member(auto_commit=False) as after:
        committed = after.group_offsets()[TopicPartition(bench.topic, 0)].offset
    assert len(seen) - 2 <= committed <= len(seen), "neither what he had in hand need count, nor one on its way to him"


def test_should_end_the_loop_that_closes_it(bench: Bench) -> None:
    bench.fill(20)
    consumer = bench.member()
    records = iter(consumer)
    assert next(records).offset == 0
    consumer.close()
    with pytest.raises(LocalError, match="this consumer is closed"):
        next(records)
    assert members(bench) == 0


def test_should_close_once_where_callbacks_close_it(bench: Bench) -> None:
    bench.fill(20)
    told: list[str] = []

    def closing(what: str) -> Callable[[list[TopicPartition]], None]:
        def heard(_: list[TopicPartition]) -> None:
            told.append(what)
            consumer.close()

        return heard

    consumer = bench.member(on_assigned=closing("assigned"), on_revoked=closing("revoked"))
    with pytest.raises(LocalError, match="this consumer is closed"):
        next(iter(consumer))
    assert told == ["assigned", "revoked"]
    assert members(bench) == 0


@pytest.mark.parametrize(("how", "said"), [("close", "True 5\n"), ("wakeup", "ended 5\nended 10\n")])
def test_should_be_stopped_by_signals(bench: Bench, how: str, said: str) -> None:
    bench.fill(10)
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, how, bench.topic],
        env={**os.environ, "HEADRACE_SERVER": bench.server},
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=False,
    )
    assert (done.stdout, done.returncode) == (said, 0), done.stderr
    assert members(bench) == 0


def test_should_close_when_a_signal_comes_during_a_commit(bench: Bench) -> None:
    """The handler runs within the commit, which would take an hour, and must not wait for it."""
    bench.fill(10)
    consumer = bench.member(timeout_ms=3_600_000)
    next(iter(consumer))
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close(2_000))
    try:
        with bench.frozen_brokers():
            thread, errors = run(signal_once_it_commits)
            with pytest.raises(Exception, match=r"commit|offsets"):
                consumer.commit()
            assert not consumer._finalizer.alive
        thread.join(patient(30))
        assert errors == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def signal_once_it_commits() -> None:
    """Send the signal to the main thread, once that waits within a commit for an answer."""
    main = threading.main_thread().ident
    wait_for(
        lambda: {Consumer.commit.__code__, BlockingConnection.result.__code__} <= codes_of(main),
        "it waits for an answer",
    )
    os.kill(os.getpid(), signal.SIGUSR1)


def codes_of(ident: int | None) -> set[CodeType]:
    """Return the code of all functions that the thread is in."""
    frame = sys._current_frames()[ident or 0]
    return {each.f_code for each, _ in traceback.walk_stack(frame)}


def test_should_close_in_time_where_nobody_answers(bench: Bench) -> None:
    bench.fill(10)
    consumer = bench.member(timeout_ms=3_600_000)
    records = iter(consumer)
    next(records)
    next(records)
    with bench.frozen_brokers():
        consumer.close(2_000)


def test_should_read_on_while_a_partition_that_it_is_given_is_offline(bench: Bench) -> None:
    bench.fill(40, partitions=2)
    consumer = bench.member()
    look_up = consumer._brokers._offset_or_end_once
    offline = threading.Event()
    offline.set()

    def once(partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> Errand[int]:
        if partition.partition == 1 and offline.is_set():
            raise PartitionOfflineError("nobody leads it")
        return (yield from look_up(partition, timestamp, timeout_ms))

    consumer._brokers._offset_or_end_once = once  # type: ignore[method-assign]
    with consumer:
        records = iter(consumer)
        assert {next(records).partition for _ in range(20)} == {0}
        offline.clear()
        assert {next(records).partition for _ in range(20)} == {1}


# -- asyncio -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [3, 3_000], ids=["while it waits", "while records flow"])
async def test_should_end_a_loop_in_another_task(bench: Bench, records: int) -> None:
    bench.fill(records)
    consumer = bench.async_member()
    seen: list[int] = []

    async def read() -> None:
        async for record in consumer:
            assert not consumer._closed, "handed out after it was closed"
            seen.append(record.offset)
            await asyncio.sleep(0)

    reading = asyncio.create_task(read())
    await eventually(lambda: len(seen) >= 3, "it reads")
    await asyncio.wait_for(asyncio.gather(consumer.close(), consumer.close()), patient(30))
    with pytest.raises(LocalError, match="this consumer is closed"):
        await asyncio.wait_for(reading, patient(30))
    assert await asyncio.to_thread(members, bench) == 0


async def test_should_close_an_async_member_from_its_callbacks(bench: Bench) -> None:
    bench.fill(3)
    told: list[str] = []

    def closing(what: str) -> Any:
        async def heard(_: list[TopicPartition]) -> None:
            told.append(what)
            await consumer.close()

        return heard

    consumer = bench.async_member(on_assigned=closing("assigned"), on_revoked=closing("revoked"))
    with pytest.raises(LocalError, match="this consumer is closed"):
        await asyncio.wait_for(anext(aiter(consumer)), patient(30))
    await asyncio.wait_for(consumer.close(), patient(30))
    assert told == ["assigned", "revoked"]
    assert await asyncio.to_thread(members, bench) == 0


async def test_should_end_an_async_loop_and_go_on(bench: Bench) -> None:
    bench.fill(10)
    async with bench.async_member() as consumer:
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 5:
                consumer.wakeup()
        assert seen == [0, 1, 2, 3, 4]
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 10:
                asyncio.get_running_loop().call_later(0.3, consumer.wakeup)
        assert seen == list(range(10))
    assert await asyncio.to_thread(members, bench) == 0


async def test_should_be_given_partitions_however_short_its_user_waits(bench: Bench) -> None:
    """Slow callbacks are begun once, and are done before anything is handed out."""
    bench.fill(3)
    told: list[str] = []

    async def assigned(_: list[TopicPartition]) -> None:
        told.append("begun")
        await asyncio.sleep(0.1)
        told.append("done")

    async with bench.async_member(on_assigned=assigned) as consumer:
        records = aiter(consumer)
        found = None
        while found is None:
            with suppress(TimeoutError):
                found = await asyncio.wait_for(anext(records), 0.005)
        assert told == ["begun", "done"]


async def test_should_give_the_loop_back_while_its_user_never_does(bench: Bench) -> None:
    bench.fill(300)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with bench.async_member() as consumer:
        records = aiter(consumer)
        await anext(records)
        task = asyncio.create_task(others())
        before = turns
        for _ in range(100):
            time.sleep(0.002)  # noqa: ASYNC251 - this is what is tried
            await anext(records)
        task.cancel()
        assert turns > before
