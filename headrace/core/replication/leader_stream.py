"""The leader's side of one replication stream: what each channel was sent, and what is due to it. No I/O.

    channel: opened (FOLLOW) ── asked, answered ──> FETCH ──> due ──> sent ──> reported ──> due ...
               live:     so much was sent, and the end of the log is not reached ──> move, over
               catch-up: the end of the log was reached                          ──> move, over

Bytes that were sent and are not reported yet are bounded: by channel, so that a slow follower has little before it,
and over all channels of a stream that lack something (`REPLICATION_STREAM_BYTES_MAX`), so that the vote of a channel
that has everything waits behind no more. Channels that wait for room get it in turn.

Invariants: `unreported_bytes` of a stream is the sum of its channels'; only a report on the same channel makes room;
after `move` or the end of a channel nothing is sent on it. Owned by the shell of one stream, for its lifetime. The
broker's one `Throttle` bounds the bytes a second for all followers that are far behind; unused rate is not saved up.
"""

from collections import deque
from enum import Enum
from typing import NamedTuple

from headrace.core.errors import BrokenSessionError, DivergedLogError, NotReadyError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.replication_messages import FollowMessage, Hello, Pulse, StreamRole, StreamSilence
from headrace.core.limits import REPLICATION_READ_BYTES
from headrace.core.replication.isr import Ends
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, Offset, PartitionKey, Seat

REPLICATION_IN_FLIGHT_BYTES_MAX = 8 << 20
"""The bytes of one partition that a follower was sent and has not reported; one batch is sent whatever its size."""
REPLICATION_STREAM_BYTES_MAX = 8 << 20
"""The same over all partitions of a stream that lack something: votes of the others wait behind no more."""
REPLICATION_BEHIND_BYTES_MAX = 16 << 20
"""A follower that was sent so much without reaching the end of the log catches up on a stream of its own."""
REPLICATION_REPEAT_MS = 2_000
"""The interval in which one sign of life of a follower counts as a report of each of its partitions."""
REPLICATION_HELLO_MS_MAX = 5_000
"""A stream without HELLO ends after this time, whatever else comes."""
REPLICATION_CHANNELS_MAX = 1 << 14
"""The partitions that one broker follows of another at once."""


_PIECES_PER_SECOND = 4


