"""The messages of a session, as values and as the bytes of their frames, and the ledger of a produce channel.

    client: OpenProduce, Produce, OpenFetch, Credit, CloseChannel
    broker: ChannelOpened, Produced, Batches, Failed, ChannelClosed, Heartbeat

`FROM_CLIENTS` and `FROM_BROKERS` are the tables of both directions: they make readers, and messages of frames. Messages
with batches give `buffers`, whose bodies are never joined; all others `pack` into one piece. Named tuples instead of
dataclasses, because a broker makes several per batch.

    channel: going ── refused, or the answer to one is an error ──> failing ── all before it are answered ──> over
               └── closed ──> closing ── all are answered ──> over

A `Ledger` belongs to one produce channel of one session, on the broker's side. Its invariants: answers come in the
order of the produces, each once; after the first failure nothing is taken, and only the produces before it are still
answered; the last message is `Failed` or `ChannelClosed`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self

from headrace.core.errors import BrokenSessionError, HeadraceError, ThrottledError, to_problem
from headrace.core.frames.frame import (
    STREAM,
    Buffer,
    Frame,
    MessageTable,
    pack_batches,
    pack_head,
    pack_object,
    read_problem,
)
from headrace.core.frames.session_terms import FetchTerms, ProduceTerms, Standing
from headrace.core.limits import BATCH_BYTES_MAX, REQUEST_BODY_BYTES_MAX, SESSION_JSON_BYTES_MAX
from headrace.core.types import LeaderEpoch, Offset

SESSION_CHANNELS_MAX = 4096
"""The channels that one session has open at once; one more is refused by itself (429)."""
SESSION_PRODUCES_PENDING_MAX = 1024
"""The produces of one channel that are not answered yet; one more fails the channel (429)."""
SESSION_FRAME_BYTES_MAX = REQUEST_BODY_BYTES_MAX
"""The bytes of the batches in one PRODUCE."""

SESSION_MEDIA_TYPE: Final = "application/vnd.headrace.session"
"""The content type of a session's request and of its answer."""
NO_SEQUENCE = -1
UNKNOWN_OFFSET = Offset(-1)


class SessionKind(IntEnum):
    """The first byte of a frame. The kinds that brokers send have the highest bit set."""

    OPEN_PRODUCE = 0x01
    PRODUCE = 0x02
    OPEN_FETCH = 0x03
    CREDIT = 0x04
    CLOSE = 0x05
    OPENED = 0x81
    PRODUCED = 0x82
    BATCHES = 0x83
    FAILED = 0x84
    CLOSED = 0x85
    HEARTBEAT = 0x86


# An IntEnum's member costs `pack` a look-up.
_PRODUCE, _PRODUCED, _BATCHES = int(SessionKind.PRODUCE), int(SessionKind.PRODUCED), int(SessionKind.BATCHES)


class OpenProduce(NamedTuple):
    channel: int
    terms: ProduceTerms

    def pack(self) -> bytes:
        return pack_object(SessionKind.OPEN_PRODUCE, self.channel, self.terms.to_object())

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError, and InvalidRequestError where only the channel is refused."""
        return cls(frame.channel, ProduceTerms.parse(frame.payload))


class Produce(NamedTuple):
    """A request to append these batches, all or none."""

    channel: int
    sequence: int
    """The client's own number of the request, which comes back with its answer."""
    batches: Sequence[Buffer]
    """The bytes of whole batches, in pieces."""

    def buffers(self) -> list[Buffer]:
        return pack_batches(_PRODUCE, self.channel, self.batches, 0, self.sequence)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.channel, frame.first, frame.payload)


class OpenFetch(NamedTuple):
    channel: int
    terms: FetchTerms

    def pack(self) -> bytes:
        return pack_object(SessionKind.OPEN_FETCH, self.channel, self.terms.to_object())

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError, and InvalidRequestError where only the channel is refused."""
        return cls(frame.channel, FetchTerms.parse(frame.payload))


class Credit(NamedTuple):
    """The broker may send so many bytes of batches more on a fetch channel."""

    channel: int
    nbytes: int

    def pack(self) -> bytes:
        return pack_head(SessionKind.CREDIT, self.channel, 0, 0, self.nbytes)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError."""
        if frame.first <= 0:
            raise BrokenSessionError(f"a CREDIT of {frame.first} bytes: must be 1 or more")
        return cls(frame.channel, frame.first)


class CloseChannel(NamedTuple):
    """The end of a channel, by the client; what was produced on it is still answered."""

    channel: int

    def pack(self) -> bytes:
        return pack_head(SessionKind.CLOSE, self.channel, 0)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.channel)


class ChannelOpened(NamedTuple):
    channel: int
    standing: Standing

    def pack(self) -> bytes:
        return pack_object(SessionKind.OPENED, self.channel, self.standing.to_object())

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError."""
        return cls(frame.channel, Standing.parse(frame.payload))


class Produced(NamedTuple):
    """The answer to one PRODUCE that is as safe as its channel's acks ask for; its batches begin at `base_offset`."""

    channel: int
    sequence: int
    base_offset: Offset
    last_offset: Offset
    log_start_offset: Offset
    leader_epoch: LeaderEpoch

    def pack(self) -> bytes:
        return pack_head(
            _PRODUCED,
            self.channel,
            0,
            self.leader_epoch,
            self.sequence,
            self.base_offset,
            self.last_offset,
            self.log_start_offset,
        )

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        base, last, start = Offset(frame.second), Offset(frame.third), Offset(frame.fourth)
        return cls(frame.channel, frame.first, base, last, start, LeaderEpoch(frame.leader_epoch))


