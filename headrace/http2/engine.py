"""One HTTP/2 connection without I/O: bytes in, events out; calls in, bytes out (RFC 9113).

`Engine` owns the protocol state of one connection, for either role. `receive_data` says what happened;
`data_to_send` has what is to be written. It never blocks, reads no clock and keeps no body bytes: received ones are
copied once into their event; their credit goes back once they are taken. Streams (section 5.1):

    opened ──> sending and receiving ──> sending only | receiving only ──> gone
       └──────────────┴─────────────── reset, by either side ───────────────┘

Invariants: a stream that is gone has no state here and calls for it are no-ops, because resets cross on the wire; after
a `RemoteProtocolError` there is no event and nothing but the GOAWAY is sent. A bad message costs its stream; bad
frames, heads or windows, and floods, cost the connection.

`Outbox` has the bodies on their way out. It cuts buffers, kept by reference, into DATA frames as windows allow, one
frame a turn, so a large body never delays a small one. A stream with something to send is in exactly one of `_ready`,
`_blocked` (its window is used up) and `_held` (the connection's is); nothing is kept after `discard`.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from headrace.core import limits
from headrace.http2 import connection_state, frames
from headrace.http2.connection_state import ConnectionState, Stream
from headrace.http2.events import ErrorCode, Event, Fields, LocalProtocolError, RemoteProtocolError
from headrace.http2.frames import DATA, END_HEADERS, END_STREAM, LENGTH_31_BITS, Buffer
from headrace.http2.receiving import Receiver

H2_IDLE_FRAMES_PER_FRAME = 8
"""The idle frames that every HEADERS and DATA frame of ours earns its reader: it answers with WINDOW_UPDATEs ..."""
H2_BYTES_PER_IDLE_FRAME = 1 << 10
"""... and the bytes that earn one more: some readers answer with two for every few KiB that they take."""


PREFACE = frames.PREFACE


class Role(Enum):
    CLIENT = "client"
    SERVER = "server"


class Engine:
    def __init__(self, role: Role) -> None:
        self.role = role
        self.failed = False
        self._state = ConnectionState(is_server=role is Role.SERVER)
        self._open = self._state.open
        self._output = self._state.output
        self._receiver = Receiver(self._state)
        self._next_id = 1
        """The id of the stream that a client opens next."""
        self._begin()

    def _begin(self) -> None:
        preface = b"" if self._state.is_server else frames.PREFACE
        self._output.put(preface + frames.pack_settings(self._state.settings))
        increment = limits.H2_CONNECTION_WINDOW_BYTES - connection_state.RFC_WINDOW_BYTES
        self._output.put(frames.pack_window_update(0, increment))

    @property
    def last_request_id(self) -> int:
        """The highest stream that the client opened and the server took, on either side."""
        return self._state.last_request_id

    # -- in ------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | memoryview, now_ms: int = 0) -> list[Event]:
        """Return what these bytes from the peer mean, as events in order. Raises `RemoteProtocolError`; then the
        connection is over.

        `now_ms` is a clock that never goes back: as it moves on, so does each `Allowance`.
        """
        if self.failed:
            return []
        try:
            return self._receiver.receive_data(data, now_ms)
        except RemoteProtocolError as error:
            self._fail(int(str(error.details["error_code"])))
            raise

    def _fail(self, error_code: int) -> None:
        self.failed = True
        self._open.clear()
        self._output.put(frames.pack_goaway(self.last_request_id if self._state.is_server else 0, error_code))

    def credit_stream(self, stream_id: int, count: int) -> None:
        """Give credit for `count` bytes that the consumer has taken: the peer may send as many again on this stream."""
        self._state.credit_stream(stream_id, count)

    def size_window(self, stream_id: int, window: int) -> None:
        """Set how many bytes may be on their way, or with the consumer; what is granted stays granted."""
        self._state.size_window(stream_id, window)

    def credit_connection(self, count: int) -> None:
        """Give credit for `count` bytes of some stream that are no longer held: the peer may send as many again on the
        connection."""
        if not self.failed:
            self._state.credit_connection(count)

    # -- out -----------------------------------------------------------------------------------------------------

    @property
    def may_open_stream(self) -> bool:
        """Whether the server would take one more stream now."""
        return not self.failed and len(self._open) < self._state.peer.max_concurrent_streams

    def open_stream(self, fields: Fields, *, ended: bool) -> int:
        """Send a request head and return the stream's id. Raises `LocalProtocolError` over the server's limit of
        streams."""
        if not self.may_open_stream:
            most = self._state.peer.max_concurrent_streams
            raise LocalProtocolError(f"{len(self._open)} streams are open; the server takes {most}")
        stream_id = self._next_id
        if stream_id > LENGTH_31_BITS:
            raise LocalProtocolError("no stream can be opened on this connection: its numbers are used up")
        self._next_id += 2
        window = self._state.stream_window
        stream = Stream(self._state.peer.initial_window_size, window, window, sending=not ended)
        stream.is_head_request = (b":method", b"HEAD") in fields
        self._state.streams.number(stream_id)
        self._open[stream_id] = stream
        self._state.last_request_id = stream_id
        self._put_head(stream_id, fields, ended=ended)
        return stream_id

    def send_head(self, stream_id: int, fields: Fields, *, ended: bool) -> None:
        """Send a response head (a 1xx one any number of times before it)."""
        stream = self._open.get(stream_id)
        if stream is not None and stream.sending:
            self._put_head(stream_id, fields, ended=ended)
            if ended:
                self._end_sending(stream_id, stream)

    def _put_head(self, stream_id: int, fields: Fields, *, ended: bool) -> None:
        self._state.idle.earn(H2_IDLE_FRAMES_PER_FRAME)
        block = self._state.encoder.encode(fields)
        flags, size = END_STREAM if ended else 0, self._state.peer.max_frame_size
        if len(block) <= size:
            self._output.put(frames.pack_frame(frames.HEADERS, flags | END_HEADERS, stream_id, block))
            return
        self._output.put(frames.pack_frame(frames.HEADERS, flags, stream_id, block[:size]))
        for at in range(size, len(block), size):
            last = END_HEADERS if at + size >= len(block) else 0
            self._output.put(frames.pack_frame(frames.CONTINUATION, last, stream_id, block[at : at + size]))

    def send_body(self, stream_id: int, *buffers: Buffer, ended: bool) -> None:
        """Send one DATA frame with all of `buffers`: together at most `sendable(stream_id)` bytes."""
        stream = self._open.get(stream_id)
        if stream is None or not stream.sending:
            return
        size = sum(map(len, buffers))
        if not size and not ended:
            return
        stream.send_window -= size
        self._state.send_window -= size
        self._state.idle.earn(H2_IDLE_FRAMES_PER_FRAME + size // H2_BYTES_PER_IDLE_FRAME)
        self._output.put(frames.pack_head(DATA, END_STREAM if ended else 0, stream_id, size))
        self._output.put_payload(buffers)
        if ended:
            self._end_sending(stream_id, stream)

    def _end_sending(self, stream_id: int, stream: Stream) -> None:
        stream.sending = False
        if not stream.receiving:
            del self._open[stream_id]

    def sendable(self, stream_id: int) -> int:
        """Return how many body bytes the peer takes now, in one frame; 0 where its window is used up or the stream is
        gone."""
        stream = self._open.get(stream_id)
        if stream is None or not stream.sending:
            return 0
        frame = min(self._state.peer.max_frame_size, limits.H2_MAX_FRAME_BYTES)
        return max(0, min(stream.send_window, self._state.send_window, frame))

    @property
    def is_connection_open(self) -> bool:
        """Return whether the peer takes body bytes at all, on any stream."""
        return self._state.send_window > 0

    def is_sending(self, stream_id: int) -> bool:
        stream = self._open.get(stream_id)
        return stream is not None and stream.sending

    def is_receiving(self, stream_id: int) -> bool:
        stream = self._open.get(stream_id)
        return stream is not None and stream.receiving

    def reset(self, stream_id: int, error_code: ErrorCode) -> None:
        """Give the stream up in both directions."""
        if stream_id not in self._open:
            return
        self._state.reset(stream_id, error_code)
        if error_code is ErrorCode.PROTOCOL_ERROR or error_code is ErrorCode.REFUSED_STREAM:
            self._state.resets.owe()  # As far as our caller can tell, the peer provoked this.

    def go_away(self, error_code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Take no new streams; those that are open go on. A server refuses what the peer opens from here on."""
        state = self._state
        if state.refused_above is None and not self.failed:
            state.refused_above = state.last_request_id if state.is_server else 0
            self._output.put(frames.pack_goaway(state.refused_above, error_code))

    def data_to_send(self) -> list[Buffer]:
        """Return the bytes to write, in order, none of the buffers empty; an empty list where there is nothing to
        send."""
        return self._output.take()


