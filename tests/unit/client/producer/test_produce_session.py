"""Batches in flight in one session: answered in order, or refused as a run from the first that failed."""

import pytest

from headrace.client.producer.batches import Batch
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.producer.in_flight import Arrived, Refused
from headrace.client.producer.produce_session import LEADER_SILENT_MS, ProduceChannel, ProduceSession
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.metadata import PartitionLayout, TopicLayout
from headrace.core.errors import BrokerUnreachableError, HeadraceError, NotLeaderError, NotReadyError
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
from headrace.core.types import LeaderEpoch, Offset

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LAYOUT = TopicLayout(
    "flights", "uid-1", 1 << 20, (PartitionLayout("http://a:1", 3), PartitionLayout("http://a:1", 4)), 0
)


def opened(session: ProduceSession, partition: TopicPartition) -> ProduceChannel:
    terms = calls.produce_terms("default", LAYOUT, partition.partition, "all", 1_000)
    return session.open(partition, terms)[0]


def sent(channel: ProduceChannel, attempt_ms: int = 0) -> Batch:
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
    first, second, other = sent(one, 10), sent(one, 20), sent(two, 15)
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
    first, second, third = sent(channel), sent(channel), sent(channel)
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
    sent(channels[0])
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
    batch = sent(channel)
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
    sent(channel, attempt_ms=500)
    assert not session.is_silent(499 + LEADER_SILENT_MS)
    assert session.is_silent(500 + LEADER_SILENT_MS)
