"""The leader's side of a stream: what is due to whom.

How fast those who are far behind are sent what they lack.
"""

import pytest

from headrace.core.errors import BrokenSessionError, DivergedLogError, NotReadyError, ThrottledError
from headrace.core.frames.replication_messages import Follow, Hello, StreamRole
from headrace.core.limits import REPLICATION_READ_BYTES
from headrace.core.replication.isr import Ends
from headrace.core.replication.leader_stream import (
    REPLICATION_BEHIND_BYTES_MAX,
    REPLICATION_CHANNELS_MAX,
    REPLICATION_HELLO_MS_MAX,
    REPLICATION_IN_FLIGHT_BYTES_MAX,
    REPLICATION_STREAM_BYTES_MAX,
    Due,
    LeaderChannel,
    LeaderStream,
    Throttle,
    Tip,
)
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import seat

ME = BrokerId(0)
EPOCH = LeaderEpoch(7)
MIB = 1 << 20


def tip(log_end: int, high_watermark: int = 0, log_start: int = 0) -> Tip:
    return Tip(Offset(log_start), Offset(log_end), Offset(high_watermark))


def ends(log_end: int) -> Ends:
    return Ends(Offset(log_end), Offset(0))


def stream_of(role: StreamRole = StreamRole.LIVE) -> LeaderStream:
    stream = LeaderStream(0)
    stream.begin(Hello(seat(2, 5), role), ME, Incarnation(5))
    return stream


def channel_of(stream: LeaderStream, number: int = 1) -> LeaderChannel:
    return stream.open(Follow(number, EPOCH, PartitionKey(TopicUid("uid-1"), PartitionId(number))))


def fetching(stream: LeaderStream, number: int = 1, *, log_end: int = 0) -> LeaderChannel:
    """It has everything, and was told so."""
    channel = channel_of(stream, number)
    channel.fetch(Offset(log_end), tip(log_end))
    channel.sent(0, Offset(log_end), tip(log_end))
    return channel


def test_should_owe_nothing_before_it_is_asked_and_one_frame_then() -> None:
    channel = channel_of(stream_of())
    assert channel.due(tip(9)) is Due.NOTHING
    channel.fetch(Offset(9), tip(9))
    assert channel.due(tip(9)) is Due.NOW
    channel.sent(0, Offset(9), tip(9))
    assert channel.due(tip(9)) is Due.NOTHING


def test_should_send_batches_at_once_and_what_else_moves_later() -> None:
    channel = fetching(stream_of())
    assert channel.due(tip(3)) is Due.NOW
    assert channel.start(tip(3)) == 0
    assert not channel.sent(100, Offset(3), tip(3))
    assert channel.due(tip(3)) is Due.NOTHING
    assert channel.due(tip(3, high_watermark=3)) is Due.LATER
    assert channel.due(tip(3, log_start=1)) is Due.LATER
    channel.sent(0, Offset(3), tip(3, 3))
    assert channel.due(tip(3, 3)) is Due.NOTHING


def test_should_leave_out_what_was_deleted_before_it_was_sent() -> None:
    channel = fetching(stream_of(), log_end=2)
    assert channel.start(tip(9, log_start=5)) == 5


def test_should_refuse_a_follower_that_has_more() -> None:
    with pytest.raises(DivergedLogError, match="ends at 4"):
        channel_of(stream_of()).fetch(Offset(5), tip(4))


def test_should_have_a_bounded_part_unreported() -> None:
    stream = stream_of()
    channel = fetching(stream)
    for end in range(1, 9):
        assert channel.due(tip(100)) is Due.NOW
        channel.sent(MIB, Offset(end), tip(end))
    assert channel.unreported_bytes == stream.unreported_bytes == REPLICATION_IN_FLIGHT_BYTES_MAX
    assert (channel.due(tip(100)), channel.room_bytes) == (Due.NOTHING, 0)
    channel.reported(ends(3))
    assert (channel.due(tip(100)), channel.room_bytes) == (Due.NOW, 3 * MIB)
    assert channel.ends == ends(3)
    channel.reported(ends(8))
    assert channel.unreported_bytes == stream.unreported_bytes == 0


def test_should_forget_what_was_sent_when_the_follower_begins_again() -> None:
    stream = stream_of()
    channel = fetching(stream)
    channel.sent(MIB, Offset(4), tip(4))
    channel.fetch(Offset(2), tip(4))
    assert stream.unreported_bytes == 0
    assert channel.start(tip(4)) == 2


def test_should_let_those_who_have_everything_pass_those_who_lack_something() -> None:
    stream = stream_of()
    behind, waiting, live = fetching(stream, 1), fetching(stream, 2), fetching(stream, 3)
    behind.sent(REPLICATION_STREAM_BYTES_MAX - 1, Offset(1), tip(100))
    waiting.sent(1, Offset(1), tip(100))
    assert stream.unreported_bytes == REPLICATION_STREAM_BYTES_MAX
    assert waiting.due(tip(100)) is Due.NOTHING
    assert live.due(tip(100)) is Due.NOW
    assert stream.take_fed() == []
    behind.reported(ends(1))
    assert stream.take_fed() == [waiting]
    assert waiting.due(tip(100)) is Due.NOW
    assert stream.take_fed() == []


