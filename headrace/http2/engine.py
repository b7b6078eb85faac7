"""One HTTP/2 connection without I/O: bytes in, events out; calls in, bytes out. The only module that knows jh2.

Owns the protocol state of one connection from its first byte to its last, for either role. `receive_data` says what
happened; whatever has to be written afterwards is in `data_to_send`. It never blocks, never reads a clock, and keeps
no body bytes: those go to the caller, who gives their flow-control credit back once they are taken.

Streams, as this module sees them (both sides end on their own, RFC 9113 section 5.1):

    opened ──> sending and receiving ──> sending only | receiving only ──> gone
       └──────────────┴─────────────── reset, by either side ───────────────┘

Invariants: a stream that is gone has no state here and everything asked of it is a no-op, because resets cross on the
wire; after a `RemoteProtocolError` no event is produced and nothing but the GOAWAY is sent; header fields must be
valid before they come here (`headrace.http2.fields`), as a failed encoding would spoil the compression context.
Called by `headrace.http2.connection` (server) and `headrace.http2.exchange` (clients).
"""

import struct
from dataclasses import dataclass
from enum import Enum

from jh2.config import H2Configuration
from jh2.connection import H2Connection
from jh2.events import DataReceived as JDataReceived
from jh2.events import Event as JEvent
from jh2.events import RemoteSettingsChanged as JRemoteSettingsChanged
from jh2.events import RequestReceived as JRequestReceived
from jh2.events import ResponseReceived as JResponseReceived
from jh2.events import StreamEnded as JStreamEnded
from jh2.events import StreamReset as JStreamReset
from jh2.events import WindowUpdated as JWindowUpdated
from jh2.exceptions import ProtocolError
from jh2.settings import SettingCodes, Settings

