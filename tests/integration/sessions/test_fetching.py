"""Fetching over sessions: what is pushed, how far credit goes, and what ends a channel."""

import threading
from collections.abc import Sequence

import pytest

from headrace.core.errors import FencedEpochError, OffsetOutOfRangeError, StorageFailedError
from headrace.core.frames.session_messages import (
    Batches,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    Credit,
    Failed,
    Heartbeat,
    Produce,
)
from headrace.core.log.epochs import Fence
from headrace.core.records.raw import split_batches
from headrace.core.types import Acks, Offset
from headrace_broker.partition.queries import DeleteQuery, Edge, ProduceQuery
from headrace_broker.sessions.channels import ServedFetchChannel
from headrace_broker.storage import log_reader
from headrace_broker.storage.disk import Buffer, FileHandle, NotCachedError, read_blocking, read_cached
from tests.support.batches import batch_of
from tests.support.broker_app import BrokerApp
from tests.support.partition_sets import partition_state, seat
from tests.support.patience import patient
from tests.support.sessions import SessionClient, bytes_of, session_at, to_fetch, to_produce
from tests.support.waiting import eventually

PLENTY = 1 << 30


async def offsets_until(session: SessionClient, end: int) -> list[tuple[int, int]]:
    """(first, last) of each batch that comes until `end` is the next offset; credit is plenty."""
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1][1] + 1 < end:
        seen += batches_in(await session.hear(Batches))
    return seen


def batches_in(batches: Batches) -> list[tuple[int, int]]:
    return [
        (batch.header.base_offset, batch.header.last_offset)
        for batch in split_batches([bytes_of(batches)], batch_bytes_max=1 << 30)
    ]


async def test_should_push_what_is_there_and_what_comes(app: BrokerApp) -> None:
    await app.produce(b"a", b"b")
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY))
        opened = await session.hear(ChannelOpened)
        assert (opened.standing.offset, opened.standing.high_watermark) == (0, 2)
        first = await session.hear(Batches)
        assert (batches_in(first), first.next_offset, first.high_watermark) == ([(0, 1)], 2, 2)
        for n in range(2, 5):
            await app.produce(b"c")
            more = await session.hear(Batches)
            assert (batches_in(more), more.next_offset) == ([(n, n)], n + 1)


async def test_should_send_no_more_than_credit_but_one_batch(app: BrokerApp) -> None:
    size = len(batch_of(b"a"))
    for _ in range(6):
        await app.produce(b"a")
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=2 * size + 1))
        await session.hear(ChannelOpened)
        assert batches_in(await session.hear(Batches)) == [(0, 0), (1, 1)]
        # One byte of credit is left, which is enough for one batch; then it is negative.
        assert batches_in(await session.hear(Batches)) == [(2, 2)]
        session.say(Credit(1, size - 1), to_produce(2), Produce(2, 1, [batch_of(b"b")]))
        await session.hear(ChannelOpened)
        await session.produced(1)  # and no batch before it
        session.say(Credit(1, PLENTY))
        assert await offsets_until(session, 7) == [(3, 3), (4, 4), (5, 5), (6, 6)]


async def test_should_start_where_it_is_asked_to_and_at_most_so_much_a_frame(app: BrokerApp) -> None:
    size = len(batch_of(b"a", b"b"))
    for _ in range(4):
        await app.produce(b"a", b"b")
    async with session_at(app.url) as session:
        session.say(to_fetch(1, offset=Offset(3), max_bytes=2 * size, credit=PLENTY))
        assert (await session.hear(ChannelOpened)).standing.offset == 3
        frames = [await session.hear(Batches), await session.hear(Batches)]
        assert [batches_in(frame) for frame in frames] == [[(2, 3), (4, 5)], [(6, 7)]]
        session.say(to_fetch(2, offset="latest", credit=PLENTY))
        assert (await session.hear(ChannelOpened)).standing.offset == 8


async def test_should_not_let_a_slow_channel_hold_up_another(app: BrokerApp) -> None:
    await app.produce(b"a")
    async with session_at(app.url) as session:
        session.say(to_fetch(1), to_fetch(2, credit=PLENTY))
        await session.hear(ChannelOpened)
        await session.hear(ChannelOpened)
        assert (await session.hear(Batches)).channel == 2
        await app.produce(b"b")
        assert (await session.hear(Batches)).channel == 2
        session.say(Credit(1, PLENTY))
        late = await session.hear(Batches)
        assert (late.channel, late.next_offset) == (1, 2)


