"""The messages of a session, as values and as the bytes of their frames, and the rules of its channels.

    client: OpenProduce, Produce, OpenFetch, Credit, Close
    broker: Opened, Produced, Batches, Failed, Closed, Heartbeat

`client_reader` and `broker_reader` cut the frames of one direction out of the bytes; `client_message` and
`broker_message` say what a frame means. Messages with batches give `buffers`, whose bodies are never joined; all
others `pack` into one piece. Named tuples instead of dataclasses, because a broker makes several per batch.

    channel: going ── refused, or the answer to one is an error ──> failing ── all before it are answered ──> over
               └── closed ──> closing ── all are answered ──> over

A `Ledger` belongs to one produce channel of one session, on the broker's side. Its invariants: answers come in the
order of the produces, each once; after the first failure nothing is taken, and only the produces before it are still
answered; the last message is `Failed` or `Closed`.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.errors import BrokenSessionError, HeadraceError, ThrottledError, from_problem, to_problem
from headrace.core.frames.frame import Buffer, Frame, FrameReader, Kind, pack_head
from headrace.core.frames.session_terms import FetchTerms, ProduceTerms, Standing, read_object
from headrace.core.limits import BATCH_BYTES_MAX, REQUEST_BODY_BYTES_MAX, SESSION_JSON_BYTES_MAX
from headrace.core.types import LeaderEpoch, Offset

SESSION_CHANNELS_MAX = 4096
"""Channels that one session has open at once; one more is refused by itself (429)."""
SESSION_PRODUCES_PENDING_MAX = 1024
"""Produces of one channel that are not answered yet; one more fails the channel (429)."""
SESSION_FRAME_BYTES_MAX = REQUEST_BODY_BYTES_MAX
"""Batches in one PRODUCE."""


SESSION = 0
"""The channel of what concerns the session as a whole."""
NO_SEQUENCE = -1
UNKNOWN_OFFSET = Offset(-1)
_NO_STATUS = 500

_CLIENTS = {
    int(Kind.OPEN_PRODUCE): SESSION_JSON_BYTES_MAX,
    int(Kind.PRODUCE): SESSION_FRAME_BYTES_MAX,
    int(Kind.OPEN_FETCH): SESSION_JSON_BYTES_MAX,
    int(Kind.CREDIT): 0,
    int(Kind.CLOSE): 0,
}
_BROKERS = {
    int(Kind.OPENED): SESSION_JSON_BYTES_MAX,
    int(Kind.PRODUCED): 0,
    int(Kind.BATCHES): BATCH_BYTES_MAX,
    int(Kind.FAILED): SESSION_JSON_BYTES_MAX,
    int(Kind.CLOSED): 0,
    int(Kind.HEARTBEAT): 0,
}
# An IntEnum's member costs `pack` a look-up.
_PRODUCE, _PRODUCED, _BATCHES = int(Kind.PRODUCE), int(Kind.PRODUCED), int(Kind.BATCHES)


class OpenProduce(NamedTuple):
    channel: int
    terms: ProduceTerms

    def pack(self) -> bytes:
        return _packed(Kind.OPEN_PRODUCE, self.channel, self.terms.to_json())


class Produce(NamedTuple):
    """Append these batches, all or none."""

    channel: int
    sequence: int
    """The client's own number of it: comes back with its answer."""
    batches: Sequence[Buffer]
    """Whole ones, in pieces."""

    def buffers(self) -> list[Buffer]:
        size = sum(map(len, self.batches))
        return [pack_head(_PRODUCE, self.channel, size, 0, self.sequence), *self.batches]


class OpenFetch(NamedTuple):
    channel: int
    terms: FetchTerms

    def pack(self) -> bytes:
        return _packed(Kind.OPEN_FETCH, self.channel, self.terms.to_json())


class Credit(NamedTuple):
    """The broker may send so many bytes of batches more on a fetch channel."""

    channel: int
    nbytes: int

    def pack(self) -> bytes:
        return pack_head(Kind.CREDIT, self.channel, 0, 0, self.nbytes)


