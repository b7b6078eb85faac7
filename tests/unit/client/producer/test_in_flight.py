"""Failures are tried again, told, given up and remembered until somebody has heard of them.

Batches in flight in one session: answered in order, or refused as a run from the first that failed.

Which times a producer warns of, and how often.
"""

import logging
from typing import Any

import pytest

from headrace.client.producer.batches import Batch, ColumnBatch, ColumnsDelivery
from headrace.client.producer.deliveries import BatchesDelivery, Delivery, ThreadRows
from headrace.client.producer.in_flight import Again, Arrived, InFlight, Refused, TimeWarnings
from headrace.client.producer.produce_session import LEADER_SILENT_MS, ProduceChannel, ProduceSession
from headrace.client.producer.writer import ProducerOptions
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.metadata import PartitionLayout, TopicLayout
from headrace.client.transport.retry import GiveUp, Trouble, TryAgain
from headrace.core.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    HeadraceError,
    NotLeaderError,
    NotReadyError,
    StaleTopicError,
)
from headrace.core.frames.frame import STREAM
from headrace.core.frames.session_messages import (
    FROM_CLIENTS,
    Closed,
    Failed,
    Heartbeat,
    OpenProduce,
    Produce,
    Produced,
)
from headrace.core.limits import CLIENT_STALL_CHECK_MS, CLIENT_STALL_SLACK_MS
from headrace.core.records.arrow_message import RecordTimes, times_in
from headrace.core.records.header import Compression
from headrace.core.types import LeaderEpoch, Offset
from tests.support.client_columns import batch_columns

PLACE = TopicPartition("flights", 0)
REFUSED = BrokerUnreachableError("broker a:1 cannot be reached: Connection refused")
OPTIONS = ProducerOptions("all", 0, 1 << 20, 1 << 21, Compression.NONE, None, 10_000, 1_000)


def sending() -> InFlight[ThreadRows]:
    return InFlight(OPTIONS, ThreadRows, Trouble())


def sent(plan: InFlight[ThreadRows], now_ms: int) -> tuple[Any, Delivery]:
    """A record, queued and on its way."""
    batch = plan.accumulator.new_rows(PLACE, 30, now_ms)
    delivery = batch.add((None, b"v", 0, ()))
    plan.accumulator.put_rows(batch)
    (due,) = plan.due(now_ms).send
    return due, delivery


def test_should_tell_what_has_failed_for_long_and_go_on_with_a_topic_that_was_created_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sending()
    batch, _ = sent(plan, 1_000)
    decision = plan.decide(batch, StaleTopicError("created again"), 1_500)
    assert isinstance(decision, TryAgain)
    plan.put_back(Again([batch], REFUSED, decision.at_ms))
    assert caplog.text == ""
    (again,) = plan.due(decision.at_ms).send
    assert isinstance(plan.decide(again, REFUSED, 2_500), TryAgain)
    assert caplog.messages == [f"records for flights/0: {REFUSED.message}; trying again"]


def test_should_give_up_what_will_not_pass_and_tell_of_it_once() -> None:
    plan = sending()
    batch, delivery = sent(plan, 0)
    too_large = BatchTooLargeError("9 MiB is over 8 MiB", limit=8)
    assert plan.decide(batch, too_large, 0) == GiveUp(too_large)
    batch.failed(too_large)
    plan.given_up(batch, too_large)
    overlooked = plan.overlooked()
    assert isinstance(overlooked, BatchTooLargeError)
    assert overlooked.message == "1 record was not acknowledged: 9 MiB is over 8 MiB"
    assert overlooked.details == {"limit": 8}
    assert plan.overlooked() is None
    assert delivery.exception() is too_large


def test_should_not_tell_of_failures_that_somebody_has_seen() -> None:
    plan = sending()
    batch, delivery = sent(plan, 0)
    batch.failed(REFUSED)
    plan.given_up(batch, REFUSED)
    assert delivery.exception() is REFUSED
    assert plan.overlooked() is None


def test_should_count_columns_by_their_rows() -> None:
    plan, future = sending(), BatchesDelivery()
    delivery = ColumnsDelivery(future)
    batch = ColumnBatch(PLACE, 0, 500, batch_columns(["x", "y"], None, None, 0), delivery)
    delivery.expect()
    plan.accumulator.put_columns(batch)
    plan.due(0)
    batch.failed(NotLeaderError("no"))
    plan.given_up(batch, NotLeaderError("no"))
    assert str(plan.overlooked()) == "2 records were not acknowledged: no"


def test_should_have_room_for_a_record_that_is_larger_than_the_buffer_once_it_is_alone() -> None:
    plan = sending()
    assert plan.has_room(1 << 30)
    batch, _ = sent(plan, 0)
    assert not plan.has_room(1 << 30)
    assert plan.has_room(1 << 20)
    batch.delivered(0)
    plan.arrived(batch)
    assert plan.has_room(1 << 30)


