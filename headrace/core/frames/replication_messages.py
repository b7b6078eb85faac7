"""The messages of a replication stream, as values and as the bytes of their frames, and the signs of life on it.

    follower: Hello, Follow, AskEpochEnd, Fetch, Report, Unfollow, Alive
    leader:   EpochEnded, LeaderBatches, Move, LeaderFailed, LeaderHeartbeat

The head is that of a session (`frame`), the kinds are others, so that neither is taken for the other. `FROM_FOLLOWERS`
and `FROM_LEADERS` are the tables of both directions: they make readers, and messages of frames. Named tuples, because
there are some for each batch.

A `StreamSilence` says whether the other side is still there, by the listener's own clock. A listener that was stopped
or starved itself cannot tell, because messages may lie unread before it: a gap between two questions counts as if
something had been heard at its end. A `Pulse` says when the next sign of life is due.
"""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, Self

from headrace.core.errors import BrokenSessionError, HeadraceError, to_problem
from headrace.core.fields import Fields
from headrace.core.frames.frame import (
    STREAM,
    Buffer,
    Frame,
    MessageTable,
    pack_batches,
    pack_head,
    pack_object,
    read_object,
    read_problem,
)
from headrace.core.limits import BATCH_BYTES_MAX, REPLICATION_TICK_MS, SESSION_JSON_BYTES_MAX
from headrace.core.log.epochs import EpochEnd
from headrace.core.replication.isr import Ends
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, Offset, PartitionId, PartitionKey, Seat, TopicUid

REPLICATION_ALIVE_MS = 1_000
"""The interval in which each side says that it is alive, whatever else it says."""
REPLICATION_SILENCE_MS_MAX = 2_500
"""The time without a message after which the other side of a stream is taken to be gone."""

REPLICATION_MEDIA_TYPE: Final = "application/vnd.headrace.replication"
"""The content type of a replication stream's request and of its answer."""
_GAP_MS = 2 * REPLICATION_TICK_MS


class ReplicationKind(IntEnum):
    """The first byte of a frame. The kinds that leaders send have the highest bit set."""

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


class StreamRole(StrEnum):
    """The role of one of the two streams between a follower and its leader; the field `lane` of HELLO has it."""

    LIVE = "live"
    """The stream of partitions that have everything, or nearly: nothing else delays their votes."""
    CATCH_UP = "catchUp"
    """The stream of partitions that are far behind."""


# An IntEnum's member costs `pack` a look-up.
_REPORT, _BATCHES = int(ReplicationKind.REPORT), int(ReplicationKind.BATCHES)


class Hello(NamedTuple):
    """The first frame of a stream: who follows, and on which of its two streams."""

    seat: Seat
    role: StreamRole

    def pack(self) -> bytes:
        said = {"broker": self.seat.broker, "incarnation": self.seat.incarnation, "lane": self.role.value}
        return pack_object(ReplicationKind.HELLO, STREAM, said)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Skip members that are not known. Raises BrokenSessionError."""
        said = Fields(read_object(frame.payload), BrokenSessionError)
        seat = Seat(BrokerId(said.whole("broker")), Incarnation(said.whole("incarnation")))
        return cls(seat, said.one_of("lane", StreamRole))


class FollowMessage(NamedTuple):
    """A new channel: this partition, as its leader of this epoch has it."""

    channel: int
    leader_epoch: LeaderEpoch
    key: PartitionKey

    def pack(self) -> bytes:
        said = {"topicUid": self.key.uid, "partition": self.key.partition}
        return pack_object(ReplicationKind.FOLLOW, self.channel, said, self.leader_epoch)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError."""
        said = Fields(read_object(frame.payload), BrokenSessionError)
        key = PartitionKey(TopicUid(said.text("topicUid")), PartitionId(said.whole("partition")))
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch), key)


class AskEpochEndMessage(NamedTuple):
    """The question where `epoch` ends in the leader's log."""

    channel: int
    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch

    def pack(self) -> bytes:
        return pack_head(ReplicationKind.ASK_EPOCH_END, self.channel, 0, self.leader_epoch, self.epoch)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch), LeaderEpoch(frame.first))


class FetchMessage(NamedTuple):
    """A request for everything from `offset` on, up to which both logs agree."""

    channel: int
    leader_epoch: LeaderEpoch
    offset: Offset

    def pack(self) -> bytes:
        return pack_head(ReplicationKind.FETCH, self.channel, 0, self.leader_epoch, self.offset)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch), Offset(frame.first))


class ReportMessage(NamedTuple):
    """A vote: the follower has the leader's log up to these ends."""

    channel: int
    leader_epoch: LeaderEpoch
    ends: Ends
    leader_ms: int
    """The leader's time as it was last heard: the report was made after that."""

    def pack(self) -> bytes:
        numbers = (self.ends.log_end, self.ends.durable_end, self.leader_ms)
        return pack_head(_REPORT, self.channel, 0, self.leader_epoch, *numbers)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        ends = Ends(Offset(frame.first), Offset(frame.second))
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch), ends, frame.third)


