"""The follower's side of a stream."""

import pytest

from headrace.core.errors import BrokenSessionError, BrokerUnreachableError, DivergedLogError, NotLeaderError
from headrace.core.frames.replication_messages import (
    FROM_FOLLOWERS,
    REPLICATION_ALIVE_MS,
    REPLICATION_SILENCE_MS_MAX,
    Alive,
    AskEpochEnd,
    EpochEnded,
    Fetch,
    Follow,
    FollowerMessage,
    Hello,
    LeaderBatches,
    LeaderFailed,
    LeaderHeartbeat,
    LeaderMessage,
    Move,
    Report,
    StreamRole,
    Unfollow,
)
from headrace.core.limits import REPLICATION_TICK_MS
from headrace.core.log.epochs import EpochEnd
from headrace.core.replication.follower_stream import (
    REPLICATION_UNREPORTED_BYTES,
    EpochAnswered,
    FollowerStream,
    Moved,
    Received,
    Refused,
)
from headrace.core.replication.isr import Ends
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import seat

ME = seat(2, 5)
EPOCH, NEXT_EPOCH = LeaderEpoch(7), LeaderEpoch(8)
A, B = (PartitionKey(TopicUid("uid-1"), PartitionId(number)) for number in (0, 1))


def ends(log_end: int, durable_end: int = 0) -> Ends:
    return Ends(Offset(log_end), Offset(durable_end))


def batches(channel: int, leader_ms: int = 0) -> LeaderBatches:
    return LeaderBatches(channel, EPOCH, Offset(9), Offset(7), Offset(2), leader_ms, [b"ab"])


def said(stream: FollowerStream) -> list[FollowerMessage]:
    return [FROM_FOLLOWERS.message(frame) for frame in FROM_FOLLOWERS.reader().receive(stream.take())]


def report(
    stream: FollowerStream, key: PartitionKey, epoch: LeaderEpoch, held: Ends, by: Durability = Durability.REPLICATED
) -> None:
    stream.report(key, epoch, held, by)


def opened(*keys: PartitionKey) -> FollowerStream:
    """With these on channels from 1 on, their FOLLOWs sent."""
    stream = FollowerStream(ME, StreamRole.LIVE, 0)
    for key in keys:
        stream.open(key, EPOCH)
    stream.take()
    return stream


def test_should_say_hello_then_follow_ask_and_fetch_in_this_order() -> None:
    stream = FollowerStream(ME, StreamRole.CATCH_UP, 0)
    stream.open(A, EPOCH)
    stream.ask_epoch_end(A, EPOCH, LeaderEpoch(6))
    stream.open(B, EPOCH)
    stream.fetch(B, EPOCH, Offset(4))
    assert said(stream) == [
        Hello(ME, StreamRole.CATCH_UP),
        Follow(1, EPOCH, A),
        AskEpochEnd(1, EPOCH, LeaderEpoch(6)),
        Follow(2, EPOCH, B),
        Fetch(2, EPOCH, Offset(4)),
    ]
    assert stream.take() == b""


def test_should_report_the_last_ends_once_and_behind_all_else() -> None:
    stream = opened(A, B)
    report(stream, A, EPOCH, ends(5))
    report(stream, B, EPOCH, ends(1))
    report(stream, A, EPOCH, ends(5, 5))
    stream.fetch(A, EPOCH, Offset(5))
    assert said(stream) == [Fetch(1, EPOCH, Offset(5)), Report(1, EPOCH, ends(5, 5), 0), Report(2, EPOCH, ends(1), 0)]
    report(stream, A, EPOCH, ends(5, 5))
    assert said(stream) == []


@pytest.mark.parametrize(
    ("durability", "voteless", "vote"),
    [(Durability.FSYNC, ends(6, 5), ends(6, 6)), (Durability.REPLICATED, ends(5, 5), ends(6, 5))],
)
def test_should_hold_back_a_report_that_changes_no_vote(durability: Durability, voteless: Ends, vote: Ends) -> None:
    stream = opened(A)
    first = ends(5, 5) if durability is Durability.FSYNC else ends(5)
    report(stream, A, EPOCH, first, durability)
    stream.take()
    report(stream, A, EPOCH, voteless, durability)
    assert said(stream) == []
    report(stream, A, EPOCH, vote, durability)
    assert said(stream) == [Report(1, EPOCH, vote, 0)]
    stream.tick(REPLICATION_ALIVE_MS)
    assert said(stream) == [Alive(0)]


def test_should_report_what_changes_no_vote_with_its_next_sign_of_life() -> None:
    stream = opened(A, B)
    for key in (A, B):
        report(stream, key, EPOCH, ends(5, 5), Durability.FSYNC)
    stream.take()
    for key in (A, B):
        report(stream, key, EPOCH, ends(6, 5), Durability.FSYNC)
    stream.close(B)
    stream.take()
    stream.tick(REPLICATION_ALIVE_MS)
    assert said(stream) == [Report(1, EPOCH, ends(6, 5), 0), Alive(0)]