def test_should_have_stalled_when_a_batch_is_on_its_way_for_longer_than_all_limits_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sending()
    limit_ms = 11_000 + CLIENT_STALL_SLACK_MS
    assert plan.stalled(0) is None
    batch, _ = sent(plan, 0)
    looks = range(0, limit_ms + 1, CLIENT_STALL_CHECK_MS)
    assert [plan.stalled(now_ms) for now_ms in looks] == [None] * len(looks)
    stalled = plan.stalled(limit_ms + CLIENT_STALL_CHECK_MS)
    assert stalled is not None
    assert stalled.message.startswith("this producer has stalled: ")
    batch.delivered(0)
    plan.arrived(batch)
    assert plan.stalled(limit_ms + 2 * CLIENT_STALL_CHECK_MS) is None
    assert caplog.messages[0] == "records for flights/0: no answer for 10 s; still waiting"


def test_should_not_take_the_time_in_which_the_client_was_stopped_for_a_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sending()
    sent(plan, 0)
    assert plan.stalled(0) is None
    assert plan.stalled(3_600_000) is None
    assert caplog.messages == [], "the answer may lie there, unread"
    assert plan.stalled(3_600_000 + CLIENT_STALL_CHECK_MS) is None
    assert len(caplog.messages) == 1


P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LAYOUT = TopicLayout(
    "flights", "uid-1", 1 << 20, (PartitionLayout("http://a:1", 3), PartitionLayout("http://a:1", 4)), 0
)


def opened(session: ProduceSession, partition: TopicPartition) -> ProduceChannel:
    terms = calls.produce_terms("default", LAYOUT, partition.partition, "all", 1_000)
    return session.open(partition, terms)[0]


def sent_batch(channel: ProduceChannel, attempt_ms: int = 0) -> Batch:
    batch = ThreadRows(channel.partition, 0, attempt_ms=attempt_ms)
    channel.produce(batch, [b"batch"])
    return batch


def produced(channel: ProduceChannel, sequence: int, base_offset: int) -> bytes:
    offset = Offset(base_offset)
    return Produced(channel.number, sequence, offset, offset, Offset(0), LeaderEpoch(3)).pack()


def test_should_say_where_it_writes_and_number_what_it_sends() -> None:
    session = ProduceSession("http://a:1")
    channel, opening = session.open(P1, calls.produce_terms("default", LAYOUT, 1, "1", 500))
    body = [opening, *channel.produce(ThreadRows(P1, 0), [b"ba", b"tch"]), *channel.produce(ThreadRows(P1, 0), [b"2"])]
    messages = [FROM_CLIENTS.message(frame) for frame in FROM_CLIENTS.reader().receive(b"".join(body))]
    first, second, third = messages
    assert isinstance(first, OpenProduce)
    assert (first.terms.acks.value, first.terms.timeout_ms, first.terms.fence.topic_uid) == ("1", 500, "uid-1")
    assert first.terms.fence.leader_epoch == 4
    assert isinstance(second, Produce)
    assert isinstance(third, Produce)
    assert (second.sequence, b"".join(second.batches), third.sequence) == (1, b"batch", 2)


def test_should_tell_of_answers_in_order_and_of_the_oldest_that_is_missing() -> None:
    session = ProduceSession("http://a:1")
    one, two = opened(session, P0), opened(session, P1)
    first, second, other = sent_batch(one, 10), sent_batch(one, 20), sent_batch(two, 15)
    assert session.oldest_ms() == 10
    said = Heartbeat().pack() + produced(one, 1, 40) + produced(two, 1, 7)
    assert session.receive([*session.decode(said[:20]), *session.decode(said[20:])]) == [
        Arrived(first, 40),
        Arrived(other, 7),
    ]
    assert session.oldest_ms() == 20
    assert session.receive(session.decode(produced(one, 2, 41))) == [Arrived(second, 41)]
    assert session.oldest_ms() is None


