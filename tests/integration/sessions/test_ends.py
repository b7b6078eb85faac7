"""How sessions begin and end: refused, broken, drained, left by their clients; and what they may cost."""

import asyncio
import json

import pytest

from headrace.core.errors import (
    BatchTooLargeError,
    BrokenSessionError,
    BrokerUnreachableError,
    InvalidRequestError,
    NotReadyError,
    SlowClientError,
    UnknownTopicError,
)
from headrace.core.frames.frame import HEAD_BYTES, pack_head
from headrace.core.frames.session_messages import (
    SESSION_MEDIA_TYPE,
    Batches,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    Credit,
    Failed,
    Produce,
    SessionKind,
)
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.slow_clients import Pace, Patience
from headrace_broker.clock import monotonic_ms
from headrace_broker.sessions.channels import ServedFetchChannel
from headrace_broker.sessions.session import Session
from headrace_broker.storage import log_reader
from headrace_broker.storage.disk import NotCachedError
from tests.support.batches import batch_of
from tests.support.broker_app import BrokerApp
from tests.support.cluster import http
from tests.support.sessions import packed, session_at, session_with, to_fetch, to_produce
from tests.support.waiting import eventually
from tests.support.world import JSON_BODY

PLENTY = 1 << 30
BATCH = batch_of(b"a")


async def test_should_ask_for_http_2_and_for_the_media_type(app: BrokerApp) -> None:
    url = app.url.replace(app.url.partition("/v1")[2], "/sessions")
    answer = await asyncio.to_thread(http, "POST", url, b"", {"Content-Type": SESSION_MEDIA_TYPE})
    assert (answer.status, answer.json["field"]) == (400, "HTTP version")
    assert "a session needs HTTP/2" in answer.json["detail"]
    async with AsyncTransport() as transport:
        refused = await transport.request("POST", url, headers=JSON_BODY)
        assert (refused.status, json.loads(await refused.read())["field"]) == (400, "Content-Type")
        refused = await transport.request("POST", url + "?x=1", headers={"Content-Type": SESSION_MEDIA_TYPE})
        assert (refused.status, json.loads(await refused.read())["field"]) == (400, "x")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pack_head(0x77, 1, 0), "frame type 0x77 is unknown"),
        (pack_head(SessionKind.OPEN_FETCH, 1, 1 << 30), "length is 1073741824"),
        (pack_head(SessionKind.OPEN_FETCH, 1, 1) + b"{", "not JSON"),
        (Credit(5, 1).pack(), "channel 5 was never opened"),
        (packed(to_produce(0)), "number channels from 1|is opened after"),
        (packed(to_produce(1)) + Credit(1, 1).pack(), "channel 1 is no channel for CREDIT"),
        (packed(to_fetch(1)) + packed(Produce(1, 1, [BATCH])), "channel 1 is no channel for PRODUCE"),
        (packed(to_fetch(1)) + packed(to_fetch(1)), "channel 1 is opened after channel 1"),
    ],
)
async def test_should_end_a_session_that_breaks_the_rules(app: BrokerApp, data: bytes, said: str) -> None:
    async with session_at(app.url) as session:
        session.stream.send(data)
        *_, failed = await session.rest()
        assert isinstance(failed, Failed)
        assert (failed.channel, type(failed.error)) == (0, BrokenSessionError)
        with pytest.raises(BrokenSessionError, match=said):
            raise failed.error


