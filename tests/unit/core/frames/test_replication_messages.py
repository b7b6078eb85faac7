"""Every message of a replication stream, to its bytes and back."""

from typing import Any

import pytest

from headrace.core.errors import BrokenSessionError, CorruptLogError, DivergedLogError, HeadraceError
from headrace.core.frames.frame import Frame, pack_head
from headrace.core.frames.replication_messages import (
    FROM_FOLLOWERS,
    FROM_LEADERS,
    Alive,
    AskEpochEnd,
    EpochEnded,
    Fetch,
    Follow,
    Hello,
    LeaderBatches,
    LeaderFailed,
    LeaderHeartbeat,
    Move,
    ReplicationKind,
    Report,
    StreamRole,
    Unfollow,
)
from headrace.core.log.epochs import EpochEnd
from headrace.core.replication.isr import Ends
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import seat

EPOCH = LeaderEpoch(7)
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(3))
FOLLOWERS = [
    Hello(seat(2, 5), StreamRole.LIVE),
    Hello(seat(2, 5), StreamRole.CATCH_UP),
    Follow(1, EPOCH, KEY),
    AskEpochEnd(1, EPOCH, LeaderEpoch(4)),
    Fetch(1, EPOCH, Offset(17)),
    Report(1, EPOCH, Ends(Offset(20), Offset(18)), 1234),
    Unfollow(1, EPOCH),
    Alive(99),
]
LEADERS = [
    EpochEnded(1, EPOCH, EpochEnd(LeaderEpoch(4), Offset(11))),
    Move(1, EPOCH),
    LeaderHeartbeat(1234),
]


def frame_of_follower(sent: bytes) -> Frame:
    [frame] = FROM_FOLLOWERS.reader().receive(sent)
    return frame


def frame_of_leader(sent: bytes) -> Frame:
    [frame] = FROM_LEADERS.reader().receive(sent)
    return frame


@pytest.mark.parametrize("message", FOLLOWERS, ids=lambda message: type(message).__name__)
def test_should_read_what_a_follower_says(message: Any) -> None:
    assert FROM_FOLLOWERS.message(frame_of_follower(message.pack())) == message


@pytest.mark.parametrize("message", LEADERS, ids=lambda message: type(message).__name__)
def test_should_read_what_a_leader_says(message: Any) -> None:
    assert FROM_LEADERS.message(frame_of_leader(message.pack())) == message


def test_should_carry_batches_as_they_arrived() -> None:
    said = LeaderBatches(1, EPOCH, Offset(9), Offset(7), Offset(2), 1234, [b"ab", b"cde"])
    heard = FROM_LEADERS.message(frame_of_leader(b"".join(said.buffers())))
    assert isinstance(heard, LeaderBatches)
    assert heard._replace(batches=()) == said._replace(batches=())
    assert [bytes(each) for each in heard.batches] == [b"abcde"]


@pytest.mark.parametrize("channel", [0, 4])
def test_should_carry_a_failure_as_the_error_that_it_is(channel: int) -> None:
    heard = FROM_LEADERS.message(frame_of_leader(LeaderFailed(channel, CorruptLogError("segment 7 is torn")).pack()))
    assert isinstance(heard, LeaderFailed)
    assert (heard.channel, type(heard.error), heard.error.message) == (channel, CorruptLogError, "segment 7 is torn")


def test_should_carry_a_failure_that_says_no_status() -> None:
    payload = b'{"code": "NoneThatIsKnown"}'
    heard = FROM_LEADERS.message(frame_of_leader(pack_head(ReplicationKind.FAILED, 1, len(payload)) + payload))
    assert isinstance(heard, LeaderFailed)
    assert isinstance(heard.error, HeadraceError)


def test_should_say_why_a_follower_wants_no_more() -> None:
    heard = FROM_FOLLOWERS.message(frame_of_follower(Unfollow(1, EPOCH, DivergedLogError("no")).pack()))
    assert isinstance(heard, Unfollow)
    assert isinstance(heard.why, DivergedLogError)


def test_should_skip_what_a_later_hello_may_say() -> None:
    payload = b'{"broker": 2, "incarnation": 5, "lane": "live", "color": "red"}'
    assert (
        FROM_FOLLOWERS.message(frame_of_follower(pack_head(ReplicationKind.HELLO, 0, len(payload)) + payload))
        == FOLLOWERS[0]
    )


@pytest.mark.parametrize(
    ("kind", "channel", "payload", "words"),
    [
        (
            ReplicationKind.HELLO,
            0,
            b'{"broker": 2, "incarnation": 5, "lane": "fast"}',
            "lane 'fast': must be one of 'live'",
        ),
        (
            ReplicationKind.HELLO,
            0,
            b'{"broker": -1, "incarnation": 5, "lane": "live"}',
            "broker -1: must be a whole number",
        ),
        (ReplicationKind.HELLO, 0, b'{"broker": 2, "incarnation": true, "lane": "live"}', "incarnation True"),
        (ReplicationKind.HELLO, 0, b'{"broker": 2, "lane": "live"}', "incarnation None"),
        (ReplicationKind.HELLO, 1, b"{}", "HELLO on channel 1"),
        (ReplicationKind.ALIVE, 1, b"", "ALIVE on channel 1"),
        (ReplicationKind.REPORT, 0, b"", "REPORT on channel 0"),
        (ReplicationKind.FOLLOW, 1, b'{"partition": 1}', "topicUid None: must be a string"),
        (ReplicationKind.FOLLOW, 1, b'{"topicUid": "u", "partition": "1"}', "partition '1'"),
    ],
)
def test_should_refuse_what_breaks_the_protocol(
    kind: ReplicationKind, channel: int, payload: bytes, words: str
) -> None:
    frame = frame_of_follower(pack_head(kind, channel, len(payload)) + payload)
    with pytest.raises(BrokenSessionError, match=words):
        FROM_FOLLOWERS.message(frame)
