"""Answers that a broker pushes: handed out in order to those who ask, bounded by credit, never to the wrong turn.

Which channel serves a partition: it goes on, moves, is refused, or dies with its session.
"""

import pytest

from headrace.client.consumer.cursor import Ask, Cursor
from headrace.client.consumer.fetch_session import (
    FETCH_SILENT_MS,
    SESSION_SILENCE_MS_MAX,
    Asked,
    FetchChannel,
    FetchChannels,
    FetchSession,
)
from headrace.client.consumer.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Fetched
from headrace.client.transport.metadata import PartitionLayout, TopicLayout
from headrace.core.errors import BrokerUnreachableError, NotLeaderError
from headrace.core.frames.frame import Frame
from headrace.core.frames.session_messages import FROM_CLIENTS, Batches, Close, Credit, Failed, OpenFetch
from headrace.core.limits import FETCH_LONG_POLL_MS
from headrace.core.types import LeaderEpoch, Offset

LAYOUT = TopicLayout("flights", "uid-1", 1 << 20, (PartitionLayout("http://a:1", 3),), 0)
WINDOW = 1 << 20


def asked(offset: int, turn: int = 0) -> Ask:
    return Ask(Cursor(TopicPartition("flights", 0), offset, offset, turn=turn), turn, offset)


def opened() -> tuple[FetchSession, FetchChannel, Ask]:
    session, ask = FetchSession("http://a:1"), asked(5)
    return session, session.open(ask, calls.fetch_terms("default", LAYOUT, 0, 5, WINDOW)), ask


def pushed(channel: FetchChannel, next_offset: int, size: int = 10) -> bytes:
    frame = Batches(channel.number, Offset(next_offset), Offset(99), Offset(0), LeaderEpoch(3), [b"b" * size])
    return b"".join(frame.buffers())


def said(session: FetchSession) -> list[object]:
    return [FROM_CLIENTS.message(frame) for frame in FROM_CLIENTS.reader().receive(session.outgoing())]