async def test_should_end_a_session_within_a_frame(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.stream.send(pack_head(SessionKind.CLOSE, 1, 0)[:-1], ended=True)
        (failed,) = await session.rest()
        assert isinstance(failed, Failed)
        assert "ended within a frame" in str(failed.error)


async def test_should_not_wait_for_ever_for_the_rest_of_a_frame(app: BrokerApp) -> None:
    left = app.admission.bodies.left_bytes
    async with session_at(app.url) as session:
        session.say(to_produce(1))
        await session.hear(ChannelOpened)
        sent = packed(Produce(1, 1, [BATCH]))
        session.stream.send(sent[:-2])
        await eventually(lambda: app.admission.bodies.left_bytes < left, "room for the frame")
        # Only now is it in a hurry: room that is given back after a moment might be seen by nobody.
        (served,) = app.components.sessions._tasks
        assert isinstance(served, Session)
        served._pace, app.components.sessions.patience = None, Patience(stall_ms=500)
        session.stream.send(sent[-2:-1])
        (failed,) = await session.rest()
        assert isinstance(failed, Failed)
        assert (failed.channel, type(failed.error)) == (0, SlowClientError)
    await eventually(lambda: app.admission.bodies.left_bytes == left, "all given back")


async def test_should_refuse_a_channel_by_itself(app: BrokerApp) -> None:
    document = b'{"namespace":"default","topic":"flights","partition":0,"acks":2}'
    async with session_at(app.url) as session:
        session.say(to_produce(1, topic="nothing"), to_fetch(2, partition=7))
        session.stream.send(pack_head(SessionKind.OPEN_PRODUCE, 3, len(document)) + document)
        session.say(Produce(1, 1, [BATCH]), to_produce(4), Produce(4, 1, [BATCH]))
        failed = [await session.failed(channel) for channel in (1, 2, 3)]
        assert isinstance(failed[0].error, UnknownTopicError)
        assert isinstance(failed[2].error, InvalidRequestError)
        assert {each.sequence for each in failed} == {-1}
        await session.hear(ChannelOpened)
        await session.produced(1)


async def test_should_be_read_when_there_is_room_again(app: BrokerApp) -> None:
    """Above the budget of bodies a session waits, and nothing is refused."""
    bodies = app.admission.bodies
    taken = bodies.left_bytes - 100
    bodies.take(taken)
    async with session_at(app.url) as session:
        session.say(to_produce(1))
        await session.hear(ChannelOpened)
        sent = packed(Produce(1, 1, [BATCH]))
        session.stream.send(sent[:HEAD_BYTES])
        await eventually(lambda: bool(bodies._freed), "waiting for room")
        session.stream.send(sent[HEAD_BYTES:])
        bodies.give_back(taken)
        await session.produced(1)
        await eventually(lambda: bodies.left_bytes == bodies.limit_bytes, "all given back")


async def test_should_not_take_a_client_for_slow_when_it_is_kept_waiting_for_room(app: BrokerApp) -> None:
    """Its patience never runs out here, however slow this machine is: what the session has seen is made to look old."""
    bodies = app.admission.bodies
    taken = bodies.left_bytes
    bodies.take(taken)
    async with session_at(app.url) as session:
        session.say(to_produce(1))
        await session.hear(ChannelOpened)
        sent = packed(Produce(1, 1, [BATCH]))
        session.stream.send(sent[: HEAD_BYTES // 2])
        (served,) = app.components.sessions._tasks
        assert isinstance(served, Session)
        await eventually(lambda: served._pace is not None, "its pace is taken")
        session.stream.send(sent[HEAD_BYTES // 2 : HEAD_BYTES])
        await eventually(lambda: bool(bodies._freed), "waiting for room")
        served._pace = Pace(Patience(stall_ms=1), moved=1 << 30, now_ms=0)
        assert served._pace.judged_ms < monotonic_ms(), "longer ago than a client may take"
        bodies.give_back(taken)
        await eventually(lambda: bodies.left_bytes < taken, "room for the frame")
        session.stream.send(sent[HEAD_BYTES:])
        await session.produced(1)


async def test_should_end_a_session_whose_read_from_the_disk_fails_by_a_mistake_of_ours(
    app: BrokerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.produce(b"a")

    def not_cached(*_: object) -> None:
        raise NotCachedError

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log_reader, "read_cached", not_cached)
    monkeypatch.setattr(log_reader, "read_once", fail)
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=1 << 20))
        await session.hear(ChannelOpened)
        with pytest.raises(BrokerUnreachableError):
            await session.rest()
    await eventually(
        lambda: app.admission.answers.left_bytes == app.admission.answers.limit_bytes,
        "all given back",
    )


async def test_should_serve_everybody_in_turn_when_there_is_room_for_one(app: BrokerApp) -> None:
    """Frames that are larger together than what may be held: nobody is refused, and nobody waits for ever."""
    bodies = app.admission.bodies
    bodies.left_bytes = bodies.limit_bytes = 768 << 10
    part = batch_of(bytes(128 << 10))

    async def produce_much() -> None:
        async with session_at(app.url) as session:
            session.say(to_produce(1), *(Produce(1, n, [part] * 4) for n in range(3)))
            await session.hear(ChannelOpened)
            await session.produced(3)

    await asyncio.gather(*(produce_much() for _ in range(6)))
    assert app.partition.high_watermark == 6 * 3 * 4
    await eventually(lambda: bodies.left_bytes == bodies.limit_bytes, "all given back")


async def test_should_refuse_a_batch_that_is_too_large_for_its_topic(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(to_produce(1), Produce(1, 5, [batch_of(bytes(9 << 20))]))
        await session.hear(ChannelOpened)
        failed = await session.failed(1)
        assert (failed.sequence, type(failed.error)) == (5, BatchTooLargeError)


async def test_should_end_when_the_broker_drains(app: BrokerApp) -> None:
    async with session_at(app.url) as session, session_at(app.url) as idle:
        session.say(to_produce(1), Produce(1, 1, [BATCH]), to_fetch(2, credit=PLENTY))
        idle.say(to_fetch(1))
        heard = [type(await session.next()) for _ in range(4)]
        assert sorted(each.__name__ for each in heard) == ["Batches", "ChannelOpened", "ChannelOpened", "Produced"]
        await idle.hear(ChannelOpened)
        app.components.drain()
        for each, channels in ((session, {1, 2}), (idle, {1})):
            failed = await each.rest()
            assert {message.channel for message in failed if isinstance(message, Failed)} == channels
            assert all(isinstance(message, Failed) and isinstance(message.error, NotReadyError) for message in failed)
    async with AsyncTransport() as transport:
        refused = await transport.request("POST", app.url.partition("/v1")[0] + "/v1/sessions", headers=HEADERS)
        assert refused.status == 503


HEADERS = {"Content-Type": SESSION_MEDIA_TYPE}


async def test_should_hold_up_no_stop_when_a_client_does_not_read(app: BrokerApp) -> None:
    app.components.sessions.drain_ms = 50
    for _ in range(12):
        await app.produce(bytes(1 << 20))
    async with session_at(app.url) as session:
        session.say(to_fetch(1, credit=PLENTY))
        await eventually(
            lambda: app.admission.answers.left_bytes < app.admission.answers.limit_bytes,
            "a batch on its way",
        )
        app.components.drain()
        await eventually(lambda: not app.components.sessions.open, "no session")
    # What a thread has read from the disk meanwhile is given back a little later.
    await eventually(
        lambda: app.admission.answers.left_bytes == app.admission.answers.limit_bytes,
        "all given back",
    )


async def test_should_forget_a_client_that_has_gone(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(to_produce(1), to_fetch(2, credit=PLENTY))
        await session.hear(ChannelOpened)
        await session.hear(ChannelOpened)
        assert (app.components.sessions.open, app.components.sessions.channels) == (1, 2)
        session.stream.cancel()
        await eventually(lambda: not app.components.sessions.open, "no session")
    assert not app.partition._waiters._readers


@pytest.mark.parametrize("alone", [True, False])
async def test_should_lose_one_session_and_no_other_by_a_mistake_of_ours(
    app: BrokerApp, monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    async with (
        AsyncTransport() as transport,
        session_with(transport, app.url) as session,
        session_with(transport, app.url) as other,
    ):
        other.say(to_fetch(1))
        session.say(to_fetch(1))
        await other.hear(ChannelOpened)
        await session.hear(ChannelOpened)

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(ServedFetchChannel, "add_credit", fail)
        session.say(*[Credit(1, 1)] * (1 if alone else 2))
        with pytest.raises(BrokerUnreachableError):
            await session.rest()
        monkeypatch.undo()
        other.say(to_fetch(2))
        await other.hear(ChannelOpened)


async def test_should_bound_sessions_and_say_how_many_there_are(app: BrokerApp) -> None:
    app.components.sessions.places.most = 1
    base = app.url.partition("/v1")[0]
    async with session_at(app.url) as session, AsyncTransport() as transport:
        session.say(to_fetch(1))
        await session.hear(ChannelOpened)
        refused = await transport.request("POST", base + "/v1/sessions", headers=HEADERS)
        assert (refused.status, "1 sessions open" in (await refused.read()).decode()) == (429, True)
        metrics = (await (await transport.request("GET", base + "/metrics")).read()).decode()
        assert "headrace_broker_sessions 1.0" in metrics
        assert "headrace_broker_session_channels 1.0" in metrics


async def test_should_answer_what_is_pending_after_the_clients_end(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(to_produce(1), to_fetch(2), Produce(1, 1, [BATCH]), CloseChannel(1))
        session.end()
        heard = await session.rest()
        assert [type(each) for each in heard] == [ChannelOpened, ChannelOpened, *[type(each) for each in heard[2:]]]
        assert {each.channel for each in heard if isinstance(each, ChannelClosed)} == {1, 2}
        assert not any(isinstance(each, Batches) for each in heard)