@dataclass(slots=True)
class _Body:
    buffers: deque[memoryview] = field(default_factory=deque)
    nbytes: int = 0
    ended: bool = False
    """True where END_STREAM follows the last byte."""

    def take(self, limit: int) -> list[memoryview]:
        """Take up to `limit` bytes from the front, as views."""
        parts: list[memoryview] = []
        while self.buffers and limit:
            parts.append(self._cut(limit))
            limit -= len(parts[-1])
        return parts

    def _cut(self, limit: int) -> memoryview:
        part = self.buffers[0][:limit]
        if len(part) == len(self.buffers[0]):
            self.buffers.popleft()
        else:
            self.buffers[0] = self.buffers[0][limit:]
        self.nbytes -= len(part)
        return part


class Outbox:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bodies: dict[int, _Body] = {}
        self._ready: deque[int] = deque()
        self._blocked: set[int] = set()
        self._held: deque[int] = deque()

    def put(self, stream_id: int, buffers: Iterable[Buffer], *, ended: bool) -> None:
        """Queue body bytes, and with `ended` the end of the stream. The buffers must not change until they are sent."""
        if not self._engine.is_sending(stream_id):
            return
        body = self._bodies.get(stream_id)
        if body is None:
            body = self._bodies[stream_id] = _Body()
        idle = not body.nbytes and not body.ended
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if view.nbytes:
                body.buffers.append(view)
                body.nbytes += view.nbytes
        body.ended = ended
        if idle and (body.nbytes or ended):
            self._ready.append(stream_id)

    def pending(self, stream_id: int) -> int:
        """Return the bytes of this stream that have not been framed yet."""
        body = self._bodies.get(stream_id)
        return body.nbytes if body is not None else 0

    def is_open(self, stream_id: int) -> bool:
        """Return whether something of this stream is still to be sent, its end included."""
        return stream_id in self._bodies

    @property
    def has_ready(self) -> bool:
        return bool(self._turn())

    def discard(self, stream_id: int) -> None:
        if self._bodies.pop(stream_id, None) is not None:
            self._blocked.discard(stream_id)
            for queue in (self._ready, self._held):
                if stream_id in queue:
                    queue.remove(stream_id)

    def unblock(self, stream_id: int) -> None:
        """Note that the peer opened this stream's window; that of the connection is checked each time."""
        if stream_id in self._blocked:
            self._blocked.remove(stream_id)
            self._ready.append(stream_id)

    def pump(self, limit: int) -> list[int]:
        """Frame about `limit` bytes, in turns, and return the streams that moved."""
        moved: list[int] = []
        while limit > 0 and (queue := self._turn()):
            stream_id = queue.popleft()
            body = self._bodies[stream_id]
            allowed = self._engine.sendable(stream_id)
            if body.nbytes and not allowed:
                self._wait(stream_id)
                continue
            before = body.nbytes
            parts = body.take(allowed)
            limit -= before - body.nbytes
            last = body.ended and not body.nbytes
            self._engine.send_body(stream_id, *parts, ended=last)
            moved.append(stream_id)
            if last:
                del self._bodies[stream_id]
            elif body.nbytes:
                self._ready.append(stream_id)
        return moved

    def _turn(self) -> deque[int]:
        """Return the queue whose turn it is: first the streams that waited for the connection; empty where no stream
        can send."""
        return self._held if self._held and self._engine.is_connection_open else self._ready

    def _wait(self, stream_id: int) -> None:
        if self._engine.is_connection_open:
            self._blocked.add(stream_id)
        else:
            self._held.append(stream_id)