def test_should_open_where_it_is_asked_and_give_what_is_pushed_to_those_who_ask() -> None:
    session, channel, ask = opened()
    (opening,) = said(session)
    assert isinstance(opening, OpenFetch)
    assert (opening.terms.offset, opening.terms.credit, opening.terms.max_bytes) == (5, WINDOW, WINDOW // 4)
    (first,) = session.receive(session.decode(pushed(channel, 7) + pushed(channel, 9)))
    assert isinstance(first.outcome, Fetched)
    assert (first.ask, first.outcome.next_offset, bytes(first.outcome.batches)) == (ask, 7, b"b" * 10)
    assert channel.goes_on_with(asked(7))
    assert not channel.goes_on_with(asked(5))
    assert not channel.goes_on_with(asked(7, turn=1))
    second = session.ask(channel, asked(7))
    assert second is not None
    assert isinstance(second.outcome, Fetched)
    assert second.outcome.next_offset == 9
    third = asked(9)
    assert session.ask(channel, third) is None
    (answered,) = session.receive(session.decode(pushed(channel, 11)))
    assert answered.ask is third


def test_should_hear_the_broker_in_parts_of_a_frame() -> None:
    session, channel, _ = opened()
    frame = pushed(channel, 7)
    assert list(session.decode(frame[:20])) == []
    assert (session.silent_ms(1_000), session.silent_ms(1_400)) == (0, 400)
    assert len(list(session.decode(frame[20:]))) == 1
    assert session.silent_ms(1_900) == 0


def test_should_give_credit_for_what_was_handed_out_and_not_for_what_waits() -> None:
    session, channel, _ = opened()
    said(session)
    session.receive(session.decode(pushed(channel, 7, WINDOW // 4)))
    assert said(session) == [Credit(channel.number, WINDOW // 4)]
    session.receive(session.decode(pushed(channel, 9, WINDOW // 8) + pushed(channel, 11, WINDOW // 8)))
    session.ask(channel, asked(7))
    assert said(session) == [], "little things are credited together"
    session.ask(channel, asked(9))
    assert said(session) == [Credit(channel.number, WINDOW // 4)]


def test_should_answer_with_nothing_after_a_while() -> None:
    session, channel, ask = opened()
    assert session.idle(FETCH_LONG_POLL_MS - 1) == []
    assert session.idle(FETCH_LONG_POLL_MS) == [Answered(ask, Fetched(b"", 5))]
    assert not session.is_asked
    assert channel.goes_on_with(asked(5))


def test_should_hand_out_what_came_before_a_failure_first() -> None:
    session, channel, _ = opened()
    said(session)
    failed = Failed(channel.number, NotLeaderError("no")).pack()
    (first,) = session.receive(session.decode(pushed(channel, 7) + pushed(channel, 9) + failed))
    assert isinstance(first.outcome, Fetched)
    assert not session.is_open(channel)
    second, third = session.ask(channel, asked(7)), session.ask(channel, asked(9))
    assert second is not None
    assert third is not None
    assert isinstance(second.outcome, Fetched)
    assert isinstance(third.outcome, NotLeaderError)
    assert said(session) == [], "no credit for a channel that is over"


def test_should_tell_who_has_asked_when_the_session_ends_and_forget_what_is_closed() -> None:
    session, channel, ask = opened()
    other = session.open(asked(5), calls.fetch_terms("default", LAYOUT, 0, 5, WINDOW))
    said(session)
    session.close(other)
    session.close(other)
    assert said(session) == [Close(other.number)]
    assert session.receive(session.decode(pushed(other, 7))) == []
    error = BrokerUnreachableError("gone")
    assert session.end(error) == [Answered(ask, error)]
    assert not session.is_open(channel)


def test_should_answer_the_patient_while_the_broker_is_heard_and_give_up_when_it_is_not() -> None:
    session, channel, ask = opened()
    session.begin(1_000)
    session.begin(9_000)
    assert session.heard_ms == 1_000
    assert session.look(1_000 + SESSION_SILENCE_MS_MAX // 2) == [Answered(ask, Fetched(b"", 5))]
    assert session.look(1_000 + 2 * SESSION_SILENCE_MS_MAX) == [], "nobody has asked"
    session.ask(channel, asked(5))
    assert session.look(1_000 + SESSION_SILENCE_MS_MAX) == [], "it may be heard again"
    overdue = session.look(1_001 + SESSION_SILENCE_MS_MAX)
    assert isinstance(overdue, BrokerUnreachableError)
    assert f"http://a:1 did not answer within {(SESSION_SILENCE_MS_MAX + 1) / 1000:g} s" in overdue.message
    session.end(overdue)
    assert session.look(1_000 + 2 * SESSION_SILENCE_MS_MAX) == []


def test_should_leave_a_leader_when_another_was_elected() -> None:
    session, channel, ask = opened()
    elected = TopicLayout("flights", "uid-1", 1 << 20, (PartitionLayout("http://b:1", 4),), 0)
    (answered,) = session.leave_moved(lambda topic: elected)
    assert answered.ask is ask
    assert isinstance(answered.outcome, NotLeaderError)
    assert not session.is_open(channel)


def test_should_take_a_leader_for_silent_when_somebody_waits_and_nothing_was_heard_for_long() -> None:
    session, channel, _ = opened()
    session.begin(1_000)
    assert not session.is_silent(999 + FETCH_SILENT_MS)
    assert session.is_silent(1_000 + FETCH_SILENT_MS)
    session.close(channel)
    assert not session.is_silent(1_000 + FETCH_SILENT_MS), "nobody waits"


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
        return messages_in(self.channels.open(ask, self.sessions[leader], leader, TERMS))

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


def messages_in(data: bytes) -> list[object]:
    return [FROM_CLIENTS.message(frame) for frame in FROM_CLIENTS.reader().receive(data)]


def whole(message: Batches) -> bytes:
    return b"".join(message.buffers())


def pushed_batches(next_offset: int, size: int = 10, channel: int = 1) -> Batches:
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
    (first,) = reader.hears(pushed_batches(7))
    assert isinstance(first.outcome, Fetched)
    waiting = reader.asks(7)
    assert reader.channels.ask(waiting) == (True, None, "a", b"")
    (second,) = reader.hears(pushed_batches(9, WINDOW // 2))
    assert second.ask is waiting
    reader.hears(pushed_batches(11))
    is_taken, third, stream, data = reader.tries(9)
    assert (is_taken, stream) == (True, "a")
    assert third is not None
    assert isinstance(third.outcome, Fetched)
    assert messages_in(data) == [Credit(1, 10 + WINDOW // 2)]


def test_should_close_the_channel_of_a_reader_that_has_moved() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.hears(pushed_batches(7))
    *asked, data = reader.tries(50)
    assert (asked, messages_in(data)) == ([False, None, "a"], [Close(1)])
    assert reader.channels.ask(reader.asks(50)) is None
    (opening,) = reader.open(reader.asks(50))
    assert isinstance(opening, OpenFetch)
    assert reader.hears(pushed_batches(9)) == [], "what was closed is not heard"
    answered = reader.hears(pushed_batches(52, channel=2))
    assert [each.ask.offset for each in answered] == [50]


def test_should_close_it_for_another_turn_though_the_offset_is_the_same() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.hears(pushed_batches(7))
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
    reader.hears(pushed_batches(7), leader="b")
    assert reader.tries(7) == (True, None, "b", b"")


def test_should_hand_out_what_came_before_a_refusal_and_then_the_refusal() -> None:
    reader = Reader()
    reader.open(reader.asks(5))
    reader.hears(pushed_batches(7), pushed_batches(9), refused())
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
    (answered,) = reader.hears(pushed_batches(7), leader="b")
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
    assert (stream, messages_in(data)) == ("a", [Close(1)])
    assert reader.channels.drop(reader.cursors[0].partition) is None
    assert reader.channels.ask(reader.asks(5)) is None
