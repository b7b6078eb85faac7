"""GOAWAY, read and written beside the HTTP/2 library.

jh2, as h2, closes its state machine on the first GOAWAY in either direction, which is the opposite of what a graceful
shutdown needs: the streams in flight must finish (RFC 9113 section 6.8). So these frames never reach it. The splitter
follows the frame headers of the byte stream, cuts GOAWAY frames out, and passes everything else through unchanged and
uncopied. It refuses overlong frames by their header, before a byte of them is buffered.

Invariant: the concatenation of what is passed through is the input less its GOAWAY frames, however it was chunked.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.core import limits
from headrace.http2.events import ErrorCode, RemoteProtocolError

_TYPE_GOAWAY = 7
_HEAD = struct.Struct("!HBBBL")
"""Length (16 + 8 bits), type, flags, reserved bit and stream id."""
_BODY = struct.Struct("!LL")
"""Reserved bit and last stream id, error code; debug data follows."""
_31_BITS = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class GoAway:
    last_stream_id: int
    error_code: int
    debug_data: bytes = b""

    def pack(self) -> bytes:
        length = _BODY.size + len(self.debug_data)
        head = _HEAD.pack(length >> 8, length & 0xFF, _TYPE_GOAWAY, 0, 0)
        return head + _BODY.pack(self.last_stream_id, self.error_code) + self.debug_data

    @classmethod
    def unpack(cls, body: bytes) -> "GoAway":
        last_stream_id, error_code = _BODY.unpack_from(body)
        return cls(last_stream_id & _31_BITS, error_code, body[_BODY.size :])


Piece: TypeAlias = memoryview | bytes | GoAway


@dataclass(slots=True)
class GoAwaySplitter:
    passing: int
    """Bytes that pass through before the next frame header; at the start, a server's peer sends its preface."""

    _head: bytearray = field(default_factory=bytearray)
    """A frame header that came in parts."""

    _goaway: bytearray | None = None
    """The body of a GOAWAY that is being read; None outside one."""

    _goaway_bytes: int = 0

    def split(self, data: memoryview) -> Iterator[Piece]:
        """Pieces of `data` to pass through, and the GOAWAYs between them. Raises `RemoteProtocolError`."""
        start = at = 0
        while at < len(data):
            if self._goaway is not None:
                start = at = at + self._collect(data[at:])
                yield from self._maybe_goaway()
            elif self.passing:
                step = min(self.passing, len(data) - at)
                self.passing -= step
                at += step
            elif not self._head and len(data) - at >= _HEAD.size:
                if self._begin_frame(data[at : at + _HEAD.size]):
                    at += _HEAD.size
                else:
                    yield data[start:at]
                    start = at = at + _HEAD.size
            else:
                yield data[start:at]
                start = at = at + self._complete_head(data[at:])
                yield from self._maybe_frame()
        yield data[start:at]

    def _complete_head(self, data: memoryview) -> int:
        part = data[: _HEAD.size - len(self._head)]
        self._head += part
        return len(part)

    def _maybe_frame(self) -> Iterator[bytes]:
        if len(self._head) < _HEAD.size:
            return
        head = bytes(self._head)
        self._head.clear()
        if self._begin_frame(memoryview(head)):
            yield head

    def _begin_frame(self, head: memoryview) -> bool:
        """False where the frame is a GOAWAY, whose body is collected instead of passed."""
        high, low, kind, _flags, stream_id = _HEAD.unpack(head)
        length = (high << 8) | low
        if kind != _TYPE_GOAWAY:
            _check_length(length, limits.H2_MAX_FRAME_BYTES)
            self.passing = length
            return True
        _check_length(length, limits.H2_GOAWAY_BYTES_MAX)
        if stream_id & _31_BITS or length < _BODY.size:
            raise RemoteProtocolError("the peer sent a GOAWAY frame on a stream or without its two fields")
        self._goaway, self._goaway_bytes = bytearray(), length
        return False

    def _collect(self, data: memoryview) -> int:
        assert self._goaway is not None, "only called inside a GOAWAY"
        part = data[: self._goaway_bytes - len(self._goaway)]
        self._goaway += part
        return len(part)

    def _maybe_goaway(self) -> Iterator[GoAway]:
        if self._goaway is not None and len(self._goaway) == self._goaway_bytes:
            body, self._goaway = bytes(self._goaway), None
            yield GoAway.unpack(body)


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        message = f"the peer sent a frame of {length} bytes; frames of this type have at most {limit}"
        raise RemoteProtocolError(message, error_code=ErrorCode.FRAME_SIZE_ERROR)
