"""The messages of a replication stream, as values and as the bytes of their frames, and the signs of life on it.

    follower: Hello, Follow, AskEpochEnd, Fetch, Report, Unfollow, Alive
    leader:   EpochEnded, Batches, Move, Failed, Heartbeat

The head is that of a session (`frame`), the kinds are others, so that neither is taken for the other.
`follower_reader` and `leader_reader` cut the frames of one direction out of the bytes; `follower_message` and
`leader_message` say what a frame means. Named tuples, because there are some for each batch.

A `StreamSilence` says whether the other side is still there, by the listener's own clock. A listener that was stopped
or starved itself cannot tell, because messages may lie unread before it: a gap between two questions counts as if
something had been heard at its end. A `Pulse` says when the next sign of life is due.
"""

import json
from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, Self

from headrace.core.errors import BrokenSessionError, HeadraceError, from_problem, to_problem
from headrace.core.frames.frame import Buffer, Frame, FrameReader, pack_head
from headrace.core.frames.session_terms import read_object
from headrace.core.limits import BATCH_BYTES_MAX, REPLICATION_TICK_MS, SESSION_JSON_BYTES_MAX
from headrace.core.log.epochs import EpochEnd
from headrace.core.replication.isr import Ends
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, Offset, PartitionId, PartitionKey, Seat, TopicUid

REPLICATION_ALIVE_MS = 1_000
"""How often each side says that it is alive, whatever else it says."""
REPLICATION_SILENCE_MS_MAX = 2_500
"""A side of a stream that has said nothing for so long is gone."""


MEDIA_TYPE: Final = "application/vnd.headrace.replication"
"""Content type of a replication stream's request and of its answer."""
STREAM: Final = 0
"""The channel of what concerns the stream as a whole."""
_NO_STATUS = 500


class Kind(IntEnum):
    """First byte of a frame. What leaders send has the highest bit set."""

    HELLO = 0x11
    FOLLOW = 0x12
    ASK_EPOCH_END = 0x13
    FETCH = 0x14
    REPORT = 0x15
    UNFOLLOW = 0x16
    ALIVE = 0x17
    EPOCH_ENDED = 0x91
    BATCHES = 0x92
    MOVE = 0x93
    FAILED = 0x94
    HEARTBEAT = 0x95


class Lane(StrEnum):
    """Which of the two streams between a follower and its leader."""

    LIVE = "live"
    """Of those that have everything, or nearly: nothing else delays their votes."""
    CATCH_UP = "catchUp"
    """Of those that are far behind."""


_FOLLOWERS = {
    int(Kind.HELLO): SESSION_JSON_BYTES_MAX,
    int(Kind.FOLLOW): SESSION_JSON_BYTES_MAX,
    int(Kind.ASK_EPOCH_END): 0,
    int(Kind.FETCH): 0,
    int(Kind.REPORT): 0,
    int(Kind.UNFOLLOW): SESSION_JSON_BYTES_MAX,
    int(Kind.ALIVE): 0,
}
_LEADERS = {
    int(Kind.EPOCH_ENDED): 0,
    int(Kind.BATCHES): BATCH_BYTES_MAX,
    int(Kind.MOVE): 0,
    int(Kind.FAILED): SESSION_JSON_BYTES_MAX,
    int(Kind.HEARTBEAT): 0,
}
# An IntEnum's member costs `pack` a look-up.
_REPORT, _BATCHES = int(Kind.REPORT), int(Kind.BATCHES)


