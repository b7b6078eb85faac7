"""One HTTP/2 connection without I/O: bytes in, events out; calls in, bytes out (RFC 9113).

Owns the protocol state of one connection from its first byte to its last, for either role. `receive_data` says what
happened; whatever has to be written afterwards is in `data_to_send`. It never blocks, never reads a clock, and keeps
no body bytes: those that come are copied once into their event, so that the caller may receive into one buffer for
ever, and go back as flow-control credit once they are taken; those that go are passed on by reference.

Streams, as this module sees them (both sides end on their own, RFC 9113 section 5.1):

    opened ──> sending and receiving ──> sending only | receiving only ──> gone
       └──────────────┴─────────────── reset, by either side ───────────────┘

Invariants: a stream that is gone has no state here and everything asked of it is a no-op, because resets cross on the
wire; after a `RemoteProtocolError` no event is produced and nothing but the GOAWAY is added to what is sent; header
fields must be valid before they come here (`headrace.http2.fields`). What is wrong with one message costs its stream;
what is wrong with frames, heads or windows, and what looks like a flood (`floods`), costs the connection.
Called by `headrace.http2.connection` (server) and `headrace.http2.exchange` (clients).
"""

from enum import Enum

from headrace.core import limits
from headrace.http2 import frames, settings
from headrace.http2.events import ErrorCode, Event, Fields, LocalProtocolError, RemoteProtocolError
from headrace.http2.frames import DATA, END_HEADERS, END_STREAM, LENGTH_31_BITS
from headrace.http2.output import Buffer
from headrace.http2.receiving import Receiver
from headrace.http2.state import ConnectionState
from headrace.http2.streams import Stream

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
        """Of the stream that a client opens next."""
        self._begin()

    def _begin(self) -> None:
        preface = b"" if self._state.is_server else frames.PREFACE
        self._output.put(preface + frames.pack_settings(self._state.settings))
        increment = limits.H2_CONNECTION_WINDOW_BYTES - settings.RFC_WINDOW_BYTES
        self._output.put(frames.pack_window_update(0, increment))

    @property
    def last_request_id(self) -> int:
        """The highest stream that the client opened and the server took, on either side."""
        return self._state.last_request_id

    # -- in ------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | memoryview, now_ms: int = 0) -> list[Event]:
        """What these bytes from the peer mean, in order. Raises `RemoteProtocolError`; then the connection is over.

        `now_ms` is a clock that never goes back: as it moves on, so do the allowances of `floods`.
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
        """The consumer has taken `count` bytes: the peer may send as many again on this stream."""
        self._state.credit_stream(stream_id, count)

    def size_window(self, stream_id: int, window: int) -> None:
        """From now on so many bytes may be on their way, or with the consumer; what is granted stays granted."""
        self._state.size_window(stream_id, window)

    def credit_connection(self, count: int) -> None:
        """`count` bytes of some stream are no longer held: the peer may send as many again on the connection."""
        if not self.failed:
            self._state.credit_connection(count)

    # -- out -----------------------------------------------------------------------------------------------------

    @property
    def may_open_stream(self) -> bool:
        """Whether the server would take one more stream now."""
        return not self.failed and len(self._open) < self._state.peer.max_concurrent_streams

    def open_stream(self, fields: Fields, *, ended: bool) -> int:
        """Send a request head; the stream's id. Raises `LocalProtocolError` over the server's limit of streams."""
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
        self._state.idle.earn(limits.H2_IDLE_FRAMES_PER_FRAME)
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
        """One DATA frame with all of `buffers`: together at most `sendable(stream_id)` bytes."""
        stream = self._open.get(stream_id)
        if stream is None or not stream.sending:
            return
        size = sum(map(len, buffers))
        if not size and not ended:
            return
        stream.send_window -= size
        self._state.send_window -= size
        self._state.idle.earn(limits.H2_IDLE_FRAMES_PER_FRAME + size // limits.H2_BYTES_PER_IDLE_FRAME)
        self._output.put(frames.pack_head(DATA, END_STREAM if ended else 0, stream_id, size))
        self._output.put_payload(buffers)
        if ended:
            self._end_sending(stream_id, stream)

    def _end_sending(self, stream_id: int, stream: Stream) -> None:
        stream.sending = False
        if not stream.receiving:
            del self._open[stream_id]

    def sendable(self, stream_id: int) -> int:
        """How many body bytes the peer takes now, in one frame; 0 where its window is used up or the stream is gone."""
        stream = self._open.get(stream_id)
        if stream is None or not stream.sending:
            return 0
        frame = min(self._state.peer.max_frame_size, limits.H2_MAX_FRAME_BYTES)
        return max(0, min(stream.send_window, self._state.send_window, frame))

    @property
    def is_connection_open(self) -> bool:
        """Whether the peer takes body bytes at all, of whatever stream."""
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
            self._state.resets.owe()  # Provoked by the peer, as far as our caller can tell.

    def go_away(self, error_code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Take no new streams; those that are open go on. A server refuses what the peer opens from here on."""
        state = self._state
        if state.refused_above is None and not self.failed:
            state.refused_above = state.last_request_id if state.is_server else 0
            self._output.put(frames.pack_goaway(state.refused_above, error_code))

    def data_to_send(self) -> list[Buffer]:
        """The bytes to write, in order, none of the buffers empty; an empty list where there is nothing to say."""
        return self._output.take()