class Close(NamedTuple):
    """Nothing more is wanted of this channel; what was produced on it is still answered."""

    channel: int

    def pack(self) -> bytes:
        return pack_head(Kind.CLOSE, self.channel, 0)


class Opened(NamedTuple):
    channel: int
    standing: Standing

    def pack(self) -> bytes:
        return _packed(Kind.OPENED, self.channel, self.standing.to_json())


class Produced(NamedTuple):
    """One PRODUCE is what its channel's acks ask for. Its batches follow each other from `base_offset` on."""

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


class Batches(NamedTuple):
    """The first may start below the offset that is due: its first records were seen, or never asked for."""

    channel: int
    next_offset: Offset
    """The first that comes with the next frame of this channel."""
    high_watermark: Offset
    """`UNKNOWN_OFFSET` where a new leader does not know yet what is the latest."""
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    batches: Sequence[Buffer]

    def buffers(self) -> list[Buffer]:
        size = sum(map(len, self.batches))
        numbers = (self.next_offset, self.high_watermark, self.log_start_offset)
        return [pack_head(_BATCHES, self.channel, size, self.leader_epoch, *numbers), *self.batches]


class Failed(NamedTuple):
    """The channel is over; on channel `SESSION`, the session."""

    channel: int
    error: HeadraceError
    sequence: int = NO_SEQUENCE
    """The first PRODUCE that is not done; all before it were answered. `NO_SEQUENCE` where there is none."""

    def pack(self) -> bytes:
        problem = json.dumps(to_problem(self.error), separators=(",", ":")).encode()
        return pack_head(Kind.FAILED, self.channel, len(problem), 0, self.sequence) + problem


class Closed(NamedTuple):
    """The answer to `Close`: nothing more comes on this channel."""

    channel: int

    def pack(self) -> bytes:
        return pack_head(Kind.CLOSED, self.channel, 0)


class Heartbeat(NamedTuple):
    """There is nothing to say, and the broker is alive."""

    def pack(self) -> bytes:
        return pack_head(Kind.HEARTBEAT, SESSION, 0)


ClientMessage = OpenProduce | Produce | OpenFetch | Credit | Close
BrokerMessage = Opened | Produced | Batches | Failed | Closed | Heartbeat


def client_reader() -> FrameReader:
    """Of what clients send."""
    return FrameReader(_CLIENTS)


def broker_reader(allocate: Callable[[int], memoryview] | None = None) -> FrameReader:
    """Of what brokers send; `allocate` as `FrameReader` has it."""
    return FrameReader(_BROKERS, allocate)


def client_message(frame: Frame) -> ClientMessage:
    """Raises BrokenSessionError, and InvalidRequestError where only the channel is refused."""
    if frame.channel == SESSION:
        raise BrokenSessionError("channel is 0, which is the session itself: number channels from 1")
    match frame.kind:
        case Kind.PRODUCE:
            return Produce(frame.channel, frame.first, frame.payload)
        case Kind.CREDIT:
            if frame.first <= 0:
                raise BrokenSessionError(f"a CREDIT of {frame.first} bytes: must be 1 or more")
            return Credit(frame.channel, frame.first)
        case Kind.CLOSE:
            return Close(frame.channel)
        case Kind.OPEN_PRODUCE:
            return OpenProduce(frame.channel, ProduceTerms.parse(frame.payload))
        case kind:
            assert kind == Kind.OPEN_FETCH, "the reader takes no other"
            return OpenFetch(frame.channel, FetchTerms.parse(frame.payload))