class Hello(NamedTuple):
    """The first frame of a stream: who follows, and on which of its two streams."""

    seat: Seat
    lane: Lane

    def pack(self) -> bytes:
        said = {"broker": self.seat.broker, "incarnation": self.seat.incarnation, "lane": self.lane.value}
        return _packed(Kind.HELLO, STREAM, said)

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Members that are not known are skipped. Raises BrokenSessionError."""
        said = read_object(payload)
        lane = said.get("lane")
        if lane not in [each.value for each in Lane]:
            raise BrokenSessionError(f"HELLO's lane is {lane!r}: must be one of {', '.join(Lane)}")
        seat = Seat(BrokerId(_number(said, "broker")), Incarnation(_number(said, "incarnation")))
        return cls(seat, Lane(lane))


class Follow(NamedTuple):
    """A new channel: this partition, as its leader of this epoch has it."""

    channel: int
    leader_epoch: LeaderEpoch
    key: PartitionKey

    def pack(self) -> bytes:
        said = {"topicUid": self.key.uid, "partition": self.key.partition}
        return _packed(Kind.FOLLOW, self.channel, said, self.leader_epoch)


class AskEpochEnd(NamedTuple):
    """Where does `epoch` end in the leader's log?"""

    channel: int
    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch

    def pack(self) -> bytes:
        return pack_head(Kind.ASK_EPOCH_END, self.channel, 0, self.leader_epoch, self.epoch)


class Fetch(NamedTuple):
    """Both logs agree up to `offset`: send everything from there on."""

    channel: int
    leader_epoch: LeaderEpoch
    offset: Offset

    def pack(self) -> bytes:
        return pack_head(Kind.FETCH, self.channel, 0, self.leader_epoch, self.offset)


class Report(NamedTuple):
    """So much of the leader's log is here: a vote."""

    channel: int
    leader_epoch: LeaderEpoch
    ends: Ends
    leader_ms: int
    """The leader's time as last heard: the report was made after that."""

    def pack(self) -> bytes:
        numbers = (self.ends.log_end, self.ends.durable_end, self.leader_ms)
        return pack_head(_REPORT, self.channel, 0, self.leader_epoch, *numbers)


class Unfollow(NamedTuple):
    """Nothing more is wanted of this channel."""

    channel: int
    leader_epoch: LeaderEpoch
    why: HeadraceError | None = None
    """What is wrong with what came; None where the follower has other reasons."""

    def pack(self) -> bytes:
        return _packed(Kind.UNFOLLOW, self.channel, to_problem(self.why) if self.why else None, self.leader_epoch)


class Alive(NamedTuple):
    """The follower lives, and what it holds is what it reported last, on every channel."""

    leader_ms: int
    """As in `Report`."""

    def pack(self) -> bytes:
        return pack_head(Kind.ALIVE, STREAM, 0, 0, self.leader_ms)


class EpochEnded(NamedTuple):
    channel: int
    leader_epoch: LeaderEpoch
    answer: EpochEnd

    def pack(self) -> bytes:
        numbers = (self.answer.epoch, self.answer.end_offset)
        return pack_head(Kind.EPOCH_ENDED, self.channel, 0, self.leader_epoch, *numbers)


class Batches(NamedTuple):
    """What follows in the log; nothing of it where only what else is said here has changed."""

    channel: int
    leader_epoch: LeaderEpoch
    next_offset: Offset
    """The first that comes with the next frame of this channel."""
    high_watermark: Offset
    log_start_offset: Offset
    """Of the leader. Where it lies above all that the follower has, the batches begin there."""
    leader_ms: int
    """Any time of the leader's own; it comes back with what answers the frame."""
    batches: Sequence[Buffer]

    def buffers(self) -> list[Buffer]:
        size = sum(map(len, self.batches))
        numbers = (self.next_offset, self.high_watermark, self.log_start_offset, self.leader_ms)
        return [pack_head(_BATCHES, self.channel, size, self.leader_epoch, *numbers), *self.batches]


class Move(NamedTuple):
    """The channel is over: follow the partition on the other stream."""

    channel: int
    leader_epoch: LeaderEpoch

    def pack(self) -> bytes:
        return pack_head(Kind.MOVE, self.channel, 0, self.leader_epoch)


class Failed(NamedTuple):
    """The channel is over; on channel `STREAM`, the stream."""

    channel: int
    error: HeadraceError

    def pack(self) -> bytes:
        return _packed(Kind.FAILED, self.channel, to_problem(self.error))


class Heartbeat(NamedTuple):
    """The leader lives."""

    leader_ms: int

    def pack(self) -> bytes:
        return pack_head(Kind.HEARTBEAT, STREAM, 0, 0, self.leader_ms)


FollowerMessage = Hello | Follow | AskEpochEnd | Fetch | Report | Unfollow | Alive
LeaderMessage = EpochEnded | Batches | Move | Failed | Heartbeat


