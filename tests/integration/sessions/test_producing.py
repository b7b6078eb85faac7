"""Producing over sessions, at a broker's application on real sockets."""

from typing import Any

from headrace.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRequestError,
    NotLeaderError,
    RequestTimedOutError,
)
from headrace.core.frames.session_messages import (
    SESSION_PRODUCES_PENDING_MAX,
    ChannelClosed,
    ChannelOpened,
    Failed,
    Heartbeat,
    Produce,
    Produced,
)
from headrace.core.records.columns import columns_of
from headrace.core.records.header import Compression
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import BrokerId, RecordContent
from headrace_broker.admission import JSON_BATCH_BYTES_MIN
from tests.support.batches import TIMESTAMP_MS, batch_of, encoded, mislabelled, poisoned
from tests.support.broker_app import BrokerApp
from tests.support.partition_sets import partition_state, seat
from tests.support.sessions import session_at, to_fetch, to_produce

LARGE = batch_of(b"0" * (3 << 20))
WITH_ANOTHER: dict[str, Any] = {"replicas": (BrokerId(0), BrokerId(1)), "isr": (seat(0), seat(1))}


async def test_should_answer_produces_in_their_order(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(to_produce(1), *(Produce(1, n, [batch_of(b"a", b"b")]) for n in range(10)))
        opened = await session.hear(ChannelOpened)
        assert (opened.channel, opened.standing.log_start_offset) == (1, 0)
        answers = await session.produced(10)
        assert [(each.sequence, each.base_offset, each.last_offset) for each in answers] == [
            (n, 2 * n, 2 * n + 1) for n in range(10)
        ]
        session.end()
        await session.hear(ChannelClosed)
        assert await session.rest() == []


async def test_should_refuse_all_that_follows_a_failure(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        broken = bytearray(batch_of(b"b"))
        broken[-1] ^= 1
        session.say(
            to_produce(1), Produce(1, 1, [batch_of(b"a")]), Produce(1, 2, [broken]), Produce(1, 3, [batch_of(b"c")])
        )
        await session.hear(ChannelOpened)
        assert [each.sequence for each in await session.produced(1)] == [1]
        failed = await session.failed(1)
        assert (failed.sequence, type(failed.error)) == (2, CorruptBatchError)
        session.say(Produce(1, 4, [batch_of(b"d")]), to_produce(2), Produce(2, 3, [batch_of(b"c")]))
        await session.hear(ChannelOpened)
        (answer,) = await session.produced(1)
        assert (answer.channel, answer.sequence, answer.base_offset) == (2, 3, 1)


async def test_should_name_the_produce_at_fault_among_those_that_came_together(app: BrokerApp) -> None:
    app.partition.configure(TopicSpec.parse({"partitions": 1, "cleanupPolicy": "Compact"}))
    keyed = encoded(columns_of([RecordContent(b"key", b"value", TIMESTAMP_MS)]))
    async with session_at(app.url) as session:
        batches = [keyed, keyed, batch_of(b"no key"), keyed]
        session.say(to_produce(1), *(Produce(1, n, [batch]) for n, batch in enumerate(batches)))
        await session.hear(ChannelOpened)
        assert [each.base_offset for each in await session.produced(2)] == [0, 1]
        failed = await session.failed(1)
        assert (failed.sequence, type(failed.error)) == (2, InvalidRequestError)
    assert app.partition.high_watermark == 2


async def test_should_fail_a_channel_with_too_many_unanswered(app: BrokerApp) -> None:
    """Nothing is acknowledged while another replica is in the ISR, which never answers here."""
    app.partition.apply(partition_state(leader=seat(0), partition_epoch=2, **WITH_ANOTHER))
    async with session_at(app.url) as session:
        session.say(to_produce(1, timeout_ms=500))
        session.say(*(Produce(1, n, [batch_of(b"a")]) for n in range(SESSION_PRODUCES_PENDING_MAX)))
        session.say(to_produce(2), Produce(1, 9999, [batch_of(b"a")]))
        opened, failed = list[int](), list[Failed]()
        while len(opened) < 2 or not failed:  # The second may be opened after the first has failed.
            match await session.next():
                case ChannelOpened(channel=channel):
                    opened.append(channel)
                case Failed() as failure:
                    failed.append(failure)
                case other:
                    assert isinstance(other, Heartbeat), other
        assert opened == [1, 2]
        # The first one timed out before any other was answered.
        assert [(each.channel, each.sequence, type(each.error)) for each in failed] == [(1, 0, RequestTimedOutError)]
        session.say(*(Produce(2, n, [batch_of(b"a")]) for n in range(2)))
        app.partition.apply(partition_state(leader=seat(0), partition_epoch=3))
        assert [each.sequence for each in await session.produced(2)] == [0, 1]


async def test_should_refuse_pending_produces_when_leadership_is_lost(app: BrokerApp) -> None:
    app.partition.apply(partition_state(leader=seat(0), partition_epoch=2, **WITH_ANOTHER))
    async with session_at(app.url) as session:
        session.say(to_produce(1), *(Produce(1, n, [batch_of(b"a")]) for n in range(3)), to_fetch(2))
        await session.hear(ChannelOpened)
        await session.hear(ChannelOpened)
        app.partition.apply(partition_state(leader=seat(1), leader_epoch=2, partition_epoch=3, **WITH_ANOTHER))
        failed = {each.channel: each for each in [await session.hear(Failed), await session.hear(Failed)]}
        assert {channel: each.sequence for channel, each in failed.items()} == {1: 0, 2: -1}
        assert isinstance(failed[1].error, NotLeaderError)
        assert "whether the records are written is not known" in failed[1].error.message


async def test_should_refuse_a_batch_that_nobody_can_decode_and_write_what_came_before_it(app: BrokerApp) -> None:
    for number, spoiled in enumerate((poisoned(batch_of(b"b")), mislabelled(batch_of(b"b")), poisoned(LARGE)), 1):
        async with session_at(app.url) as session:
            session.say(
                to_produce(1),
                Produce(1, 1, [batch_of(b"a")]),
                Produce(1, 2, [spoiled]),
                Produce(1, 3, [batch_of(b"c")]),
            )
            await session.hear(ChannelOpened)
            assert [(each.sequence, each.base_offset) for each in await session.produced(1)] == [(1, number - 1)]
            failed = await session.failed(1)
            assert (failed.sequence, type(failed.error)) == (2, CorruptBatchError)
            assert failed.error.message.startswith("batch 0: the body")


async def test_should_keep_the_order_when_some_take_long_to_check(app: BrokerApp) -> None:
    packed = batch_of(b"0" * (1 << 20), compression=Compression.ZSTD)
    sent = [batch_of(b"a"), packed, batch_of(b"b"), LARGE, packed, batch_of(b"c")]
    async with session_at(app.url) as session:
        session.say(to_produce(1), to_produce(2))
        session.say(*(Produce(1 + n % 2, n, [batch]) for n, batch in enumerate(sent)))
        for batch in (packed, batch_of(b"d")):
            session.say(Produce(1, len(sent), [batch]))
            sent.append(batch)
        session.end()
        heard = await session.rest()
    answers = [each for each in heard if isinstance(each, Produced)]
    assert [each.base_offset for each in sorted(answers, key=lambda each: each.sequence)] == list(range(len(sent)))
    assert [each.channel for each in heard if isinstance(each, ChannelClosed)] == [1, 2]


async def test_should_answer_nothing_of_what_is_being_checked_when_its_client_leaves(app: BrokerApp) -> None:
    async with session_at(app.url) as session:
        session.say(to_produce(1))
        await session.hear(ChannelOpened)
        session.say(Produce(1, 1, [LARGE]))
    async with session_at(app.url) as session:
        session.say(to_produce(1), Produce(1, 1, [batch_of(b"a")]))
        await session.hear(ChannelOpened)
        assert (await session.produced(1))[0].sequence == 1


async def test_should_refuse_what_takes_more_memory_than_there_is_to_look_into_it(app: BrokerApp) -> None:
    conversions = app.admission.conversions
    conversions.limit_bytes = conversions.left_bytes = JSON_BATCH_BYTES_MIN
    huge = batch_of(b"0" * (JSON_BATCH_BYTES_MIN + 1), compression=Compression.ZSTD)
    async with session_at(app.url) as session:
        session.say(to_produce(1), Produce(1, 1, [huge]))
        await session.hear(ChannelOpened)
        failed = await session.failed(1)
        assert type(failed.error) is BatchTooLargeError
        assert failed.error.details == {"limit": JSON_BATCH_BYTES_MIN, "batch": 0}
    assert conversions.left_bytes == JSON_BATCH_BYTES_MIN
