"""Which channel serves a partition: it goes on, moves, is refused, or dies with its session."""

import pytest

from headrace.client.consumer.cursor import Ask, Cursor
from headrace.client.consumer.fetch_session import Asked, FetchChannels, FetchSession
from headrace.client.consumer.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Fetched
from headrace.client.transport.metadata import PartitionLayout, TopicLayout
from headrace.core.errors import BrokerUnreachableError, NotLeaderError
from headrace.core.frames.frame import Frame
from headrace.core.frames.session_messages import FROM_CLIENTS, Batches, Close, Credit, Failed, OpenFetch
from headrace.core.types import LeaderEpoch, Offset

LAYOUT = TopicLayout("flights", "uid-1", 1 << 20, (PartitionLayout("http://a:1", 3),), 0)
WINDOW = 1 << 20
TERMS = calls.fetch_terms("default", LAYOUT, 0, 5, WINDOW)


class Reader:
    """A consumer of two partitions; a stream is the name of its leader."""

    def __init__(self) -> None:
        self.channels: FetchChannels[str] = FetchChannels()
        self.sessions = {"a": FetchSession("http://a:1"), "b": FetchSession("http://b:1")}
        self.cursors = [Cursor(TopicPartition("flights", number), 5, 5) for number in (0, 1)]

    def asks(self, offset: int, partition: int = 0) -> Ask:
        cursor = self.cursors[partition]
        return Ask(cursor, cursor.turn, offset)

    def tries(self, offset: int, partition: int = 0) -> Asked[str]:
        """Ask on a channel that there is."""
        asked = self.channels.ask(self.asks(offset, partition))
        assert asked is not None
        return asked

    def open(self, ask: Ask, leader: str = "a") -> list[object]:
        """What is sent."""
        return said(self.channels.open(ask, self.sessions[leader], leader, TERMS))

    def hears(self, *messages: Batches | Failed, leader: str = "a") -> list[Answered]:
        session = self.sessions[leader]
        data = b"".join(message.pack() if isinstance(message, Failed) else whole(message) for message in messages)
        frames: list[Frame] = list(session.decode(data))
        news = session.receive(frames)
        self.channels.hear(news)
        return news


def test_should_leave_a_channel_alone_when_an_ask_of_an_earlier_time_comes_late() -> None:
    reader = Reader()
    late = reader.asks(5)
    reader.cursors[0].move(5)
    reader.open(reader.asks(5))
    assert reader.channels.ask(late) == (True, None, "a", b"")
    (answered,) = reader.hears(Batches(1, Offset(9), Offset(99), Offset(0), LeaderEpoch(3), [b"x"]))
    assert isinstance(answered.outcome, Fetched)


def said(data: bytes) -> list[object]:
    return [FROM_CLIENTS.message(frame) for frame in FROM_CLIENTS.reader().receive(data)]


def whole(message: Batches) -> bytes:
    return b"".join(message.buffers())


def pushed(next_offset: int, size: int = 10, channel: int = 1) -> Batches:
    return Batches(channel, Offset(next_offset), Offset(99), Offset(0), LeaderEpoch(3), [b"b" * size])


def refused(channel: int = 1) -> Failed:
    return Failed(channel, NotLeaderError("another leads"))


def test_should_find_nothing_where_nothing_was_opened() -> None:
    reader = Reader()
    assert reader.channels.ask(reader.asks(5)) is None
    (opening,) = reader.open(reader.asks(5))
    assert isinstance(opening, OpenFetch)
    assert reader.channels.ask(reader.asks(5, partition=1)) is None


