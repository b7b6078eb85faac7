"""Logs and votes between brokers in this process, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.core.errors import BrokerUnreachableError, CorruptLogError, NotEnoughReplicasError
from headrace.core.frames.replication_messages import REPLICATION_MEDIA_TYPE, Hello, StreamRole
from headrace.core.replication import leader_stream
from headrace.core.replication.leader_stream import REPLICATION_BEHIND_BYTES_MAX, REPLICATION_IN_FLIGHT_BYTES_MAX
from headrace.core.types import Acks
from headrace.http2.async_transport import AsyncStream, AsyncTransport
from headrace_broker.clock import monotonic_ms
from headrace_broker.replication.open_streams import REPLICATION_STREAMS_UNKNOWN_MAX
from headrace_broker.replication.recent_batches import RecentBatches
from headrace_broker.storage import log_reader
from headrace_broker.storage.disk import NotCachedError
from headrace_broker.storage.partition_log import PartitionLog
from tests.support.replica_apps import ReplicaApp, ReplicaApps, replica_apps, roles_of
from tests.support.waiting import eventually

MIB = 1 << 20


@pytest.fixture
async def apps(tmp_path: Path) -> AsyncIterator[ReplicaApps]:
    async with replica_apps(tmp_path) as running:
        yield running


def end_of(app: ReplicaApp, partition: int = 0) -> int:
    return app.partition(partition).log.log_end_offset


async def test_should_have_all_replicas_hold_what_is_acknowledged(apps: ReplicaApps) -> None:
    apps.lead(0)
    for number in range(20):
        await apps[0].produce(b"%d" % number)
        assert {end_of(app) for app in apps.everybody} == {number + 1}
    await apps.agree()


async def test_should_tell_followers_what_is_committed_without_more_batches(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await eventually(lambda: all(app.partition().high_watermark == 1 for app in apps.everybody), "all know")


async def test_should_wait_for_every_member_of_the_isr(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await apps.stop(2)
    produced = asyncio.create_task(apps[0].produce(b"b"))
    await eventually(lambda: end_of(apps[1]) == 2, "the other one has it")
    assert not produced.done()
    apps.shrink(0, 1)
    await produced


async def test_should_bring_back_who_was_away(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await apps.stop(2)
    apps.shrink(0, 1)
    for _ in range(10):
        await apps[0].produce(b"b")
    await apps.start(2)
    await apps.agree()


async def test_should_cut_what_nobody_else_has(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    for broker in (1, 2):
        await apps.stop(broker)
    for _ in range(5):
        await apps[0].produce(b"only here", acks=Acks.LEADER)
    await apps.stop(0)
    for broker in (1, 2):
        await apps.start(broker)
    apps.lead(1, isr=(1, 2))
    await apps[1].produce(b"b")
    await apps.start(0)
    await apps.agree()
    assert end_of(apps[0]) == 2


async def test_should_catch_up_beside_the_live_stream(tmp_path: Path) -> None:
    async with replica_apps(tmp_path, partitions=2, durability="Replicated") as apps:
        apps.lead_all(0)
        await apps.stop(2)
        apps.shrink(0, 1, partition=0)
        apps.shrink(0, 1, partition=1)
        behind = 3 * REPLICATION_BEHIND_BYTES_MAX
        for _ in range(behind // MIB):
            await apps[0].produce(bytes(MIB))
        await apps.start(2)
        await apps.agree(timeout_s=60)
        await eventually(lambda: moves(apps[2]) == {StreamRole.LIVE: 1, StreamRole.CATCH_UP: 1}, "there and back")
        await eventually(lambda: roles_of(apps[2]) == {StreamRole.LIVE: 2, StreamRole.CATCH_UP: 0}, "all is live")


def moves(app: ReplicaApp) -> dict[StreamRole, int]:
    """Partitions that left each."""
    return {lane: int(app.metric("headrace_broker_replication_moves_total", lane=lane.value)) for lane in StreamRole}


def forget_what_is_recent(patch: pytest.MonkeyPatch) -> None:
    """Whatever is sent is read from the log."""
    patch.setattr(RecentBatches, "find", lambda *_: None)


async def test_should_keep_the_rate_at_which_others_catch_up(tmp_path: Path) -> None:
    async with replica_apps(tmp_path, brokers=0, durability="Replicated") as apps:
        rate = 16 * MIB
        await apps.start(0, catch_up_rate=rate)
        apps.lead(0, isr=(0,))
        for _ in range((REPLICATION_BEHIND_BYTES_MAX + rate) // MIB):
            await apps[0].produce(bytes(MIB))
        began_ms = monotonic_ms()
        await apps.start(1)
        await apps.agree(timeout_s=60)
        await eventually(lambda: moves(apps[1])[StreamRole.CATCH_UP] == 1, "it has caught up")
        assert monotonic_ms() - began_ms > 500


async def test_should_read_for_followers_what_is_not_in_the_page_cache(
    apps: ReplicaApps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_cached(*_: object) -> bytes:
        raise NotCachedError

    monkeypatch.setattr(log_reader, "read_cached", not_cached)
    forget_what_is_recent(monkeypatch)
    apps.lead(0)
    for number in range(10):
        await apps[0].produce(b"%d" % number)
    await apps.agree()


async def test_should_copy_batches_that_are_larger_than_what_is_received_at_once(apps: ReplicaApps) -> None:
    apps.lead(0)
    values = [bytes([number]) * (number * MIB // 2) for number in range(1, 9)]
    await asyncio.gather(*(apps[0].produce(value) for value in values))
    await apps.agree()
    assert apps[1].metric("headrace_broker_replication_connects_total", outcome="failed") == 0


async def test_should_not_read_back_what_was_appended_just_now(
    apps: ReplicaApps, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await apps.agree()
    for name in ("read", "read_cached"):
        monkeypatch.setattr(PartitionLog, name, lambda *_, **__: pytest.fail("the log is read"))
    for size in (1, 2 * MIB, 100):
        await apps[0].produce(bytes(size))
    await apps.agree()


async def test_should_say_so_and_try_again_where_the_leader_cannot_read(
    apps: ReplicaApps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(self: PartitionLog, *_: object, **__: object) -> None:
        raise CorruptLogError("segment 0 is torn")

    apps.lead(0, isr=(0,))
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "read_cached", torn)
        forget_what_is_recent(patch)
        await apps[0].produce(b"a")
        refused = "headrace_broker_replication_refused_total"
        await eventually(lambda: apps[0].metric(refused, code="CorruptLog") >= 4, "it was refused, and asked again")
        assert end_of(apps[1]) == 0
    await apps.agree()


async def test_should_refuse_only_what_is_too_much_for_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_stream, "REPLICATION_CHANNELS_MAX", 1)
    async with replica_apps(tmp_path, brokers=2, partitions=2) as apps:
        apps.lead_all(0, isr=(0,))
        refused = "headrace_broker_replication_refused_total"
        await eventually(lambda: apps[0].metric(refused, code="Throttled") >= 2, "it was refused, and asked again")
        await apps[0].produce(b"a")
        await apps.agree()
        assert apps[1].metric("headrace_broker_replication_connects_total", outcome="failed") == 0


async def test_should_not_be_refused_where_clients_take_all_there_is(tmp_path: Path) -> None:
    async with replica_apps(tmp_path, brokers=1) as apps:
        apps.lead(0, isr=(0,))
        admission = apps[0].components.admission
        for budget in (admission.bodies, admission.answers):
            budget.left_bytes = 0
        admission.clients.most = 0
        await apps[0].produce(b"a")
        await apps.start(1)
        await apps.agree()


async def test_should_hold_little_for_a_follower_that_appends_slowly(
    apps: ReplicaApps, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps.lead(0, isr=(0, 1))
    await apps[0].produce(b"a")
    await apps.agree()
    slow = apps[2].partition().shell
    received = type(slow).received

    def lost(self: object, *args: object) -> None:
        if self is not slow:
            received(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(slow), "received", lost)
    for _ in range(3 * REPLICATION_IN_FLIGHT_BYTES_MAX // MIB):
        await apps[0].produce(bytes(MIB))
    sent = apps[0].metric("headrace_broker_replication_bytes_out_total")
    assert sent < 4 * REPLICATION_IN_FLIGHT_BYTES_MAX + 4 * MIB
    assert apps[0].metric("headrace_broker_follower_lag_records", follower="2") == 24


async def test_should_follow_again_after_the_connection_is_lost(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    for connection in tuple(apps[0].server._http2):
        connection._transport.abort()
    await apps[0].produce(b"b")
    await apps.agree()
    assert apps[1].metric("headrace_broker_replication_connects_total", outcome="failed") >= 1


async def test_should_give_up_a_leader_that_says_nothing_and_follow_again(apps: ReplicaApps) -> None:
    apps.lead(0, isr=(0, 1))
    await apps[0].produce(b"a")
    await apps.agree()
    # As where the network drops everything: the follower hears of nothing, not even of the end of the connection.
    streams = apps[2].streams._leaders[apps[0].seat]
    stream = streams[StreamRole.LIVE]._stream
    assert stream is not None
    stream._connection._transport.pause_reading()
    await apps[0].produce(b"b")
    assert end_of(apps[2]) == 1
    began_ms = monotonic_ms()
    await apps.agree()
    assert monotonic_ms() - began_ms > 1_000


async def test_should_give_up_a_follower_that_says_nothing(apps: ReplicaApps) -> None:
    apps.lead(0, isr=(0, 1))
    await apps[0].produce(b"a")
    await apps.agree()
    for connection in apps[0].server._http2:
        connection._transport.pause_reading()
    failed, open_streams = "headrace_broker_replication_connects_total", "headrace_broker_replication_streams"
    await eventually(lambda: apps[1].metric(failed, outcome="failed") > 0, "it is cut off")
    await eventually(lambda: apps[0].metric(open_streams, follower="1", lane="live") == 1, "it has followed again")
    await apps[0].produce(b"b")
    await apps.agree()


async def test_should_show_what_replication_does(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await apps.agree()
    assert roles_of(apps[1]) == {StreamRole.LIVE: 1, StreamRole.CATCH_UP: 0}
    assert apps[0].metric("headrace_broker_replication_streams", follower="1", lane="live") == 1
    taken = [app.metric("headrace_broker_replication_bytes_in_total") for app in (apps[1], apps[2])]
    assert sum(taken) == apps[0].metric("headrace_broker_replication_bytes_out_total") > 0
    lag = "headrace_broker_follower_lag_records"
    await eventually(lambda: apps[0].metric(lag, follower="1") == 0, "the leader has heard that it has all")


async def test_should_acknowledge_what_was_written_before_it_stops(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    produced = [asyncio.create_task(apps[0].produce(b"%d" % number)) for number in range(20)]
    await asyncio.sleep(0)
    apps[0].components.drain()
    await asyncio.gather(*produced)
    await eventually(lambda: apps[0].components.served_streams.open == 0, "the streams have ended")


async def test_should_follow_nobody_once_it_has_closed(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await apps[2].streams.close()
    apps.lead(1)
    await apps[1].produce(b"b", acks=Acks.LEADER)
    await eventually(lambda: end_of(apps[0]) == 2, "another one has followed", 30)
    assert (end_of(apps[2]), roles_of(apps[2])) == (1, {StreamRole.LIVE: 0, StreamRole.CATCH_UP: 0})


async def test_should_refuse_to_write_with_too_few(tmp_path: Path) -> None:
    async with replica_apps(tmp_path, brokers=1, minInsyncReplicas=2) as apps:
        apps.lead(0, isr=(0,))
        with pytest.raises(NotEnoughReplicasError):
            await apps[0].produce(b"a")


async def test_should_count_whoever_is_silent_but_alive_as_caught_up(apps: ReplicaApps) -> None:
    apps.lead(0)
    await apps[0].produce(b"a")
    await apps.agree()
    replica, began_ms = apps[0].partition().replica, monotonic_ms()
    state = replica.state
    assert state is not None
    both = "both have been heard since"
    await eventually(lambda: replica.wanted_isr([], began_ms + 11_000) == state.isr, both)


async def nameless(app: ReplicaApp, transport: AsyncTransport) -> AsyncStream:
    """A stream of which nobody says whose it is."""
    return await transport.open("POST", f"{app.url}/v1/sessions", headers={"content-type": REPLICATION_MEDIA_TYPE})


async def cut_off(stream: AsyncStream, says: bytes = b"") -> None:
    """Until it is; meanwhile somebody says this, bit by bit."""
    left = list(says)
    while True:
        if left:
            stream.send(bytes([left.pop(0)]))
        try:
            await stream.receive(0.2 if left else 30)
        except TimeoutError:
            assert left, "it goes on for ever"
        except BrokerUnreachableError:
            return


UNKNOWN = "headrace_broker_replication_unknown_streams"


async def test_should_bound_those_that_do_not_say_whose_they_are(apps: ReplicaApps) -> None:
    async with AsyncTransport() as transport:
        streams = [await nameless(apps[0], transport) for _ in range(REPLICATION_STREAMS_UNKNOWN_MAX + 5)]
        await eventually(
            lambda: apps[0].metric(UNKNOWN) == REPLICATION_STREAMS_UNKNOWN_MAX, "there are as many as may be"
        )
        for oldest in streams[:5]:
            await cut_off(oldest)
        apps.lead(0)
        await apps[0].produce(b"a")
        await apps.agree()


async def test_should_cut_off_who_speaks_and_never_says_hello(
    apps: ReplicaApps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_stream, "REPLICATION_HELLO_MS_MAX", 600)
    async with AsyncTransport() as transport:
        stream = await nameless(apps[0], transport)
        await cut_off(stream, says=Hello(apps[1].seat, StreamRole.LIVE).pack()[:-1])
    assert apps[0].metric(UNKNOWN) == 0


async def test_should_promise_the_operator_whatever_clients_ask_for(apps: ReplicaApps) -> None:
    apps.lead(0)
    admission = apps[0].components.admission
    admission.clients.most = admission.bodies.left_bytes = 0
    async with AsyncTransport() as transport:

        async def promises() -> int:
            url = f"{apps[0].url}/v1/brokers/0/promises"
            answer = await transport.request("POST", url, body=b'{"partitions": []}')
            await answer.read()
            return answer.status

        assert await promises() == 200
        admission.control.most = 0
        assert await promises() == 429