def test_should_report_at_once_where_much_has_come() -> None:
    stream = opened(A)
    report(stream, A, EPOCH, ends(5, 5), Durability.FSYNC)
    stream.take()
    much = bytes(REPLICATION_UNREPORTED_BYTES)
    for end in (6, 7):
        stream.receive(batches(1)._replace(batches=[memoryview(much)]), 0)
        report(stream, A, EPOCH, ends(end, 5), Durability.FSYNC)
        assert said(stream) == [Report(1, EPOCH, ends(end, 5), 0)]
    report(stream, A, EPOCH, ends(8, 5), Durability.FSYNC)
    assert said(stream) == []


def test_should_say_nothing_of_another_epoch_or_of_what_is_over() -> None:
    stream = opened(A)
    report(stream, A, NEXT_EPOCH, ends(5))
    stream.fetch(A, NEXT_EPOCH, Offset(5))
    stream.ask_epoch_end(A, NEXT_EPOCH, EPOCH)
    report(stream, B, EPOCH, ends(5))
    stream.close(B)
    assert said(stream) == []


def test_should_take_back_the_report_of_a_channel_that_it_closes() -> None:
    stream = opened(A)
    report(stream, A, EPOCH, ends(5))
    stream.close(A)
    stream.open(A, NEXT_EPOCH)
    report(stream, A, NEXT_EPOCH, ends(5))
    assert said(stream) == [
        Unfollow(1, EPOCH),
        Follow(2, NEXT_EPOCH, A),
        Report(2, NEXT_EPOCH, ends(5), 0),
    ]


def test_should_say_what_is_wrong_with_what_came() -> None:
    stream = opened(A)
    stream.close(A, DivergedLogError("it does not follow"))
    [unfollow] = said(stream)
    assert isinstance(unfollow, Unfollow)
    assert isinstance(unfollow.why, DivergedLogError)


def test_should_tell_of_which_partition_the_leader_speaks() -> None:
    stream = opened(A, B)
    assert stream.receive(batches(2), 0) == Received(B, EPOCH, [b"ab"], Offset(7), Offset(2))
    answer = EpochEnd(LeaderEpoch(6), Offset(4))
    assert stream.receive(EpochEnded(1, EPOCH, answer), 0) == EpochAnswered(A, EPOCH, answer)
    assert stream.receive(Move(1, EPOCH), 0) == Moved(A)
    refusal = NotLeaderError("no more")
    assert stream.receive(LeaderFailed(2, refusal), 0) == Refused(B, refusal)


@pytest.mark.parametrize(
    "late",
    [
        batches(1),
        EpochEnded(1, EPOCH, EpochEnd(EPOCH, Offset(0))),
        Move(1, EPOCH),
        LeaderFailed(1, NotLeaderError("no more")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_should_skip_what_comes_for_a_channel_that_is_over(late: LeaderMessage) -> None:
    stream = opened(A)
    stream.close(A)
    assert stream.receive(late, 0) is None


@pytest.mark.parametrize("channel", [0, 2])
def test_should_refuse_what_comes_for_a_channel_that_never_was(channel: int) -> None:
    with pytest.raises(BrokenSessionError, match=f"channel {channel}"):
        opened(A).receive(batches(channel), 0)


def test_should_end_where_the_leader_ends_the_stream() -> None:
    with pytest.raises(NotLeaderError):
        opened(A).receive(LeaderFailed(0, NotLeaderError("it drains")), 0)


def test_should_echo_the_leaders_time() -> None:
    stream = opened(A)
    heard = [stream.has_heard]
    assert stream.receive(LeaderHeartbeat(1000), 0) is None
    assert [*heard, stream.has_heard] == [False, True]
    report(stream, A, EPOCH, ends(1))
    assert said(stream) == [Report(1, EPOCH, ends(1), 1000)]
    stream.receive(batches(1, 1500), 0)
    report(stream, A, EPOCH, ends(2))
    stream.tick(REPLICATION_ALIVE_MS)
    assert said(stream) == [Report(1, EPOCH, ends(2), 1500), Alive(1500)]


def test_should_show_that_it_lives_once_in_an_interval() -> None:
    stream, alive = opened(A), 0
    for now_ms in range(0, 10 * REPLICATION_ALIVE_MS, REPLICATION_TICK_MS):
        stream.receive(LeaderHeartbeat(now_ms), now_ms)
        stream.tick(now_ms)
        alive += said(stream) == [Alive(now_ms)]
    assert alive == 9


def test_should_give_up_a_leader_that_falls_silent() -> None:
    stream = opened(A)
    last_ms = REPLICATION_SILENCE_MS_MAX // REPLICATION_TICK_MS * REPLICATION_TICK_MS
    for now_ms in range(0, last_ms + 1, REPLICATION_TICK_MS):
        stream.tick(now_ms)
    with pytest.raises(BrokerUnreachableError, match="nothing any more"):
        stream.tick(last_ms + REPLICATION_TICK_MS)


def test_should_not_blame_the_leader_for_its_own_absence() -> None:
    stream = opened(A)
    stream.tick(REPLICATION_TICK_MS)
    stream.tick(60_000)
    stream.tick(60_000 + REPLICATION_TICK_MS)