def test_should_give_back_all_from_the_first_that_failed_on() -> None:
    session = ProduceSession("http://a:1")
    channel, other = opened(session, P0), opened(session, P1)
    first, second, third = sent_batch(channel), sent_batch(channel), sent_batch(channel)
    outcomes = session.receive(
        list(session.decode(produced(channel, 1, 40) + Failed(channel.number, NotLeaderError("no"), 2).pack()))
    )
    assert outcomes[0] == Arrived(first, 40)
    assert isinstance(outcomes[1], Refused)
    assert isinstance(outcomes[1].error, NotLeaderError)
    assert outcomes[1].batches == [second, third]
    assert not session.is_open(channel)
    assert session.is_open(other)
    assert session.receive(session.decode(produced(channel, 2, 41))) == [], "said before the broker knew"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Failed(STREAM, NotReadyError("draining")).pack(), NotReadyError),
        (bytes(48), BrokerUnreachableError),
        (Produced(1, 9, Offset(0), Offset(0), Offset(0), LeaderEpoch(3)).pack() * 2, BrokerUnreachableError),
    ],
)
def test_should_refuse_every_channel_when_the_session_ends(said: bytes, error: type[HeadraceError]) -> None:
    session = ProduceSession("http://a:1")
    channels = [opened(session, P0), opened(session, P1)]
    sent_batch(channels[0])
    refused = [outcome for outcome in session.receive(session.decode(said)) if isinstance(outcome, Refused)]
    assert [outcome.partition for outcome in refused] == [P0, P1]
    assert all(isinstance(outcome.error, error) for outcome in refused)
    with pytest.raises(error):
        opened(session, P0)
    assert session.end(BrokerUnreachableError("later")) == []


def test_should_take_a_channel_that_the_broker_closes_for_one_that_failed() -> None:
    session = ProduceSession("http://a:1")
    channel = opened(session, P0)
    (outcome,) = session.receive(session.decode(Closed(channel.number).pack()))
    assert isinstance(outcome, Refused)
    assert outcome.batches == []


def newest(url: str | None, leader_epoch: int) -> TopicLayout:
    return TopicLayout("flights", "uid-1", 1 << 20, (PartitionLayout(url, leader_epoch),), 0)


def test_should_leave_a_leader_when_another_was_elected_and_keep_the_other_channels() -> None:
    session = ProduceSession("http://a:1")
    channel, other = opened(session, P0), opened(session, P1)
    batch = sent_batch(channel)
    (outcome,) = session.leave_moved(lambda topic: newest("http://b:1", 4))
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, NotLeaderError)
    assert (outcome.batches, outcome.may_be_written) == ([batch], True)
    assert not session.is_open(channel)
    assert session.is_open(other)
    assert session.topics == {"flights"}


@pytest.mark.parametrize(
    "known",
    [None, newest("http://b:1", 3), newest("http://a:1", 4), newest(None, 4), TopicLayout("flights", "u", 1, (), 0)],
)
def test_should_stay_with_a_leader_when_nobody_else_is_known_to_lead(known: TopicLayout | None) -> None:
    session = ProduceSession("http://a:1")
    opened(session, P0)
    assert session.leave_moved(lambda topic: known) == []


def test_should_take_a_leader_for_silent_when_it_owes_an_answer_for_long() -> None:
    session = ProduceSession("http://a:1")
    channel = opened(session, P0)
    assert not session.is_silent(LEADER_SILENT_MS)
    sent_batch(channel, attempt_ms=500)
    assert not session.is_silent(499 + LEADER_SILENT_MS)
    assert session.is_silent(500 + LEADER_SILENT_MS)


NOW_MS = 1_790_000_000_000


def layout(**said: object) -> TopicLayout:
    partitions = [{"partition": 0, "leader": None, "leaderEpoch": 0}]
    return TopicLayout.parse({"name": "flights", "uid": "u", "maxMessageBytes": 9, "partitions": partitions, **said}, 0)


def times(*times_ms: int) -> RecordTimes:
    return times_in(memoryview(b"".join(time_ms.to_bytes(8, "little") for time_ms in times_ms)))


def test_should_warn_once_and_sum_up_what_came_after(caplog: pytest.LogCaptureFixture) -> None:
    warnings, known = TimeWarnings(), layout(timestampType="CreateTime", retentionMs=86_400_000)
    with caplog.at_level(logging.WARNING, "headrace.client"):
        for _ in range(3):
            warnings.look(known, times(1, NOW_MS, NOW_MS + 7_200_000), NOW_MS)
        assert [record.getMessage().partition(" is ")[0] for record in caplog.records] == [
            "records for flights: 1 record",
            "records for flights: 1 record",
        ]
        caplog.clear()
        for _ in range(2):
            warnings.sum_up()
    assert [record.getMessage().partition(" are ")[0] for record in caplog.records] == [
        "records for flights in all: 3 records",
        "records for flights in all: 3 records",
    ]


@pytest.mark.parametrize(
    "known",
    [
        None,
        layout(),
        layout(timestampType="LogAppendTime", retentionMs=None),
        layout(timestampType="CreateTime", retentionMs=None),
    ],
)
def test_should_not_warn_of_old_records_where_they_are_kept_or_nothing_is_known(
    known: TopicLayout | None, caplog: pytest.LogCaptureFixture
) -> None:
    TimeWarnings().look(known, times(1), NOW_MS)
    assert not caplog.records