def broker_message(frame: Frame) -> BrokerMessage:
    """Raises BrokenSessionError."""
    epoch, channel = LeaderEpoch(frame.leader_epoch), frame.channel
    match frame.kind:
        case Kind.PRODUCED:
            base, last, start = Offset(frame.second), Offset(frame.third), Offset(frame.fourth)
            return Produced(channel, frame.first, base, last, start, epoch)
        case Kind.BATCHES:
            following, watermark, start = Offset(frame.first), Offset(frame.second), Offset(frame.third)
            return Batches(channel, following, watermark, start, epoch, frame.payload)
        case Kind.OPENED:
            return Opened(channel, Standing.parse(frame.payload))
        case Kind.FAILED:
            problem = read_object(frame.payload)
            status = problem.get("status")
            error = from_problem(problem, status if isinstance(status, int) else _NO_STATUS)
            return Failed(channel, error, frame.first)
        case Kind.CLOSED:
            return Closed(channel)
        case kind:
            assert kind == Kind.HEARTBEAT, "the reader takes no other"
            return Heartbeat()


def _packed(kind: Kind, channel: int, document: bytes) -> bytes:
    return pack_head(kind, channel, len(document)) + document


class ChannelNumbering:
    """Which channel a number means: one that was opened, or one that is over."""

    def __init__(self, channels_max: int = SESSION_CHANNELS_MAX) -> None:
        self._channels_max = channels_max
        self.highest = 0

    def take(self, channel: int, open_channels: int) -> None:
        """A client opens `channel`. Raises BrokenSessionError, and ThrottledError where only the channel is refused."""
        if channel <= self.highest:
            raise BrokenSessionError(
                f"channel {channel} is opened after channel {self.highest}: each needs a higher number than the last"
            )
        self.highest = channel
        if open_channels >= self._channels_max:
            raise ThrottledError(
                f"this session has {self._channels_max} channels open, as many as it may; close some, or open another"
                " session"
            )

    def check_was_opened(self, channel: int) -> None:
        """Raises BrokenSessionError. What is said of a channel that is over is skipped."""
        if channel > self.highest:
            raise BrokenSessionError(f"channel {channel} was never opened: open it first")


@dataclass(slots=True, eq=False)
class ProduceGroup:
    """Produces that were appended in one go, and are answered together."""

    answers: Sequence[Produced]
    is_done: bool = False
    error: HeadraceError | None = None


class Ledger:
    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.pending = 0
        """Produces that are not answered yet."""
        self._groups: deque[ProduceGroup] = deque()
        self._last_word: Failed | Closed | None = None
        """Said when everything before it is answered."""
        self.is_over = False

    @property
    def takes_more(self) -> bool:
        return self._last_word is None and not self.is_over

    def check_room(self, collected: int) -> None:
        """For one more produce beside those that are `collected` to be appended. Raises ThrottledError."""
        if self.pending + collected >= SESSION_PRODUCES_PENDING_MAX:
            raise ThrottledError(
                f"{SESSION_PRODUCES_PENDING_MAX} produces of channel {self.channel} are not answered yet, as many as"
                " may be; wait for answers before you send more"
            )

    def appended(self, group: ProduceGroup) -> None:
        """These are written; they may be done already."""
        assert self.takes_more, "after a failure nothing is appended"
        self.pending += len(group.answers)
        self._groups.append(group)

    def refuse(self, error: HeadraceError, sequence: int = NO_SEQUENCE) -> None:
        """The channel fails, with the produce of that number or for a reason of its own."""
        if self.takes_more:
            self._last_word = Failed(self.channel, error, sequence)

    def close(self) -> None:
        if self.takes_more:
            self._last_word = Closed(self.channel)

    def take(self) -> list[Produced | Failed | Closed]:
        """What is to be said now, in this order."""
        said: list[Produced | Failed | Closed] = []
        while self._groups and self._groups[0].is_done:
            group = self._groups.popleft()
            if group.error is not None:
                return [*said, self._end(Failed(self.channel, group.error, group.answers[0].sequence))]
            said += group.answers
            self.pending -= len(group.answers)
        if self._last_word is not None and not self._groups:
            said.append(self._end(self._last_word))
        return said

    def _end(self, last_word: Failed | Closed) -> Failed | Closed:
        self.is_over, self._last_word, self.pending = True, None, 0
        self._groups.clear()
        return last_word