class Batches(NamedTuple):
    """The next batches. The first may start below the offset that is due: the client skips its first records."""

    channel: int
    next_offset: Offset
    """The first offset that comes with the next frame of this channel."""
    high_watermark: Offset
    """The high watermark; `UNKNOWN_OFFSET` where a new leader does not know yet what is the latest."""
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    batches: Sequence[Buffer]

    def buffers(self) -> list[Buffer]:
        numbers = (self.next_offset, self.high_watermark, self.log_start_offset)
        return pack_batches(_BATCHES, self.channel, self.batches, self.leader_epoch, *numbers)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        following, watermark, start = Offset(frame.first), Offset(frame.second), Offset(frame.third)
        return cls(frame.channel, following, watermark, start, LeaderEpoch(frame.leader_epoch), frame.payload)


class Failed(NamedTuple):
    """The channel is over; on channel `STREAM`, the session."""

    channel: int
    error: HeadraceError
    sequence: int = NO_SEQUENCE
    """The first PRODUCE that is not done; all before it were answered. `NO_SEQUENCE` where there is none."""

    def pack(self) -> bytes:
        return pack_object(SessionKind.FAILED, self.channel, to_problem(self.error), 0, self.sequence)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        """Unpack the frame. Raises BrokenSessionError."""
        return cls(frame.channel, read_problem(frame.payload), frame.first)


class ChannelClosed(NamedTuple):
    """The answer to `CloseChannel`: nothing more comes on this channel."""

    channel: int

    def pack(self) -> bytes:
        return pack_head(SessionKind.CLOSED, self.channel, 0)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls(frame.channel)


class Heartbeat(NamedTuple):
    """A sign of life of a broker that has nothing else to say."""

    def pack(self) -> bytes:
        return pack_head(SessionKind.HEARTBEAT, STREAM, 0)

    @classmethod
    def unpack(cls, frame: Frame) -> Self:
        return cls()


ClientMessage = OpenProduce | Produce | OpenFetch | Credit | CloseChannel
BrokerMessage = ChannelOpened | Produced | Batches | Failed | ChannelClosed | Heartbeat


def _check_channel(frame: Frame) -> None:
    if frame.channel == STREAM:
        raise BrokenSessionError("channel is 0, which is the session itself: number channels from 1")


FROM_CLIENTS = MessageTable[ClientMessage](
    {
        SessionKind.OPEN_PRODUCE: (SESSION_JSON_BYTES_MAX, OpenProduce.unpack),
        SessionKind.PRODUCE: (SESSION_FRAME_BYTES_MAX, Produce.unpack),
        SessionKind.OPEN_FETCH: (SESSION_JSON_BYTES_MAX, OpenFetch.unpack),
        SessionKind.CREDIT: (0, Credit.unpack),
        SessionKind.CLOSE: (0, CloseChannel.unpack),
    },
    _check_channel,
)
FROM_BROKERS = MessageTable[BrokerMessage](
    {
        SessionKind.OPENED: (SESSION_JSON_BYTES_MAX, ChannelOpened.unpack),
        SessionKind.PRODUCED: (0, Produced.unpack),
        SessionKind.BATCHES: (BATCH_BYTES_MAX, Batches.unpack),
        SessionKind.FAILED: (SESSION_JSON_BYTES_MAX, Failed.unpack),
        SessionKind.CLOSED: (0, ChannelClosed.unpack),
        SessionKind.HEARTBEAT: (0, Heartbeat.unpack),
    }
)


@dataclass(slots=True, eq=False)
class ProduceGroup:
    """The produces that were appended in one go, and are answered together."""

    answers: Sequence[Produced]
    is_done: bool = False
    error: HeadraceError | None = None


class Ledger:
    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.pending = 0
        """The number of produces that are not answered yet."""
        self._groups: deque[ProduceGroup] = deque()
        self._last_word: Failed | ChannelClosed | None = None
        """The last message, sent when everything before it is answered."""
        self.is_over = False

    @property
    def takes_more(self) -> bool:
        return self._last_word is None and not self.is_over

    def check_room(self, collected: int) -> None:
        """Check that there is room. Raises ThrottledError where one more beside the `collected` ones is too many."""
        if self.pending + collected >= SESSION_PRODUCES_PENDING_MAX:
            raise ThrottledError(
                f"{SESSION_PRODUCES_PENDING_MAX} produces of channel {self.channel} are not answered yet, as many as"
                " may be; wait for answers before you send more"
            )

    def appended(self, group: ProduceGroup) -> None:
        """Add produces that are written; they may be done already."""
        assert self.takes_more, "after a failure nothing is appended"
        self.pending += len(group.answers)
        self._groups.append(group)

    def refuse(self, error: HeadraceError, sequence: int = NO_SEQUENCE) -> None:
        """Fail the channel, with the produce of that number or for a reason of its own."""
        if self.takes_more:
            self._last_word = Failed(self.channel, error, sequence)

    def close(self) -> None:
        if self.takes_more:
            self._last_word = ChannelClosed(self.channel)

    def take(self) -> list[Produced | Failed | ChannelClosed]:
        """Return the messages that are to be sent now, in this order."""
        said: list[Produced | Failed | ChannelClosed] = []
        while self._groups and self._groups[0].is_done:
            group = self._groups.popleft()
            if group.error is not None:
                return [*said, self._end(Failed(self.channel, group.error, group.answers[0].sequence))]
            said += group.answers
            self.pending -= len(group.answers)
        if self._last_word is not None and not self._groups:
            said.append(self._end(self._last_word))
        return said

    def _end(self, last_word: Failed | ChannelClosed) -> Failed | ChannelClosed:
        self.is_over, self._last_word, self.pending = True, None, 0
        self._groups.clear()
        return last_word