class Throttle:
    def __init__(self, bytes_per_second: int | None) -> None:
        """Set the rate in bytes a second; None sets no limit."""
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0

    @property
    def piece_bytes(self) -> int:
        """Return the bytes to read at a time: a slow rate is kept in small pieces."""
        if self._bytes_per_second is None:
            return REPLICATION_READ_BYTES
        return min(REPLICATION_READ_BYTES, self._bytes_per_second // _PIECES_PER_SECOND)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next piece may be read."""
        return max(0, self._free_at_ms - now_ms)

    def took(self, nbytes: int, now_ms: int) -> None:
        if self._bytes_per_second is not None:
            self._free_at_ms = max(self._free_at_ms, now_ms) + nbytes * 1000 // self._bytes_per_second


class Tip(NamedTuple):
    """The leader's log as it is now."""

    log_start: Offset
    log_end: Offset
    high_watermark: Offset


class FrameDue(Enum):
    NOTHING = "nothing"
    LATER = "later"
    """A frame without batches, but with an offset, is due: it may wait for others."""
    NOW = "now"


class LeaderChannel:
    """A partition as one follower has it."""

    def __init__(self, stream: "LeaderStream", number: int, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        self._stream = stream
        self.number = number
        self.key = key
        self.leader_epoch = leader_epoch
        self.next_offset: Offset | None = None
        """The offset where the next frame begins; None before FETCH."""
        self.ends: Ends | None = None
        """The ends that were last reported."""
        self.unreported_bytes = 0
        self._sent: deque[tuple[Offset, int]] = deque()
        """(end, bytes) of frames that are not reported."""
        self._owes_frame = False
        self._told: tuple[Offset, Offset] | None = None
        """The high watermark and log start, as last sent."""
        self._behind_bytes = 0
        """The bytes that were sent since the follower last had everything."""
        self._has_all = False
        """The follower was sent everything that there was."""

    def fetch(self, offset: Offset, tip: Tip) -> None:
        """Begin at `offset`, up to which both logs agree. Raises DivergedLogError."""
        if offset > tip.log_end:
            raise DivergedLogError(f"offset {offset} is not there: the leader's log ends at {tip.log_end}; agree first")
        self._forget_sent()
        self.next_offset, self._owes_frame, self._has_all, self._behind_bytes = offset, True, False, 0

    def start(self, tip: Tip) -> Offset:
        """Return the offset to read at for the next frame: what was deleted before it was sent is left out."""
        assert self.next_offset is not None, "only what is due is read"
        return max(self.next_offset, tip.log_start)

    def due(self, tip: Tip) -> FrameDue:
        """Return whether a frame is to be sent now."""
        if self.next_offset is None:
            return FrameDue.NOTHING
        if self._owes_frame or (self.next_offset < tip.log_end and self._has_room):
            return FrameDue.NOW
        if self.next_offset >= tip.log_end and (tip.high_watermark, tip.log_start) != self._told:
            return FrameDue.LATER
        return FrameDue.NOTHING

    @property
    def _has_room(self) -> bool:
        if self.unreported_bytes >= REPLICATION_IN_FLIGHT_BYTES_MAX:
            return False
        return self._has_all or self._stream.has_room_for(self)

    @property
    def room_bytes(self) -> int:
        """The bytes of batches in the next frame; a first batch that is larger is sent all the same."""
        return max(1, REPLICATION_IN_FLIGHT_BYTES_MAX - self.unreported_bytes) if self._has_room else 0

    def sent(self, nbytes: int, next_offset: Offset, tip: Tip) -> bool:
        """Note that a frame left with so many bytes of batches; `tip` is that of their read. Return whether to move."""
        self._owes_frame, self.next_offset = False, next_offset
        self._told = (tip.high_watermark, tip.log_start)
        if nbytes:
            self._sent.append((next_offset, nbytes))
            self.unreported_bytes += nbytes
            self._stream.unreported_bytes += nbytes
        self._has_all = next_offset >= tip.log_end
        self._behind_bytes = 0 if self._has_all else self._behind_bytes + nbytes
        if self._stream.role is StreamRole.CATCH_UP:
            return self._has_all
        return self._behind_bytes > REPLICATION_BEHIND_BYTES_MAX

    def reported(self, ends: Ends) -> None:
        self.ends = ends
        while self._sent and self._sent[0][0] <= ends.log_end:
            self._release(self._sent.popleft()[1])

    def leave(self) -> None:
        self._forget_sent()
        self.next_offset = None

    def _forget_sent(self) -> None:
        self._sent.clear()
        self._release(self.unreported_bytes)

    def _release(self, nbytes: int) -> None:
        self.unreported_bytes -= nbytes
        self._stream.unreported_bytes -= nbytes


class LeaderStream:
    def __init__(self, now_ms: int) -> None:
        self._begun_ms = now_ms
        self._hello: Hello | None = None
        self._channels = OpenChannels[LeaderChannel]()
        self._starved: dict[LeaderChannel, None] = {}
        """The channels that wait for room in the stream, in turn."""
        self.unreported_bytes = 0
        self.silence = StreamSilence(now_ms)
        self.pulse = Pulse(now_ms)
        self.repeats = Pulse(now_ms, REPLICATION_REPEAT_MS)
        """The clock of signs of life that count as a report of every channel."""

    @property
    def seat(self) -> Seat:
        """The follower of this stream."""
        return self._introduced.seat

    @property
    def role(self) -> StreamRole:
        return self._introduced.role

    def is_late(self, now_ms: int) -> bool:
        """Return whether HELLO is overdue."""
        return self._hello is None and now_ms - self._begun_ms > REPLICATION_HELLO_MS_MAX

    def begin(self, hello: Hello, me: BrokerId, known: Incarnation | None) -> None:
        """Introduce the follower; `known` is the incarnation in the Lease of its broker, None without a Lease.

        Raises BrokenSessionError, NotReadyError.
        """
        if self._hello is not None:
            raise BrokenSessionError("HELLO is the first frame of a stream, and comes once")
        if hello.seat.broker == me:
            raise BrokenSessionError(f"broker {me} does not follow itself")
        if known != hello.seat.incarnation:
            raise NotReadyError(
                f"broker {hello.seat.broker} is not known here in its incarnation {hello.seat.incarnation}"
                f" ({'it has no Lease' if known is None else f'its Lease says {known}'}); try again"
            )
        self._hello = hello

    def open(self, follow: FollowMessage) -> LeaderChannel:
        """Open a channel. Raises BrokenSessionError, and ThrottledError where only the channel is refused."""
        self._introduced  # noqa: B018 - or it raises
        self._channels.take_number(follow.channel, REPLICATION_CHANNELS_MAX)
        channel = LeaderChannel(self, follow.channel, follow.key, follow.leader_epoch)
        self._channels[channel.number] = channel
        return channel

    def find(self, number: int) -> LeaderChannel | None:
        """Return a channel; None where it is over. Raises BrokenSessionError where it never was."""
        return self._channels.find(number)

    def close(self, channel: LeaderChannel) -> None:
        del self._channels[channel.number]
        self._starved.pop(channel, None)
        channel.leave()

    def has_room_for(self, channel: LeaderChannel) -> bool:
        """Return whether a channel that lacks something may be sent more; if not, `take_fed` names it later."""
        if self.unreported_bytes < REPLICATION_STREAM_BYTES_MAX:
            return True
        self._starved[channel] = None
        return False

    def take_fed(self) -> list[LeaderChannel]:
        """Return the channels that waited for room, where there is some now."""
        if not self._starved or self.unreported_bytes >= REPLICATION_STREAM_BYTES_MAX:
            return []
        fed, self._starved = list(self._starved), {}
        return fed

    @property
    def _introduced(self) -> Hello:
        if self._hello is None:
            raise BrokenSessionError("the first frame of a stream is HELLO")
        return self._hello
