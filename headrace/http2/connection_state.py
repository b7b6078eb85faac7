"""The state that both directions of one HTTP/2 connection share: settings, streams, windows, allowances, output. Pure.

One `Engine` owns a `ConnectionState`, for its lifetime; it and its `Receiver` use it. Invariants: a window that we
gave out is never overrun unnoticed, and one that we were given is never overrun; a stream that was reset has no state
afterwards. Credit is sent by the half window, so that many small bodies cost few frames.

SETTINGS are in RFC 9113 section 6.5: what we ask of every peer, and what a peer asks of us, checked. Section 5.1 asks
for different answers to a frame on a stream that never was, on one that ended, and on one that we reset while the
frame was on its way: `StreamTable` keeps the open ones, the highest id, and the latest that were skipped or reset.

Two allowances bound what a peer may ask that moves nothing; time is given. Resets are streams opened for nothing
(CVE-2023-44487), or mistakes that make us reset them (CVE-2025-8671). Idle frames carry no request and no body
(CVE-2019-9512 and its kin). Each grows back with time; that of idle frames also with what we send, because a reader
answers DATA with WINDOW_UPDATEs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace.core import limits
from headrace.http2 import frames
from headrace.http2.events import ErrorCode
from headrace.http2.frames import LENGTH_31_BITS, Output, connection_error
from headrace.http2.hpack import HeaderEncoder

H2_STREAMS_BEFORE_SETTINGS = 100
"""Streams that a client opens before the server has announced its own limit (RFC 9113 6.5.2 recommends at least
100)."""
H2_RESETS_MAX = 2_000
"""The streams that a peer may reset, or have us reset by its mistakes, in one burst (CVE-2023-44487, CVE-2025-8671)
..."""
H2_RESETS_PER_SECOND = 200
"""... and the rate at which it may do so without end."""
H2_IDLE_FRAMES_MAX = 10_000
"""The frames of one burst that move nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown ones ..."""
H2_IDLE_FRAMES_PER_SECOND = 1_000
"""... and the rate at which they may come without end."""
H2_RESETS_REMEMBERED_MAX = 1_000
"""The number of reset streams that are remembered, to ignore their late frames; late frames of older ones are an
error."""


HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

RFC_WINDOW_BYTES: Final = 65_535
"""The size of every window until its receiver announces another one."""
_RFC_FRAME_BYTES: Final = 16_384
_RFC_FRAME_BYTES_MAX: Final = (1 << 24) - 1
_UNLIMITED: Final = (1 << 32) - 1

SETTINGS_OF_CLIENTS: Final = {
    ENABLE_PUSH: 0,
    HEADER_TABLE_SIZE: limits.H2_HEADER_TABLE_BYTES,
    MAX_CONCURRENT_STREAMS: limits.H2_MAX_CONCURRENT_STREAMS,
    INITIAL_WINDOW_SIZE: limits.H2_STREAM_WINDOW_BYTES,
    MAX_FRAME_SIZE: limits.H2_MAX_FRAME_BYTES,
    MAX_HEADER_LIST_SIZE: limits.H2_HEADER_LIST_BYTES_MAX,
}
SETTINGS_OF_SERVERS: Final = {
    **{key: value for key, value in SETTINGS_OF_CLIENTS.items() if key != ENABLE_PUSH},
    INITIAL_WINDOW_SIZE: limits.H2_REQUEST_WINDOW_BYTES,
}


@dataclass(slots=True)
class PeerSettings:
    """The settings of the peer; until it sends them, those of RFC 9113 section 6.5.2, and the number of streams that it
    recommends."""

    header_table_size: int = limits.H2_HEADER_TABLE_BYTES
    max_concurrent_streams: int = H2_STREAMS_BEFORE_SETTINGS
    initial_window_size: int = RFC_WINDOW_BYTES
    max_frame_size: int = _RFC_FRAME_BYTES
    heard: bool = False

    def apply(self, settings: Iterable[tuple[int, int]], *, from_server: bool) -> None:
        """Take the settings in their order; unknown ones mean nothing. Raises `RemoteProtocolError`."""
        if not self.heard:
            self.heard, self.max_concurrent_streams = True, _UNLIMITED
        for key, value in settings:
            if key == HEADER_TABLE_SIZE:
                self.header_table_size = value
            elif key == MAX_CONCURRENT_STREAMS:
                self.max_concurrent_streams = value
            elif key == INITIAL_WINDOW_SIZE:
                _check_setting(key, value, range(LENGTH_31_BITS + 1), ErrorCode.FLOW_CONTROL_ERROR)
                self.initial_window_size = value
            elif key == MAX_FRAME_SIZE:
                _check_setting(key, value, range(_RFC_FRAME_BYTES, _RFC_FRAME_BYTES_MAX + 1))
                self.max_frame_size = value
            elif key == ENABLE_PUSH:
                _check_setting(key, value, range(1 if from_server else 2))


def _check_setting(key: int, value: int, allowed: range, error_code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> None:
    if value not in allowed:
        what = f"setting {key} with {value}; it may be {allowed[0]} to {allowed[-1]}"
        raise connection_error(what, error_code)


class Allowance:
    def __init__(self, name: str, at_once: int, per_second: int) -> None:
        self._name = name
        self._at_once = at_once
        self._per_second = per_second
        self._left = at_once
        self._since_ms: int | None = None
        """The time when it last grew; None before the clock was first read."""

    def spend(self, now_ms: int, count: int = 1) -> None:
        """Spend so many more. Raises `RemoteProtocolError` where there have been too many."""
        self._left -= count
        if self._left < 0 or self._since_ms is None:
            self.check(now_ms)

    def owe(self) -> None:
        """Spend one more where the error cannot be raised at once: `check` raises it later."""
        self._left -= 1

    def check(self, now_ms: int) -> None:
        """Raise `RemoteProtocolError` where more was spent than time has given back."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if self._left >= 0:
            return
        # It grows only when it is used up: the time that has passed since gives its share then, up to the bound.
        self.earn((now_ms - self._since_ms) * self._per_second // 1000)
        self._since_ms = now_ms
        if self._left < 0:
            what = f"{self._name} faster than {self._per_second} a second, after {self._at_once} at once"
            raise connection_error(what, ErrorCode.ENHANCE_YOUR_CALM)

    def earn(self, count: int) -> None:
        self._left = min(self._left + count, self._at_once)


def resets_allowance() -> Allowance:
    return Allowance("streams that are reset", H2_RESETS_MAX, H2_RESETS_PER_SECOND)


def idle_allowance() -> Allowance:
    return Allowance("frames that move nothing", H2_IDLE_FRAMES_MAX, H2_IDLE_FRAMES_PER_SECOND)


class Gone(Enum):
    """Why a stream is not open."""

    IDLE = "never opened"
    SKIPPED = "skipped: opening a later one closed it"
    RESET_BY_US = "reset by us: the peer may not know yet"
    ENDED = "ended or reset by the peer: it knows"


@dataclass(slots=True)
class Stream:
    send_window: int
    receive_window: int
    """The part of `window` that the peer may still use."""
    window: int
    sending: bool = True
    receiving: bool = True
    uncredited: int = 0
    """Bytes that were taken and whose credit has not been sent yet; below 0 where the window became smaller."""
    unread: int | None = None
    """The bytes of the announced content-length that have not come yet; None where none was announced."""
    has_head: bool = False
    """True once the request, or the final response, has come."""
    is_head_request: bool = False


class StreamTable:
    def __init__(self) -> None:
        self.open: dict[int, Stream] = {}
        self.highest_id = 0
        """The highest id of the opened streams, by whichever side is the client."""
        self._skipped = range(0)
        self._reset_by_us: dict[int, None] = {}

    def number(self, stream_id: int) -> None:
        """Note that the client has used this id, and with it all lower ones, whatever becomes of the stream."""
        if stream_id > self.highest_id + 2:
            self._skipped = range(self.highest_id + 1, stream_id)
        self.highest_id = stream_id

    def remember_reset(self, stream_id: int) -> None:
        self._reset_by_us[stream_id] = None
        if len(self._reset_by_us) > H2_RESETS_REMEMBERED_MAX:
            del self._reset_by_us[next(iter(self._reset_by_us))]

    def why_gone(self, stream_id: int) -> Gone:
        """Return why a stream that is not open is gone."""
        if stream_id > self.highest_id or stream_id % 2 == 0:
            return Gone.IDLE
        if stream_id in self._reset_by_us:
            return Gone.RESET_BY_US
        return Gone.SKIPPED if stream_id in self._skipped else Gone.ENDED


class ConnectionState:
    def __init__(self, *, is_server: bool) -> None:
        self.is_server = is_server
        self.settings = SETTINGS_OF_SERVERS if is_server else SETTINGS_OF_CLIENTS
        self.stream_window = self.settings[INITIAL_WINDOW_SIZE]
        self.streams = StreamTable()
        self.open = self.streams.open
        self.output = Output()
        self.encoder = HeaderEncoder()
        self.peer = PeerSettings()
        self.send_window = RFC_WINDOW_BYTES
        self.receive_window = limits.H2_CONNECTION_WINDOW_BYTES
        self.last_request_id = 0
        """The highest stream that the client opened and the server took, on either side."""
        self.refused_above: int | None = None
        """The last stream id of our own GOAWAY; None before we sent one."""
        self.resets = resets_allowance()
        self.idle = idle_allowance()
        self._uncredited = 0

    # -- credit --------------------------------------------------------------------------------------------------

    def credit_stream(self, stream_id: int, count: int) -> None:
        stream = self.open.get(stream_id)
        if stream is None or not stream.receiving:
            return
        stream.uncredited += count
        if stream.uncredited >= stream.window // 2:
            self.output.put(frames.pack_window_update(stream_id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def size_window(self, stream_id: int, window: int) -> None:
        stream = self.open.get(stream_id)
        if stream is not None:
            change, stream.window = window - stream.window, window
            self.credit_stream(stream_id, change)

    def credit_connection(self, count: int) -> None:
        self._uncredited += count
        if self._uncredited >= limits.H2_CONNECTION_WINDOW_BYTES // 2:
            self.output.put(frames.pack_window_update(0, self._uncredited))
            self.receive_window += self._uncredited
            self._uncredited = 0

    # -- the peer's windows ----------------------------------------------------------------------------------------

    def open_window(self, increment: int) -> bool:
        """Open the connection's window further; return False where that is more than a window can be."""
        self.send_window += increment
        return self.send_window <= LENGTH_31_BITS

    def move_windows(self, change: int) -> bool:
        """Move every stream's window as its initial size has changed; return False where one is now more than a window
        can be."""
        for stream in self.open.values():
            stream.send_window += change
        return all(stream.send_window <= LENGTH_31_BITS for stream in self.open.values())

    # -- the end of a stream ---------------------------------------------------------------------------------------

    def reset(self, stream_id: int, error_code: ErrorCode) -> None:
        """Give the stream up in both directions, and send RST_STREAM."""
        self.open.pop(stream_id, None)
        self.streams.remember_reset(stream_id)
        self.output.put(frames.pack_reset(stream_id, error_code))