class UnfollowMessage(NamedTuple):
    """The end of a channel, by the follower."""

    channel: int
    leader_epoch: LeaderEpoch
    why: HeadraceError | None = None
    """The fault in what came; None where the follower has other reasons."""

    def pack(self) -> bytes:
        if self.why is None:
            return pack_head(ReplicationKind.UNFOLLOW, self.channel, 0, self.leader_epoch)
        return pack_object(ReplicationKind.UNFOLLOW, self.channel, to_problem(self.why), self.leader_epoch)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError."""
        why = read_problem(frame.payload) if frame.payload else None
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch), why)


class Alive(NamedTuple):
    """The follower lives, and what it holds is what it reported last, on every channel."""

    leader_ms: int
    """The same as in `ReportMessage`."""

    def pack(self) -> bytes:
        return pack_head(ReplicationKind.ALIVE, STREAM, 0, 0, self.leader_ms)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.first)


class EpochEnded(NamedTuple):
    channel: int
    leader_epoch: LeaderEpoch
    answer: EpochEnd

    def pack(self) -> bytes:
        numbers = (self.answer.epoch, self.answer.end_offset)
        return pack_head(ReplicationKind.EPOCH_ENDED, self.channel, 0, self.leader_epoch, *numbers)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        answer = EpochEnd(LeaderEpoch(frame.first), Offset(frame.second))
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch), answer)


class LeaderBatches(NamedTuple):
    """The next batches of the log; none of them where only an offset has changed."""

    channel: int
    leader_epoch: LeaderEpoch
    next_offset: Offset
    """The first offset that comes with the next frame of this channel."""
    high_watermark: Offset
    log_start_offset: Offset
    """The start of the leader's log. Where it lies above all that the follower has, the batches begin there."""
    leader_ms: int
    """A time of the leader's own clock, which comes back with the answer to the frame."""
    batches: Sequence[Buffer]

    def buffers(self) -> list[Buffer]:
        numbers = (self.next_offset, self.high_watermark, self.log_start_offset, self.leader_ms)
        return pack_batches(_BATCHES, self.channel, self.batches, self.leader_epoch, *numbers)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        following, watermark, start = Offset(frame.first), Offset(frame.second), Offset(frame.third)
        epoch = LeaderEpoch(frame.leader_epoch)
        return cls(frame.channel, epoch, following, watermark, start, frame.fourth, frame.payload)


class Move(NamedTuple):
    """The channel is over: follow the partition on the other stream."""

    channel: int
    leader_epoch: LeaderEpoch

    def pack(self) -> bytes:
        return pack_head(ReplicationKind.MOVE, self.channel, 0, self.leader_epoch)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.channel, LeaderEpoch(frame.leader_epoch))


class LeaderFailed(NamedTuple):
    """The channel is over; on channel `STREAM`, the stream."""

    channel: int
    error: HeadraceError

    def pack(self) -> bytes:
        return pack_object(ReplicationKind.FAILED, self.channel, to_problem(self.error))

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError."""
        return cls(frame.channel, read_problem(frame.payload))


class LeaderHeartbeat(NamedTuple):
    """The leader lives."""

    leader_ms: int

    def pack(self) -> bytes:
        return pack_head(ReplicationKind.HEARTBEAT, STREAM, 0, 0, self.leader_ms)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.first)


FollowerMessage = Hello | FollowMessage | AskEpochEndMessage | FetchMessage | ReportMessage | UnfollowMessage | Alive
LeaderMessage = EpochEnded | LeaderBatches | Move | LeaderFailed | LeaderHeartbeat


_ON_STREAM = (int(ReplicationKind.HELLO), int(ReplicationKind.ALIVE))


def _check_channel(frame: Frame) -> None:
    if (frame.channel == STREAM) != (frame.kind in _ON_STREAM):
        name = ReplicationKind(frame.kind).name
        raise BrokenSessionError(f"{name} on channel {frame.channel}: HELLO and ALIVE alone are on channel 0")


FROM_FOLLOWERS = MessageTable[FollowerMessage](
    {
        ReplicationKind.HELLO: (SESSION_JSON_BYTES_MAX, Hello.unpack),
        ReplicationKind.FOLLOW: (SESSION_JSON_BYTES_MAX, FollowMessage.unpack),
        ReplicationKind.ASK_EPOCH_END: (0, AskEpochEndMessage.unpack),
        ReplicationKind.FETCH: (0, FetchMessage.unpack),
        ReplicationKind.REPORT: (0, ReportMessage.unpack),
        ReplicationKind.UNFOLLOW: (SESSION_JSON_BYTES_MAX, UnfollowMessage.unpack),
        ReplicationKind.ALIVE: (0, Alive.unpack),
    },
    _check_channel,
)
FROM_LEADERS = MessageTable[LeaderMessage](
    {
        ReplicationKind.EPOCH_ENDED: (0, EpochEnded.unpack),
        ReplicationKind.BATCHES: (BATCH_BYTES_MAX, LeaderBatches.unpack),
        ReplicationKind.MOVE: (0, Move.unpack),
        ReplicationKind.FAILED: (SESSION_JSON_BYTES_MAX, LeaderFailed.unpack),
        ReplicationKind.HEARTBEAT: (0, LeaderHeartbeat.unpack),
    }
)


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
    """A clock for what is done once in an interval; by default, for a sign of life."""

    def __init__(self, now_ms: int, interval_ms: int = REPLICATION_ALIVE_MS) -> None:
        self._interval_ms = interval_ms
        self._due_ms = now_ms + interval_ms

    def is_due(self, now_ms: int) -> bool:
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._interval_ms
        return True