async def test_should_close_a_channel_and_go_on_with_the_others(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(
            to_fetch(1, credit=PLENTY), to_fetch(2, credit=PLENTY), CloseChannel(1), Credit(1, 5), CloseChannel(1)
        )
        await session.hear(ChannelOpened)
        await session.hear(ChannelOpened)
        assert (await session.hear(ChannelClosed)).channel == 1
        await app.produce(b"a")
        assert (await session.hear(Batches)).channel == 2


async def test_should_go_on_with_others_while_one_waits_for_the_disk(
    app: BrokerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.produce(b"a")
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY))
        await session.hear(ChannelOpened)
        await session.hear(Batches)
        disk = threading.Event()

        def cached_but_for_the_start(file: FileHandle, at: int, count: int) -> Buffer:
            if at == 0:
                raise NotCachedError
            return read_cached(file, at, count)

        def slow(file: FileHandle, at: int, count: int) -> Buffer:
            assert disk.wait(patient(20))
            return read_blocking(file, at, count)

        monkeypatch.setattr(log_reader, "read_cached", cached_but_for_the_start)
        monkeypatch.setattr(log_reader, "read_once", slow)
        session.say(to_fetch(2, credit=PLENTY), to_fetch(3, credit=PLENTY))
        await session.hear(ChannelOpened)
        await session.hear(ChannelOpened)
        await app.produce(b"b")
        assert (await session.hear(Batches)).channel == 1
        session.say(CloseChannel(3))  # while it waits
        await session.hear(ChannelClosed)
        disk.set()
        assert (await session.hear(Batches)).channel == 2
    await eventually(
        lambda: app.admission.answers.left_bytes == app.admission.answers.limit_bytes,
        "all given back",
    )


async def test_should_not_miss_what_is_committed_between_a_read_and_its_turn(
    app: BrokerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.produce(b"a")
    late = split_batches([batch_of(b"b")], batch_bytes_max=1 << 20)
    next_frame = ServedFetchChannel.next_frame

    def not_cached(*_: object) -> Buffer:
        raise NotCachedError

    def commit_first(channel: ServedFetchChannel, max_bytes: int) -> Sequence[Buffer]:
        if channel._cold._read is not None and late:
            app.partition.append([late.pop()], ProduceQuery(Acks.LEADER, 1000, Fence()), lambda error: None)
        return next_frame(channel, max_bytes)

    monkeypatch.setattr(log_reader, "read_cached", not_cached)
    monkeypatch.setattr(ServedFetchChannel, "next_frame", commit_first)
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY))
        await session.hear(ChannelOpened)
        assert await offsets_until(session, 2) == [(0, 0), (1, 1)]


async def test_should_wait_for_room_among_all_answers_and_answer_produces_meanwhile(app: BrokerApp) -> None:
    answers = app.admission.answers
    taken = answers.left_bytes
    answers.take(taken)
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY), to_produce(2))
        await session.hear(ChannelOpened)
        await session.hear(ChannelOpened)
        for n in range(3):
            session.say(Produce(2, n, [batch_of(b"a")]))
            await session.produced(1)
        answers.give_back(taken)
        assert await offsets_until(session, 3) == [(0, 0), (1, 1), (2, 2)]
    await eventually(lambda: answers.left_bytes == taken, "all given back")


async def test_should_send_small_frames_of_many_channels_together(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(*(to_fetch(n + 1, credit=PLENTY) for n in range(100)))
        for _ in range(100):
            await session.hear(ChannelOpened)
        await app.produce(b"a")
        assert sorted([(await session.hear(Batches)).channel for _ in range(100)]) == list(range(1, 101))


async def test_should_fail_when_what_is_due_was_deleted(app: BrokerApp) -> None:
    for _ in range(3):
        await app.produce(b"a")
    async with session_at(app.url) as session:
        session.say(to_fetch(1))
        await session.hear(ChannelOpened)
        await app.partition.delete_records(DeleteQuery(Edge.LATEST, Fence()))
        session.say(Credit(1, 1))
        failed = await session.failed(1)
        assert isinstance(failed.error, OffsetOutOfRangeError)
        assert failed.error.details["logStartOffset"] == 3
        session.say(to_fetch(2, offset=Offset(99), credit=1))
        assert isinstance((await session.failed(2)).error, OffsetOutOfRangeError)


async def test_should_fail_every_channel_when_the_epoch_changes(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(to_fetch(1), to_fetch(2, credit=PLENTY), to_produce(3))
        for _ in range(3):
            await session.hear(ChannelOpened)
        app.partition.apply(partition_state(leader=seat(0), leader_epoch=2, partition_epoch=2))
        failed = [await session.hear(Failed) for _ in range(3)]
        assert sorted(each.channel for each in failed) == [1, 2, 3]
        assert all(isinstance(each.error, FencedEpochError) for each in failed)
        session.say(to_produce(4))
        assert (await session.hear(ChannelOpened)).standing.leader_epoch == 2


async def test_should_fail_the_channel_of_a_disk_that_fails(app: BrokerApp, monkeypatch: pytest.MonkeyPatch) -> None:
    await app.produce(b"a")

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log_reader, "read_cached", fail)
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY))
        await session.hear(ChannelOpened)
        assert isinstance((await session.failed(1)).error, StorageFailedError)


async def test_should_say_that_it_is_alive_when_there_is_nothing_to_say(app: BrokerApp) -> None:
    app.components.sessions.heartbeat_ms = 50
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY))
        await session.hear(ChannelOpened)
        await session.hear(Heartbeat)
        await session.hear(Heartbeat)
