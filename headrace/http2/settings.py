"""SETTINGS (RFC 9113 section 6.5): what we ask of every peer, and what a peer asks of us, checked. Pure."""

from collections.abc import Iterable
from typing import Final

from headrace.core import limits
from headrace.core.slotted import dataclass
from headrace.http2.events import ErrorCode
from headrace.http2.frames import LENGTH_31_BITS, connection_error

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

RFC_WINDOW_BYTES: Final = 65_535
"""Every window until its receiver says otherwise."""
_RFC_FRAME_BYTES: Final = 16_384
_RFC_FRAME_BYTES_MAX: Final = (1 << 24) - 1
_UNLIMITED: Final = (1 << 32) - 1

OF_CLIENTS: Final = {
    ENABLE_PUSH: 0,
    HEADER_TABLE_SIZE: limits.H2_HEADER_TABLE_BYTES,
    MAX_CONCURRENT_STREAMS: limits.H2_MAX_CONCURRENT_STREAMS,
    INITIAL_WINDOW_SIZE: limits.H2_STREAM_WINDOW_BYTES,
    MAX_FRAME_SIZE: limits.H2_MAX_FRAME_BYTES,
    MAX_HEADER_LIST_SIZE: limits.H2_HEADER_LIST_BYTES_MAX,
}
OF_SERVERS: Final = {
    **{key: value for key, value in OF_CLIENTS.items() if key != ENABLE_PUSH},
    INITIAL_WINDOW_SIZE: limits.H2_REQUEST_WINDOW_BYTES,
}


@dataclass(slots=True)
class PeerSettings:
    """What the peer takes; until it speaks, what RFC 9113 section 6.5.2 says, and of streams what it recommends."""

    header_table_size: int = limits.H2_HEADER_TABLE_BYTES
    max_concurrent_streams: int = limits.H2_STREAMS_BEFORE_SETTINGS
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
                _check(key, value, range(LENGTH_31_BITS + 1), ErrorCode.FLOW_CONTROL_ERROR)
                self.initial_window_size = value
            elif key == MAX_FRAME_SIZE:
                _check(key, value, range(_RFC_FRAME_BYTES, _RFC_FRAME_BYTES_MAX + 1))
                self.max_frame_size = value
            elif key == ENABLE_PUSH:
                _check(key, value, range(1 if from_server else 2))


def _check(key: int, value: int, allowed: range, error_code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> None:
    if value not in allowed:
        what = f"setting {key} with {value}; it may be {allowed[0]} to {allowed[-1]}"
        raise connection_error(what, error_code)