from headrace.core import limits
from headrace.http2.events import (
    EVERY_STREAM,
    DataReceived,
    ErrorCode,
    Event,
    Fields,
    GoAwayReceived,
    LocalProtocolError,
    RemoteProtocolError,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from headrace.http2.goaway import GoAway, GoAwaySplitter

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (RFC 9113 section 3.4)."""

_RFC_WINDOW_BYTES = 65_535
"""Every window until the peer says otherwise."""

_MALFORMED = (ProtocolError, ValueError, KeyError, IndexError, struct.error)
"""Besides its own errors, jh2 lets a few of Python's through on malformed frames."""

_RUST_PANIC = "PanicException"
"""What jh2's HPACK decoder raises on some malformed header blocks: not an `Exception`, and importable from nowhere."""


class Role(Enum):
    CLIENT = "client"
    SERVER = "server"


@dataclass(slots=True)
class _Stream:
    sending: bool = True
    receiving: bool = True
    uncredited: int = 0
    """Bytes that were taken and whose credit has not been sent yet."""


class Engine:
    def __init__(self, role: Role) -> None:
        config = H2Configuration(
            client_side=role is Role.CLIENT,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.role = role
        self.last_request_id = 0
        """The highest stream that the client opened, on either side."""
        self._conn = H2Connection(config)
        self._splitter = GoAwaySplitter(len(PREFACE) if role is Role.SERVER else 0)
        self._streams: dict[int, _Stream] = {}
        self._uncredited = 0
        self._streams_max = limits.H2_STREAMS_BEFORE_SETTINGS
        self._refused_above: int | None = None
        """Our own GOAWAY's last stream id; None before we sent one."""
        self._goaway = b""
        self.failed = False
        self._begin()

    def _begin(self) -> None:
        # Given as initial values, because an update would bind the peer only after its acknowledgement.
        client = self.role is Role.CLIENT
        ours = {
            SettingCodes.HEADER_TABLE_SIZE: 4096,
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.H2_STREAM_WINDOW_BYTES,
            SettingCodes.MAX_FRAME_SIZE: limits.H2_MAX_FRAME_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.H2_HEADER_LIST_BYTES_MAX,
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.H2_MAX_CONCURRENT_STREAMS,
        }
        # jh2 supposes a browser's settings of a peer that has not spoken; RFC 9113 section 6.5.2 has other defaults,
        # and a peer that never changes them would see its windows overrun.
        theirs = {SettingCodes.HEADER_TABLE_SIZE: 4096, SettingCodes.INITIAL_WINDOW_SIZE: _RFC_WINDOW_BYTES}
        conn = self._conn
        conn.local_settings = Settings(client=client, initial_values=ours)
        conn.remote_settings = Settings(client=not client, initial_values=theirs)
        conn.max_inbound_frame_size = limits.H2_MAX_FRAME_BYTES
        conn.decoder.max_header_list_size = limits.H2_HEADER_LIST_BYTES_MAX
        conn.initiate_connection()
        conn.increment_flow_control_window(limits.H2_CONNECTION_WINDOW_BYTES - _RFC_WINDOW_BYTES)

    # -- in ------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | memoryview) -> list[Event]:
        """What these bytes from the peer mean, in order. Raises `RemoteProtocolError`; then the connection is over."""
        events: list[Event] = []
        if self.failed:
            return events
        try:
            for piece in self._splitter.split(memoryview(data)):
                if isinstance(piece, GoAway):
                    reason = piece.debug_data.decode("utf-8", "replace")
                    events.append(GoAwayReceived(piece.last_stream_id, piece.error_code, reason))
                elif piece:
                    for event in self._conn.receive_data(piece):
                        self._translate(event, events)
        except RemoteProtocolError as error:
            self._fail(int(str(error.details.get("error_code", int(ErrorCode.PROTOCOL_ERROR)))))
            raise
        except BaseException as error:
            if not isinstance(error, _MALFORMED) and type(error).__name__ != _RUST_PANIC:
                raise
            self._fail(int(getattr(error, "error_code", ErrorCode.PROTOCOL_ERROR)))
            raise RemoteProtocolError(f"the peer broke HTTP/2: {str(error) or type(error).__name__}") from error
        return events

    def _fail(self, error_code: int) -> None:
        self.failed = True
        self._streams.clear()
        self._conn.clear_outbound_data_buffer()
        self._goaway = GoAway(self.last_request_id if self.role is Role.SERVER else 0, error_code).pack()

    def _translate(self, event: JEvent, events: list[Event]) -> None:
        match event:
            case JDataReceived():
                self._data_received(event, events)
            case JRequestReceived():
                self._request_received(event, events)
            case JResponseReceived():
                ended = event.stream_ended is not None
                events.append(ResponseReceived(event.stream_id, event.headers, ended))
            case JStreamEnded():
                if event.stream_id in self._streams:
                    self._half_close(event.stream_id, receiving=False)
                    events.append(StreamEnded(event.stream_id))
            case JStreamReset():
                if self._streams.pop(event.stream_id, None) is not None:
                    events.append(StreamReset(event.stream_id, int(event.error_code)))
            case JWindowUpdated():
                events.append(WindowOpened(event.stream_id))
            case JRemoteSettingsChanged():
                self._streams_max = self._conn.remote_settings.max_concurrent_streams
                events.append(WindowOpened(EVERY_STREAM))
            case _:
                pass  # Pings are answered by jh2; priorities, trailers, 1xx and unknown frames mean nothing to us.

    def _request_received(self, event: JRequestReceived, events: list[Event]) -> None:
        stream_id = event.stream_id
        self._streams[stream_id] = _Stream()
        if self._refused_above is not None and stream_id > self._refused_above:
            self.reset(stream_id, ErrorCode.REFUSED_STREAM)
            return
        self.last_request_id = stream_id
        events.append(RequestReceived(stream_id, event.headers, event.stream_ended is not None))

    def _data_received(self, event: JDataReceived, events: list[Event]) -> None:
        padding = event.flow_controlled_length - len(event.data)
        if event.data:
            events.append(DataReceived(event.stream_id, event.data))
        if padding:
            self.credit_connection(padding)
            self.credit_stream(event.stream_id, padding)

    # -- credit --------------------------------------------------------------------------------------------------

    def credit_stream(self, stream_id: int, count: int) -> None:
        """The consumer has taken `count` bytes: the peer may send as many again on this stream."""
        stream = self._streams.get(stream_id)
        if stream is None or not stream.receiving:
            return
        stream.uncredited += count
        if stream.uncredited >= limits.H2_STREAM_WINDOW_BYTES // 2:
            self._conn.increment_flow_control_window(stream.uncredited, stream_id)
            stream.uncredited = 0

    def credit_connection(self, count: int) -> None:
        """`count` bytes of some stream are no longer held: the peer may send as many again on the connection."""
        if self.failed:
            return
        self._uncredited += count
        if self._uncredited >= limits.H2_CONNECTION_WINDOW_BYTES // 2:
            self._conn.increment_flow_control_window(self._uncredited)
            self._uncredited = 0

    # -- out -----------------------------------------------------------------------------------------------------

    @property
    def may_open_stream(self) -> bool:
        """Whether the server would take one more stream now."""
        return not self.failed and len(self._streams) < self._streams_max

    def open_stream(self, fields: Fields, *, ended: bool) -> int:
        """Send a request head; the stream's id. Raises `LocalProtocolError` over the server's limit of streams."""
        if not self.may_open_stream:
            raise LocalProtocolError(f"{len(self._streams)} streams are open; the server takes {self._streams_max}")
        try:
            stream_id: int = self._conn.get_next_available_stream_id()
            self._conn.send_headers(stream_id, fields, end_stream=ended)
        except ProtocolError as error:
            raise LocalProtocolError(f"no stream can be opened on this connection: {error}") from error
        self._streams[stream_id] = _Stream(sending=not ended)
        self.last_request_id = stream_id
        return stream_id

    def send_head(self, stream_id: int, fields: Fields, *, ended: bool) -> None:
        """Send a response head (a 1xx one any number of times before it)."""
        if self.is_sending(stream_id):
            self._conn.send_headers(stream_id, fields, end_stream=ended)
            if ended:
                self._half_close(stream_id, sending=False)

    def send_body(self, stream_id: int, data: bytes | memoryview, *, ended: bool) -> None:
        """One DATA frame; `data` is at most `sendable(stream_id)` bytes."""
        if not self.is_sending(stream_id):
            return
        if data:
            self._conn.send_data(stream_id, data, end_stream=ended)
        elif ended:
            self._conn.end_stream(stream_id)
        if ended:
            self._half_close(stream_id, sending=False)

    def sendable(self, stream_id: int) -> int:
        """How many body bytes the peer takes now, in one frame; 0 where its window is used up or the stream is gone."""
        if not self.is_sending(stream_id):
            return 0
        window: int = self._conn.local_flow_control_window(stream_id)
        frame: int = self._conn.max_outbound_frame_size
        return max(0, min(window, frame, limits.H2_MAX_FRAME_BYTES))

    def is_sending(self, stream_id: int) -> bool:
        stream = self._streams.get(stream_id)
        return stream is not None and stream.sending

    def is_receiving(self, stream_id: int) -> bool:
        stream = self._streams.get(stream_id)
        return stream is not None and stream.receiving

    def reset(self, stream_id: int, error_code: ErrorCode) -> None:
        """Give the stream up in both directions."""
        if self._streams.pop(stream_id, None) is not None:
            self._conn.reset_stream(stream_id, error_code)

    def go_away(self, error_code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Take no new streams; those that are open go on. A server refuses what the peer opens from here on."""
        if self._refused_above is None and not self.failed:
            self._refused_above = self.last_request_id if self.role is Role.SERVER else 0
            self._goaway = GoAway(self._refused_above, error_code).pack()

    def data_to_send(self) -> bytes:
        """The bytes to write, in order; empty where there is nothing to say."""
        data: bytes = self._conn.data_to_send()
        goaway, self._goaway = self._goaway, b""
        return data + goaway if goaway else data

    def _half_close(self, stream_id: int, *, sending: bool = True, receiving: bool = True) -> None:
        stream = self._streams[stream_id]
        stream.sending = stream.sending and sending
        stream.receiving = stream.receiving and receiving
        if not stream.sending and not stream.receiving:
            del self._streams[stream_id]