def test_should_go_on_where_the_last_answer_ended() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    (first,) = reader.hears(pushed(7))
    assert isinstance(first.outcome, Fetched)
    waiting = reader.asks(7)
    assert reader.channels.ask(waiting) == (True, None, "a", b"")
    (second,) = reader.hears(pushed(9, WINDOW // 2))
    assert second.ask is waiting
    reader.hears(pushed(11))
    is_taken, third, stream, data = reader.tries(9)
    assert (is_taken, stream) == (True, "a")
    assert third is not None
    assert isinstance(third.outcome, Fetched)
    assert said(data) == [Credit(1, 10 + WINDOW // 2)]


def test_should_close_the_channel_of_a_reader_that_has_moved() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.hears(pushed(7))
    *asked, data = reader.tries(50)
    assert (asked, said(data)) == ([False, None, "a"], [Close(1)])
    assert reader.channels.ask(reader.asks(50)) is None
    (opening,) = reader.open(reader.asks(50))
    assert isinstance(opening, OpenFetch)
    assert reader.hears(pushed(9)) == [], "what was closed is not heard"
    answered = reader.hears(pushed(52, channel=2))
    assert [each.ask.offset for each in answered] == [50]


def test_should_close_it_for_another_turn_though_the_offset_is_the_same() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.hears(pushed(7))
    reader.cursors[0].move(7)
    is_taken, *_ = reader.tries(7)
    assert not is_taken


def test_should_ask_nobody_when_the_reader_has_moved_on_before_the_channel_was_open() -> None:
    reader = Reader()
    ask = reader.asks(5)
    reader.cursors[0].move(9)
    assert reader.open(ask) == []
    assert reader.channels.ask(reader.asks(9)) is None


def test_should_forget_a_channel_that_is_refused_and_find_the_next_leader() -> None:
    reader = Reader()
    ask = reader.asks(5)
    reader.open(ask)
    (answered,) = reader.hears(refused())
    assert answered.ask is ask
    assert isinstance(answered.outcome, NotLeaderError)
    assert reader.channels.ask(reader.asks(5)) is None
    reader.open(reader.asks(5), "b")
    reader.hears(pushed(7), leader="b")
    assert reader.tries(7) == (True, None, "b", b"")


def test_should_hand_out_what_came_before_a_refusal_and_then_the_refusal() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.hears(pushed(7), pushed(9), refused())
    for offset, outcome in ((7, Fetched), (9, NotLeaderError)):
        is_taken, answered, _, _ = reader.tries(offset)
        assert is_taken
        assert answered is not None
        assert isinstance(answered.outcome, outcome)
    assert reader.channels.ask(reader.asks(9)) is None


def test_should_lose_the_channels_of_a_session_that_is_over_and_no_other() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.open(reader.asks(5, partition=1), "b")
    news = reader.sessions["a"].end(BrokerUnreachableError("gone"))
    reader.channels.hear(news)
    assert [type(each.outcome) for each in news] == [BrokerUnreachableError]
    assert reader.channels.ask(reader.asks(5)) is None
    (answered,) = reader.hears(pushed(7), leader="b")
    assert answered.ask.cursor is reader.cursors[1]
    assert reader.tries(7, partition=1) == (True, None, "b", b"")


def test_should_leave_the_channel_alone_that_replaced_one_whose_news_come_late() -> None:
    reader = Reader()
    ask = reader.asks(5)
    reader.open(ask)
    late = [Answered(ask, NotLeaderError("another leads"))]
    reader.open(reader.asks(5), "b")
    reader.channels.hear(late)
    assert reader.tries(5) == (True, None, "b", b"")
    reader.channels.hear([Answered(reader.asks(5, partition=1), NotLeaderError("nobody serves it"))])


def test_should_keep_nothing_of_a_channel_that_could_not_be_opened() -> None:
    reader = Reader()
    reader.sessions["a"].end(BrokerUnreachableError("gone"))
    with pytest.raises(BrokerUnreachableError, match="gone"):
        reader.open(reader.asks(5))
    assert reader.channels.ask(reader.asks(5)) is None


def test_should_close_the_channel_of_a_partition_that_is_not_read_any_more() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    dropped = reader.channels.drop(reader.cursors[0].partition)
    assert dropped is not None
    stream, data = dropped
    assert (stream, said(data)) == ("a", [Close(1)])
    assert reader.channels.drop(reader.cursors[0].partition) is None
    assert reader.channels.ask(reader.asks(5)) is None
