"""What is said in a session comes out as it went in, and what must not be said is refused.

Answers in order, one failure, one last word: against a model, and case by case.
"""

import json
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import (
    BrokenSessionError,
    HeadraceError,
    InvalidRequestError,
    NotLeaderError,
    NotReadyError,
    ThrottledError,
)
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM, Frame, pack_head
from headrace.core.frames.session_messages import (
    FROM_BROKERS,
    FROM_CLIENTS,
    NO_SEQUENCE,
    SESSION_PRODUCES_PENDING_MAX,
    Batches,
    BrokerMessage,
    ClientMessage,
    Close,
    Closed,
    Credit,
    Failed,
    Heartbeat,
    Ledger,
    Opened,
    OpenFetch,
    OpenProduce,
    Produce,
    Produced,
    ProduceGroup,
    SessionKind,
)
from headrace.core.frames.session_terms import FetchTerms, ProduceTerms, Standing
from headrace.core.log.epochs import Fence
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionId, TopicName, TopicUid

TOPIC, PARTITION = TopicName("default", "flights"), PartitionId(3)
FENCE = Fence(TopicUid("uid-1"), LeaderEpoch(4))
PLACE = {"namespace": "default", "topic": "flights", "partition": 3}
OPEN_PRODUCE = OpenProduce(1, ProduceTerms(TOPIC, PARTITION, Acks.LEADER, 1000, FENCE))
OPEN_FETCH = OpenFetch(2, FetchTerms(TOPIC, PARTITION, Offset(9), 1 << 20, 4096, FENCE))
STANDING = Standing(TopicUid("uid-1"), LeaderEpoch(4), Offset(5), Offset(9), 8 << 20)

CLIENTS: list[ClientMessage] = [
    OPEN_PRODUCE,
    OpenProduce(7, ProduceTerms(TOPIC, PARTITION)),
    Produce(1, 11, [b"ab", b"c"]),
    OPEN_FETCH,
    OpenFetch(8, FetchTerms(TOPIC, PARTITION, "latest")),
    Credit(2, 1 << 40),
    Close(2),
]
BROKERS: list[BrokerMessage] = [
    Opened(1, STANDING),
    Opened(2, Standing(TopicUid("uid-1"), LeaderEpoch(4), Offset(5), Offset(9), 8 << 20, Offset(0))),
    Opened(3, Standing(TopicUid("uid-1"), LeaderEpoch(4), Offset(5), None, 8 << 20, Offset(0))),
    Produced(1, 11, Offset(12), Offset(13), Offset(5), LeaderEpoch(4)),
    Batches(2, Offset(14), Offset(15), Offset(5), LeaderEpoch(4), [b"ab", b"c"]),
    Closed(2),
    Heartbeat(),
]


def sent(message: ClientMessage | BrokerMessage) -> bytes:
    match message:
        case Produce() | Batches():
            return b"".join(message.buffers())
        case _:
            return message.pack()


def joined(message: ClientMessage | BrokerMessage) -> ClientMessage | BrokerMessage:
    """Chunks end wherever they end."""
    match message:
        case Produce() | Batches():
            return message._replace(batches=b"".join(message.batches))  # type: ignore[arg-type]  # to compare
        case _:
            return message


def one_frame(data: bytes) -> Frame:
    (frame,) = FROM_CLIENTS.reader().receive(data)
    return frame


@pytest.mark.parametrize("message", CLIENTS, ids=lambda message: type(message).__name__)
def test_should_hear_each_word_of_a_client(message: ClientMessage) -> None:
    assert joined(FROM_CLIENTS.message(one_frame(sent(message)))) == joined(message)


@pytest.mark.parametrize("message", BROKERS, ids=lambda message: type(message).__name__)
def test_should_hear_each_word_of_a_broker(message: BrokerMessage) -> None:
    (frame,) = FROM_BROKERS.reader().receive(sent(message))
    assert joined(FROM_BROKERS.message(frame)) == joined(message)


@given(st.lists(st.sampled_from(CLIENTS)), st.lists(st.integers(0, 1 << 12), max_size=8))
def test_should_hear_what_a_client_said(messages: list[ClientMessage], places: list[int]) -> None:
    data, reader = b"".join(map(sent, messages)), FROM_CLIENTS.reader()
    ends = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    heard = [FROM_CLIENTS.message(frame) for at, end in pairwise(ends) for frame in reader.receive(data[at:end])]
    assert list(map(joined, heard)) == list(map(joined, messages))


@given(st.lists(st.sampled_from(BROKERS)))
def test_should_hear_what_a_broker_said(messages: list[BrokerMessage]) -> None:
    heard = [FROM_BROKERS.message(frame) for frame in FROM_BROKERS.reader().receive(b"".join(map(sent, messages)))]
    assert list(map(joined, heard)) == list(map(joined, messages))