def test_should_move_to_catch_up_who_does_not_reach_the_end() -> None:
    channel = fetching(stream_of())
    assert not channel.sent(REPLICATION_BEHIND_BYTES_MAX, Offset(1), tip(9))
    assert not channel.sent(100, Offset(9), tip(9))
    assert not channel.sent(REPLICATION_BEHIND_BYTES_MAX, Offset(10), tip(19))
    assert channel.sent(1, Offset(11), tip(19))


def test_should_move_to_live_who_has_caught_up() -> None:
    channel = channel_of(stream_of(StreamRole.CATCH_UP))
    channel.fetch(Offset(0), tip(9))
    assert not channel.sent(10 * REPLICATION_BEHIND_BYTES_MAX, Offset(8), tip(9))
    assert channel.sent(1, Offset(9), tip(9))


def test_should_forget_a_channel_that_is_closed() -> None:
    stream = stream_of()
    channel = fetching(stream)
    channel.sent(REPLICATION_STREAM_BYTES_MAX, Offset(1), tip(9))
    assert not stream.has_room_for(channel)
    assert stream.find(1) is channel
    stream.close(channel)
    assert (stream.find(1), stream.unreported_bytes) == (None, 0)
    assert channel.due(tip(100)) is Due.NOTHING
    assert stream.take_fed() == []


def test_should_know_whose_stream_it_is() -> None:
    stream = LeaderStream(0)
    stream.begin(Hello(seat(2, 5), StreamRole.CATCH_UP), ME, Incarnation(5))
    assert (stream.seat, stream.role) == (seat(2, 5), StreamRole.CATCH_UP)


@pytest.mark.parametrize(("known", "words"), [(None, "it has no Lease"), (4, "its Lease says 4"), (6, "Lease says 6")])
def test_should_take_brokers_of_a_known_life_only(known: int | None, words: str) -> None:
    stream = LeaderStream(0)
    with pytest.raises(NotReadyError, match=words):
        stream.begin(Hello(seat(2, 5), StreamRole.LIVE), ME, Incarnation(known) if known is not None else None)


def test_should_not_follow_itself() -> None:
    with pytest.raises(BrokenSessionError, match="itself"):
        LeaderStream(0).begin(Hello(seat(ME, 5), StreamRole.LIVE), ME, Incarnation(5))


def test_should_be_greeted_first_and_once() -> None:
    with pytest.raises(BrokenSessionError, match="first frame"):
        channel_of(LeaderStream(0))
    with pytest.raises(BrokenSessionError, match="comes once"):
        stream_of().begin(Hello(seat(2, 5), StreamRole.LIVE), ME, Incarnation(5))


def test_should_not_wait_for_ever_to_hear_whose_stream_it_is() -> None:
    stream = LeaderStream(100)
    assert [stream.is_late(100 + REPLICATION_HELLO_MS_MAX), stream.is_late(101 + REPLICATION_HELLO_MS_MAX)] == [
        False,
        True,
    ]
    stream.begin(Hello(seat(2, 5), StreamRole.LIVE), ME, Incarnation(5))
    assert not stream.is_late(101 + REPLICATION_HELLO_MS_MAX)


def test_should_refuse_channels_that_never_were_or_come_again() -> None:
    stream = stream_of()
    channel_of(stream, 2)
    with pytest.raises(BrokenSessionError, match="never opened"):
        stream.find(3)
    with pytest.raises(BrokenSessionError, match="higher number"):
        channel_of(stream, 2)


def test_should_bound_the_channels_of_a_stream() -> None:
    stream = stream_of()
    for number in range(1, REPLICATION_CHANNELS_MAX + 1):
        channel_of(stream, number)
    with pytest.raises(ThrottledError):
        channel_of(stream, REPLICATION_CHANNELS_MAX + 1)


def test_should_count_a_sign_of_life_for_every_partition_now_and_then() -> None:
    repeats = LeaderStream(0).repeats
    counted = [now_ms for now_ms in range(0, 10_000, 1000) if repeats.is_due(now_ms)]
    assert counted == [2000, 4000, 6000, 8000]


def test_should_not_wait_without_a_rate() -> None:
    throttle = Throttle(None)
    throttle.took(1 << 40, 0)
    assert (throttle.wait_ms(0), throttle.piece_bytes) == (0, REPLICATION_READ_BYTES)


def test_should_keep_the_rate_in_small_pieces() -> None:
    rate, now_ms, taken = 100_000, 5_000, 0
    throttle = Throttle(rate)
    while now_ms < 15_000:
        now_ms += throttle.wait_ms(now_ms)
        throttle.took(throttle.piece_bytes, now_ms)
        taken += throttle.piece_bytes
    assert throttle.piece_bytes == rate // 4
    assert abs(taken - 10 * rate) <= rate // 2


def test_should_not_save_up_what_was_not_used() -> None:
    throttle = Throttle(1000)
    throttle.took(1000, 0)
    assert throttle.wait_ms(0) == 1000
    throttle.took(1000, 60_000)
    assert throttle.wait_ms(60_000) == 1000


def test_should_take_large_pieces_where_the_rate_allows() -> None:
    assert Throttle(1 << 40).piece_bytes == REPLICATION_READ_BYTES
