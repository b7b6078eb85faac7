"""The meaning of the peer's frames (RFC 9113 sections 5, 6 and 8): frames in, events out, answers into the output.

One `Engine` owns a receiver, for its lifetime. A frame goes to the method of its type; a head is decoded even where it
is not wanted, because the tables must not lose step.

    SETTINGS first ──> any frame ──HEADERS without its end──> CONTINUATION only ──> any frame

Invariants: no event for a stream that is not open; after the event that ends a stream, none for it; every byte of DATA
is either in an event, whose taker gives its credit back, or its credit goes back here.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from headrace.core import limits
from headrace.http2 import frames, header_fields
from headrace.http2.connection_state import ConnectionState, Gone, Stream
from headrace.http2.events import (
    EVERY_STREAM,
    DataReceived,
    ErrorCode,
    Event,
    Fields,
    GoAwayReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from headrace.http2.frames import ACK, END_HEADERS, END_STREAM, LENGTH_31_BITS, PADDED, connection_error
from headrace.http2.hpack import Head, HeaderDecoder

H2_CONTINUATIONS_MAX = 32
"""The number of frames that one head may take: many small ones cost as much as large ones and carry nothing
(CVE-2024-27316)."""


_Payload: TypeAlias = memoryview | bytes


class Receiver:
    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._open = state.open
        self._is_server = state.is_server
        self._reader = frames.Http2FrameReader(frames.PREFACE if state.is_server else b"")
        self._decoder = HeaderDecoder(header_fields.check_request if state.is_server else header_fields.check_response)
        self._expected: int | None = frames.SETTINGS
        """The only type of frame that may come next; None where any type may."""
        self._head: tuple[int, int, bytearray] = (0, 0, bytearray())
        """The stream, flags and block of a head that continues in CONTINUATION frames."""
        self._continuations = 0
        self._events: list[Event] = []
        self._now_ms = 0

    def receive_data(self, data: bytes | memoryview, now_ms: int) -> list[Event]:
        """Return the events of these bytes. Raises `RemoteProtocolError`."""
        events: list[Event] = []
        self._events = events
        self._now_ms = now_ms
        self._state.resets.check(now_ms)
        handlers, known = _HANDLERS, len(_HANDLERS)
        for kind, flags, stream_id, payload in self._reader.frames(memoryview(data)):
            if self._expected is not None and kind != self._expected:
                what = f"a frame of type {kind} where only one of type {self._expected} may be"
                raise connection_error(what, ErrorCode.PROTOCOL_ERROR)
            if kind < known:
                handlers[kind](self, flags, stream_id, payload)
            else:
                self._spend_idle()
        self._events = []  # The pieces are views of memory that the caller wants back.
        return events

    def _spend_idle(self) -> None:
        self._state.idle.spend(self._now_ms)

    # -- bodies --------------------------------------------------------------------------------------------------

    def _on_data(self, flags: int, stream_id: int, payload: _Payload) -> None:
        length = len(payload)
        self._state.receive_window -= length
        if self._state.receive_window < 0:
            raise connection_error("more than the connection's window lets through", ErrorCode.FLOW_CONTROL_ERROR)
        if flags & PADDED:
            payload = frames.unpad(payload)
        stream = self._open.get(stream_id)
        if stream is None or not stream.receiving or (not stream.has_head and not self._is_server):
            self._state.credit_connection(length)
            if not length:  # Body bytes do not count: much of an upload may be on its way when we end its stream.
                self._spend_idle()
            self._unexpected_data(stream_id, stream)
            return
        stream.receive_window -= length
        if stream.receive_window < 0:
            self._stream_error(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
            self._state.credit_connection(length)
            return
        if len(payload) != length:
            self._state.credit_connection(length - len(payload))
            self._state.credit_stream(stream_id, length - len(payload))
        self._take_data(flags, stream_id, stream, payload)

    def _take_data(self, flags: int, stream_id: int, stream: Stream, payload: _Payload) -> None:
        size = len(payload)
        if stream.unread is not None:
            stream.unread -= size
            if stream.unread < 0:
                self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR)
                self._state.credit_connection(size)
                return
        if size:
            self._events.append(DataReceived(stream_id, payload))
        elif not flags & END_STREAM:
            self._spend_idle()
        if flags & END_STREAM:
            self._end_received(stream_id, stream)

    def _unexpected_data(self, stream_id: int, stream: Stream | None) -> None:
        if stream is not None:
            self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR if stream.receiving else ErrorCode.STREAM_CLOSED)
            return
        gone = self._state.streams.why_gone(stream_id)
        if gone is Gone.IDLE:
            raise connection_error("DATA on a stream that is not open", ErrorCode.PROTOCOL_ERROR)
        if gone is not Gone.RESET_BY_US:
            raise connection_error("DATA on a stream that has ended", ErrorCode.STREAM_CLOSED)

    def _end_received(self, stream_id: int, stream: Stream) -> None:
        if stream.unread:
            self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        stream.receiving = False
        if not stream.sending:
            del self._open[stream_id]
        self._events.append(StreamEnded(stream_id))

    # -- heads ---------------------------------------------------------------------------------------------------

    def _on_headers(self, flags: int, stream_id: int, payload: _Payload) -> None:
        if flags & PADDED:
            payload = frames.unpad(payload)
        if flags & frames.WITH_PRIORITY:
            payload = self._skip_priority(stream_id, payload)
        if not stream_id:
            raise connection_error("a head without a stream", ErrorCode.PROTOCOL_ERROR)
        if flags & END_HEADERS:
            self._on_head(stream_id, flags, bytes(payload))
        else:
            self._head = (stream_id, flags, bytearray(payload))
            self._continuations, self._expected = 0, frames.CONTINUATION

    def _skip_priority(self, stream_id: int, payload: _Payload) -> _Payload:
        if len(payload) < frames.PRIORITY_BYTES:
            raise connection_error("a HEADERS frame that ends within its priority", ErrorCode.FRAME_SIZE_ERROR)
        _check_dependency(stream_id, payload)
        return payload[frames.PRIORITY_BYTES :]

    def _on_continuation(self, flags: int, stream_id: int, payload: _Payload) -> None:
        head_id, head_flags, block = self._head
        if self._expected is None or stream_id != head_id:
            raise connection_error("a CONTINUATION of nothing", ErrorCode.PROTOCOL_ERROR)
        block += payload
        self._continuations += 1
        if len(block) > limits.H2_HEADER_BLOCK_BYTES_MAX or self._continuations > H2_CONTINUATIONS_MAX:
            what = f"a head of more than {limits.H2_HEADER_BLOCK_BYTES_MAX} bytes or {H2_CONTINUATIONS_MAX} parts"
            raise connection_error(what, ErrorCode.ENHANCE_YOUR_CALM)
        if flags & END_HEADERS:
            self._expected = None
            self._on_head(stream_id, head_flags, bytes(block))

    def _on_head(self, stream_id: int, flags: int, block: bytes) -> None:
        """Take a whole head. It is decoded even where it is not wanted: the tables must not lose step."""
        head = self._decoder.decode(block)
        ended = bool(flags & END_STREAM)
        stream = self._open.get(stream_id)
        if stream is None:
            self._head_of_none(stream_id, head, ended)
        elif not stream.receiving:
            self._stream_error(stream_id, ErrorCode.STREAM_CLOSED)
        elif stream.has_head:
            self._trailers(stream_id, stream, head.fields, ended)
        else:
            self._response(stream_id, stream, head, ended)

    def _head_of_none(self, stream_id: int, head: Head, ended: bool) -> None:
        if self._is_server and stream_id > self._state.streams.highest_id and stream_id % 2:
            self._request(stream_id, head, ended)
            return
        gone = self._state.streams.why_gone(stream_id)
        if gone is Gone.ENDED:
            raise connection_error("a head on a stream that has ended", ErrorCode.STREAM_CLOSED)
        if gone is not Gone.RESET_BY_US:
            raise connection_error("a head with a stream id that it may not have", ErrorCode.PROTOCOL_ERROR)
        self._spend_idle()

    def _request(self, stream_id: int, head: Head, ended: bool) -> None:
        state, message = self._state, head.message
        state.streams.number(stream_id)
        if state.refused_above is not None and stream_id > state.refused_above:
            state.reset(stream_id, ErrorCode.REFUSED_STREAM)
        elif len(self._open) >= limits.H2_MAX_CONCURRENT_STREAMS:
            self._stream_error(stream_id, ErrorCode.REFUSED_STREAM)
        elif message is None or (ended and message.content_length):
            self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR)
        else:
            window = state.stream_window
            stream = Stream(state.peer.initial_window_size, window, window, receiving=not ended, has_head=True)
            stream.unread = message.content_length
            self._open[stream_id] = stream
            state.last_request_id = stream_id
            self._events.append(RequestReceived(stream_id, head.fields, ended))
            if ended:
                self._events.append(StreamEnded(stream_id))

    def _response(self, stream_id: int, stream: Stream, head: Head, ended: bool) -> None:
        message = head.message
        if message is None or (message.is_interim and ended):
            self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif message.is_interim:
            self._spend_idle()
        else:
            stream.has_head = True
            stream.unread = 0 if message.is_bodyless or stream.is_head_request else message.content_length
            self._events.append(ResponseReceived(stream_id, head.fields, ended))
            if ended:
                self._end_received(stream_id, stream)

    def _trailers(self, stream_id: int, stream: Stream, fields: Fields, ended: bool) -> None:
        try:
            header_fields.check_trailers(fields)
        except header_fields.MalformedError:
            ended = False
        if ended:
            self._end_received(stream_id, stream)
        else:  # These are two heads, or one that cannot be trailers.
            self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR)

    # -- the peer's errors -----------------------------------------------------------------------------------------

    def _stream_error(self, stream_id: int, error_code: ErrorCode) -> None:
        """End this stream for the peer's mistake; too many of them end the connection."""
        was_open = stream_id in self._open
        self._state.reset(stream_id, error_code)
        if was_open:
            self._events.append(StreamReset(stream_id, error_code))
        self._state.resets.spend(self._now_ms)

    def _on_reset(self, flags: int, stream_id: int, payload: _Payload) -> None:
        stream = self._open.pop(stream_id, None)
        if stream is not None:
            self._events.append(StreamReset(stream_id, frames.unpack_u32(payload)))
            # A reset counts only where the stream was not answered: an answered one was for something.
            if self._is_server and stream.sending:
                self._state.resets.spend(self._now_ms)
        elif self._state.streams.why_gone(stream_id) is Gone.IDLE:
            raise connection_error("RST_STREAM on a stream that is not open", ErrorCode.PROTOCOL_ERROR)
        else:
            self._spend_idle()

    # -- the connection --------------------------------------------------------------------------------------------

    def _on_settings(self, flags: int, stream_id: int, payload: _Payload) -> None:
        _check_on_connection(frames.SETTINGS, stream_id)
        self._state.idle.spend(self._now_ms, 1 + len(self._open) // 8)  # Each stream's window may change with them.
        self._expected = None
        if flags & ACK:
            if len(payload):
                raise connection_error("an acknowledgement with settings in it", ErrorCode.FRAME_SIZE_ERROR)
            return
        peer, window = self._state.peer, self._state.peer.initial_window_size
        peer.apply(frames.unpack_settings(payload), from_server=not self._is_server)
        if not self._state.move_windows(peer.initial_window_size - window):
            raise connection_error("a setting that opens a window too far", ErrorCode.FLOW_CONTROL_ERROR)
        self._state.encoder.limit_table(peer.header_table_size)
        self._state.output.put(frames.pack_frame(frames.SETTINGS, ACK, 0))
        self._events.append(WindowOpened(EVERY_STREAM))
        if peer.initial_window_size > window:
            self._events += [WindowOpened(opened) for opened in self._open]

    def _on_window_update(self, flags: int, stream_id: int, payload: _Payload) -> None:
        increment = frames.unpack_u32(payload) & LENGTH_31_BITS
        self._spend_idle()
        if not stream_id:
            if not increment:
                raise connection_error("a window update of nothing", ErrorCode.PROTOCOL_ERROR)
            if not self._state.open_window(increment):
                raise connection_error("a window update that opens a window too far", ErrorCode.FLOW_CONTROL_ERROR)
            self._events.append(WindowOpened(EVERY_STREAM))
        elif (stream := self._open.get(stream_id)) is not None:
            stream.send_window += increment
            if not increment:
                self._stream_error(stream_id, ErrorCode.PROTOCOL_ERROR)
            elif stream.send_window > LENGTH_31_BITS:
                self._stream_error(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
            else:
                self._events.append(WindowOpened(stream_id))
        elif self._state.streams.why_gone(stream_id) is Gone.IDLE:
            raise connection_error("WINDOW_UPDATE on a stream that is not open", ErrorCode.PROTOCOL_ERROR)

    def _on_ping(self, flags: int, stream_id: int, payload: _Payload) -> None:
        _check_on_connection(frames.PING, stream_id)
        self._spend_idle()
        if not flags & ACK:
            self._state.output.put(frames.pack_frame(frames.PING, ACK, 0, bytes(payload)))

    def _on_goaway(self, flags: int, stream_id: int, payload: _Payload) -> None:
        _check_on_connection(frames.GOAWAY, stream_id)
        self._spend_idle()
        last_stream_id, error_code, debug_data = frames.unpack_goaway(payload)
        self._events.append(GoAwayReceived(last_stream_id, error_code, debug_data.decode("utf-8", "replace")))

    def _on_priority(self, flags: int, stream_id: int, payload: _Payload) -> None:
        """Skip the frame: RFC 9113 section 5.3.2 has taken its meaning away; what was an error before still is one."""
        self._spend_idle()
        if not stream_id:
            raise connection_error("PRIORITY without a stream", ErrorCode.PROTOCOL_ERROR)
        _check_dependency(stream_id, payload)

    def _on_push_promise(self, flags: int, stream_id: int, payload: _Payload) -> None:
        raise connection_error("PUSH_PROMISE, which nobody asked for", ErrorCode.PROTOCOL_ERROR)


def _check_on_connection(kind: int, stream_id: int) -> None:
    if stream_id:
        raise connection_error(f"a frame of type {kind} on a stream", ErrorCode.PROTOCOL_ERROR)


def _check_dependency(stream_id: int, payload: _Payload) -> None:
    if frames.unpack_u32(payload) & LENGTH_31_BITS == stream_id:
        raise connection_error("a stream that depends on itself", ErrorCode.PROTOCOL_ERROR)


_HANDLERS: Final[tuple[Callable[[Receiver, int, int, _Payload], None], ...]] = (
    Receiver._on_data,
    Receiver._on_headers,
    Receiver._on_priority,
    Receiver._on_reset,
    Receiver._on_settings,
    Receiver._on_push_promise,
    Receiver._on_ping,
    Receiver._on_goaway,
    Receiver._on_window_update,
    Receiver._on_continuation,
)
"""The handlers, by type of frame. Bound ones would make a receiver hold itself until the garbage collector comes."""