def test_should_raise_the_very_error_that_the_broker_had() -> None:
    data = Failed(1, NotLeaderError("broker 2 does", leader=2, url="http://there"), 17).pack()
    (frame,) = FROM_BROKERS.reader().receive(data)
    heard = FROM_BROKERS.message(frame)
    assert isinstance(heard, Failed)
    assert (heard.channel, heard.sequence, type(heard.error)) == (1, 17, NotLeaderError)
    assert heard.error.details == {"leader": 2, "url": "http://there"}


def test_should_name_an_error_that_this_client_does_not_know() -> None:
    problem = b'{"status":418,"code":"Teapot","detail":"I am one"}'
    (frame,) = FROM_BROKERS.reader().receive(pack_head(SessionKind.FAILED, 0, len(problem)) + problem)
    heard = FROM_BROKERS.message(frame)
    assert isinstance(heard, Failed)
    assert str(heard.error) == "HTTP 418: I am one"


def test_should_take_the_defaults_of_requests() -> None:
    document = json.dumps(PLACE).encode()
    opened = FROM_CLIENTS.message(one_frame(pack_head(SessionKind.OPEN_PRODUCE, 1, len(document)) + document))
    assert opened == OpenProduce(1, ProduceTerms(TOPIC, PARTITION, Acks.ALL, 30_000, Fence()))
    opened = FROM_CLIENTS.message(one_frame(pack_head(SessionKind.OPEN_FETCH, 1, len(document)) + document))
    assert opened == OpenFetch(1, FetchTerms(TOPIC, PARTITION, "earliest", 8 << 20, 0, Fence()))


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        (SessionKind.OPEN_PRODUCE, {"namespace": None}, "namespace None: must be given, as a string"),
        (SessionKind.OPEN_PRODUCE, {"topic": 7}, "topic 7: must be given, as a string"),
        (SessionKind.OPEN_PRODUCE, {"partition": None}, "partition None: must be a whole number from 0 to 1023"),
        (SessionKind.OPEN_FETCH, {"partition": True}, "partition True: must be a whole number"),
        (SessionKind.OPEN_PRODUCE, {"acks": 1}, "acks 1: must be one of '0', '1', 'all'"),
        (SessionKind.OPEN_PRODUCE, {"acks": ["all"]}, "acks"),
        (SessionKind.OPEN_PRODUCE, {"timeoutMs": 0}, "timeoutMs 0: must be a whole number from 1 to 300000"),
        (SessionKind.OPEN_PRODUCE, {"topicUid": 1}, "topicUid 1: must be a string"),
        (SessionKind.OPEN_FETCH, {"leaderEpoch": -1}, "leaderEpoch -1: must be a whole number from 0"),
        (
            SessionKind.OPEN_PRODUCE,
            {"offset": 0, "a": 1},
            "a: this frame takes no such member; it takes namespace,",
        ),
        (
            SessionKind.OPEN_FETCH,
            {"offset": "first"},
            "offset 'first': must be a whole number .*, 'earliest' or",
        ),
        (SessionKind.OPEN_FETCH, {"offset": -1}, "offset -1"),
        (SessionKind.OPEN_FETCH, {"maxBytes": 0}, "maxBytes 0"),
        (SessionKind.OPEN_FETCH, {"credit": "1"}, "credit '1'"),
    ],
)
def test_should_refuse_what_a_channel_cannot_be_opened_with(
    kind: SessionKind, change: dict[str, object], said: str
) -> None:
    document = json.dumps({**PLACE, **change}).encode()
    with pytest.raises(InvalidRequestError, match=said):
        FROM_CLIENTS.message(one_frame(pack_head(kind, 1, len(document)) + document))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b"[]", "the payload is the JSON of a list: must be an object"),
    ],
)
def test_should_end_the_session_when_a_payload_is_no_object(document: bytes, said: str) -> None:
    with pytest.raises(BrokenSessionError, match=said):
        FROM_CLIENTS.message(one_frame(pack_head(SessionKind.OPEN_FETCH, 1, len(document)) + document))


def test_should_refuse_credit_of_nothing_and_the_sessions_own_channel() -> None:
    with pytest.raises(BrokenSessionError, match="a CREDIT of 0 bytes: must be 1 or more"):
        FROM_CLIENTS.message(one_frame(Credit(1, 0).pack()))
    with pytest.raises(BrokenSessionError, match="number channels from 1"):
        FROM_CLIENTS.message(one_frame(Close(0).pack()))


def test_should_refuse_a_standing_that_lacks_something() -> None:
    (frame,) = FROM_BROKERS.reader().receive(pack_head(SessionKind.OPENED, 1, 14) + b'{"topicUid":""}'[:14])
    with pytest.raises(BrokenSessionError):
        FROM_BROKERS.message(frame)
    (frame,) = FROM_BROKERS.reader().receive(pack_head(SessionKind.OPENED, 1, 15) + b'{"topicUid":""}')
    with pytest.raises(BrokenSessionError, match="leaderEpoch None: must be a whole number from 0"):
        FROM_BROKERS.message(frame)