def follower_reader() -> FrameReader:
    """Of what followers send."""
    return FrameReader(_FOLLOWERS)


def leader_reader() -> FrameReader:
    """Of what leaders send."""
    return FrameReader(_LEADERS)


def follower_message(frame: Frame) -> FollowerMessage:
    """Raises BrokenSessionError."""
    channel, epoch = frame.channel, LeaderEpoch(frame.leader_epoch)
    if (channel == STREAM) != (frame.kind in (Kind.HELLO, Kind.ALIVE)):
        name = Kind(frame.kind).name
        raise BrokenSessionError(f"{name} on channel {channel}: HELLO and ALIVE alone are on channel 0")
    match frame.kind:
        case Kind.REPORT:
            return Report(channel, epoch, Ends(Offset(frame.first), Offset(frame.second)), frame.third)
        case Kind.ALIVE:
            return Alive(frame.first)
        case Kind.FETCH:
            return Fetch(channel, epoch, Offset(frame.first))
        case Kind.ASK_EPOCH_END:
            return AskEpochEnd(channel, epoch, LeaderEpoch(frame.first))
        case Kind.FOLLOW:
            said = read_object(frame.payload)
            uid = said.get("topicUid")
            if not isinstance(uid, str):
                raise BrokenSessionError(f"FOLLOW's topicUid is {uid!r}: must be a string")
            return Follow(channel, epoch, PartitionKey(TopicUid(uid), PartitionId(_number(said, "partition"))))
        case Kind.UNFOLLOW:
            return Unfollow(channel, epoch, _problem(frame.payload) if frame.payload else None)
        case kind:
            assert kind == Kind.HELLO, "the reader takes no other"
            return Hello.parse(frame.payload)


def leader_message(frame: Frame) -> LeaderMessage:
    """Raises BrokenSessionError."""
    channel, epoch = frame.channel, LeaderEpoch(frame.leader_epoch)
    match frame.kind:
        case Kind.BATCHES:
            following, watermark, start = Offset(frame.first), Offset(frame.second), Offset(frame.third)
            return Batches(channel, epoch, following, watermark, start, frame.fourth, frame.payload)
        case Kind.HEARTBEAT:
            return Heartbeat(frame.first)
        case Kind.EPOCH_ENDED:
            return EpochEnded(channel, epoch, EpochEnd(LeaderEpoch(frame.first), Offset(frame.second)))
        case Kind.MOVE:
            return Move(channel, epoch)
        case kind:
            assert kind == Kind.FAILED, "the reader takes no other"
            return Failed(channel, _problem(frame.payload))


def _problem(payload: Iterable[memoryview]) -> HeadraceError:
    problem = read_object(payload)
    status = problem.get("status")
    return from_problem(problem, status if isinstance(status, int) else _NO_STATUS)


def _number(said: dict[str, Any], name: str) -> int:
    value = said.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BrokenSessionError(f"{name} is {value!r}: must be a whole number from 0 on")
    return value


def _packed(kind: Kind, channel: int, said: dict[str, Any] | None, leader_epoch: int = 0) -> bytes:
    document = json.dumps(said, separators=(",", ":")).encode() if said is not None else b""
    return pack_head(kind, channel, len(document), leader_epoch) + document


_GAP_MS = 2 * REPLICATION_TICK_MS


class StreamSilence:
    def __init__(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self._asked_ms = now_ms

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms

    def lasts_too_long(self, now_ms: int) -> bool:
        gap_ms, self._asked_ms = now_ms - self._asked_ms, now_ms
        if gap_ms > _GAP_MS:
            self._heard_ms = now_ms
        return now_ms - self._heard_ms > REPLICATION_SILENCE_MS_MAX


class Pulse:
    """What is done once in an interval: by default, to say oneself that one is alive."""

    def __init__(self, now_ms: int, interval_ms: int = REPLICATION_ALIVE_MS) -> None:
        self._interval_ms = interval_ms
        self._due_ms = now_ms + interval_ms

    def is_due(self, now_ms: int) -> bool:
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._interval_ms
        return True