def produced(sequence: int) -> Produced:
    return Produced(1, sequence, Offset(sequence), Offset(sequence), Offset(0), LeaderEpoch(1))


def appended(ledger: Ledger, *sequences: int) -> ProduceGroup:
    group = ProduceGroup([produced(sequence) for sequence in sequences])
    ledger.appended(group)
    return group


def settle(group: ProduceGroup, error: HeadraceError | None = None) -> None:
    group.is_done, group.error = True, error


def test_should_answer_in_the_order_of_the_produces() -> None:
    ledger = Ledger(1)
    first, second = appended(ledger, 1, 2), appended(ledger, 3)
    settle(second)
    assert ledger.take() == []
    assert ledger.pending == 3
    settle(first)
    assert ledger.take() == [produced(1), produced(2), produced(3)]
    assert (ledger.take(), ledger.pending, ledger.takes_more) == ([], 0, True)


def test_should_fail_with_the_first_that_fails_and_say_no_more() -> None:
    ledger, error = Ledger(1), NotLeaderError("gone")
    first, second, third = appended(ledger, 1), appended(ledger, 2, 3), appended(ledger, 4)
    for group, what in ((first, None), (second, error), (third, None)):
        settle(group, what)
    assert ledger.take() == [produced(1), Failed(1, error, 2)]
    assert (ledger.is_over, ledger.takes_more, ledger.pending, ledger.take()) == (True, False, 0, [])


def test_should_answer_what_was_before_a_refusal_first() -> None:
    ledger, error = Ledger(1), ThrottledError("wait")
    first = appended(ledger, 1)
    ledger.refuse(error, 2)
    ledger.refuse(NotReadyError("too late"), 3)
    ledger.close()
    assert (ledger.take(), ledger.takes_more, ledger.is_over) == ([], False, False)
    settle(first)
    assert ledger.take() == [produced(1), Failed(1, error, 2)]
    ledger.refuse(error)
    assert ledger.take() == []


def test_should_fail_with_an_earlier_failure_than_the_refusal() -> None:
    ledger, error = Ledger(1), NotLeaderError("gone")
    first = appended(ledger, 1)
    ledger.refuse(ThrottledError("wait"), 2)
    settle(first, error)
    assert ledger.take() == [Failed(1, error, 1)]
    assert ledger.take() == []


def test_should_fail_for_a_reason_of_its_own_at_once_when_nothing_is_pending() -> None:
    ledger, error = Ledger(1), NotReadyError("it drains")
    ledger.refuse(error)
    assert ledger.take() == [Failed(1, error, NO_SEQUENCE)]


def test_should_close_when_everything_is_answered() -> None:
    ledger = Ledger(1)
    first = appended(ledger, 1)
    ledger.close()
    assert ledger.take() == []
    settle(first)
    assert ledger.take() == [produced(1), Closed(1)]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=8), st.randoms())
def test_should_say_a_prefix_and_then_at_most_one_last_word(groups: list[tuple[int, bool]], chance: Random) -> None:
    ledger, sequence, all_of_them = Ledger(1), 0, []
    for size, fails in groups:
        group = appended(ledger, *range(sequence, sequence + size))
        sequence += size
        all_of_them.append((group, NotLeaderError("gone") if fails else None))
    said = []
    for group, error in sorted(all_of_them, key=lambda _: chance.random()):
        settle(group, error)
        said += ledger.take()
    failed = next((group.answers[0].sequence for group, error in all_of_them if error), None)
    answered = [each.sequence for each in said if isinstance(each, Produced)]
    assert answered == list(range(sequence if failed is None else failed))
    last_words = [each.sequence for each in said if isinstance(each, Failed)]
    assert last_words == ([] if failed is None else [failed])


def test_should_bound_what_is_pending() -> None:
    ledger = Ledger(1)
    appended(ledger, *range(SESSION_PRODUCES_PENDING_MAX - 1))
    ledger.check_room(0)
    with pytest.raises(ThrottledError, match="produces of channel 1 are not answered yet"):
        ledger.check_room(1)


def test_should_number_channels_upwards() -> None:
    channels = OpenChannels[str]()
    channels.take_number(1, 2)
    channels.take_number(5, 2)
    channels[5] = "the fifth"
    assert (channels.find(5), channels.find(3)) == ("the fifth", None)
    with pytest.raises(BrokenSessionError, match="channel 5 is opened after channel 5"):
        channels.take_number(5, 2)
    for number in (STREAM, 6):
        with pytest.raises(BrokenSessionError, match=f"channel {number} was never opened"):
            channels.find(number)
    with pytest.raises(ThrottledError, match="has 1 channels open, as many as it may; close some, or open another"):
        channels.take_number(6, 1)
    assert channels.find(6) is None
    assert channels.give_number() == 7
