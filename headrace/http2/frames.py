"""HTTP/2 frames as bytes (RFC 9113 sections 4 and 6): cut out of received bytes, packed, and gathered for writing.

`Http2FrameReader` belongs to one connection and lives as long. DATA is passed on as it arrives, in as many pieces as it
comes, because HTTP/2 gives no meaning to where a DATA frame ends; frames of unknown types likewise, so that they can
be skipped unseen. Every other frame is kept until it is whole, so each type has a length that it may have at most: a
frame that is too long is refused by its head. Invariants: payloads of DATA are views into what the caller gave, good
until it gives more; the pieces of one DATA frame together have its length, and only the last one has its flags.

`Output` is what one connection has to write: small payloads are joined, which saves system calls; large ones stay as
they are, which saves the copy. Payloads are kept by reference and must not change before they are written.
"""

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from headrace.core import limits
from headrace.http2.events import ErrorCode, RemoteProtocolError

H2_JOINED_BYTES_MAX = 64 << 10
"""Payloads shorter than this are copied to what goes before and after them: one buffer less to write."""
H2_GOAWAY_BYTES_MAX = 16 << 10
"""The longest GOAWAY that is read, its debug data included."""
H2_SETTINGS_MAX = 64
"""The number of settings in one SETTINGS frame."""


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The bytes that a client sends first (RFC 9113 section 3.4)."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

LENGTH_31_BITS: Final = 0x7FFF_FFFF
"""The mask of stream ids and windows; the first bit of their fields is reserved."""
PRIORITY_BYTES: Final = 5

_HEAD: Final = struct.Struct("!LBL")
"""The head of a frame: length (24 bits) and type in one number, flags, reserved bit and stream id."""
_U32: Final = struct.Struct("!L")
_U32_PAIR: Final = struct.Struct("!LL")
_SETTING: Final = struct.Struct("!HL")

_EXACT_BYTES: Final = {PRIORITY: PRIORITY_BYTES, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_PADDING_BYTES: Final = 1 + 255
_BYTES_MAX: Final = {
    DATA: limits.H2_MAX_FRAME_BYTES,
    HEADERS: limits.H2_HEADER_BLOCK_BYTES_MAX + PRIORITY_BYTES + _PADDING_BYTES,
    CONTINUATION: limits.H2_HEADER_BLOCK_BYTES_MAX,
    SETTINGS: H2_SETTINGS_MAX * _SETTING.size,
    PUSH_PROMISE: H2_GOAWAY_BYTES_MAX,
    GOAWAY: H2_GOAWAY_BYTES_MAX,
}
"""The longest frame by type, of those types that have no length of their own. A client of ours is promised no push."""

_DATA_WORD_MAX: Final = limits.H2_MAX_FRAME_BYTES << 8 | DATA
"""The first four bytes of the longest DATA frame."""

Frame: TypeAlias = tuple[int, int, int, memoryview | bytes]
"""A frame: type, flags, stream id, payload."""
Buffer: TypeAlias = bytes | bytearray | memoryview


def pack_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def pack_head(kind: int, flags: int, stream_id: int, length: int) -> bytes:
    """The nine bytes before a payload that goes out by itself."""
    return _HEAD.pack(length << 8 | kind, flags, stream_id)


def pack_settings(settings: dict[int, int]) -> bytes:
    return pack_frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in settings.items()))


def unpack_settings(payload: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield keys and values, in order. Raises `RemoteProtocolError`."""
    if len(payload) % _SETTING.size:
        raise connection_error("a SETTINGS frame that ends within a setting", ErrorCode.FRAME_SIZE_ERROR)
    pairs: Iterator[tuple[int, int]] = _SETTING.iter_unpack(payload)
    return pairs


def pack_window_update(stream_id: int, increment: int) -> bytes:
    return pack_frame(WINDOW_UPDATE, 0, stream_id, _U32.pack(increment))


def pack_reset(stream_id: int, error_code: int) -> bytes:
    return pack_frame(RST_STREAM, 0, stream_id, _U32.pack(error_code))


def pack_goaway(last_stream_id: int, error_code: int, debug_data: bytes = b"") -> bytes:
    return pack_frame(GOAWAY, 0, 0, _U32_PAIR.pack(last_stream_id, error_code) + debug_data)


def unpack_u32(payload: bytes | bytearray | memoryview) -> int:
    """Return the first four bytes as a number: an error code, or an increment or a stream id with its reserved bit."""
    value: int = _U32.unpack_from(payload)[0]
    return value


def unpack_goaway(payload: bytes | memoryview) -> tuple[int, int, bytes]:
    """Return the last stream id, the error code and the debug data."""
    if len(payload) < _U32_PAIR.size:
        raise connection_error("a GOAWAY frame without its two fields", ErrorCode.FRAME_SIZE_ERROR)
    last_stream_id, error_code = _U32_PAIR.unpack_from(payload)
    return last_stream_id & LENGTH_31_BITS, error_code, bytes(payload[_U32_PAIR.size :])


def unpad(payload: bytes | memoryview) -> bytes | memoryview:
    """Return what is between the padding's length and the padding. Raises `RemoteProtocolError` where they do not
    fit."""
    if not len(payload):
        raise connection_error("a padded frame without the length of its padding", ErrorCode.FRAME_SIZE_ERROR)
    end = len(payload) - payload[0]
    if end < 1:
        raise connection_error("a frame whose padding is longer than itself", ErrorCode.PROTOCOL_ERROR)
    return payload[1:end]


def connection_error(what: str, error_code: ErrorCode) -> RemoteProtocolError:
    """Return the error for a peer that sent `what`, which ends the connection (RFC 9113 section 5.4.1)."""
    return RemoteProtocolError(f"the peer sent {what}", error_code=int(error_code))


class Http2FrameReader:
    def __init__(self, preface: bytes) -> None:
        """`preface` comes before the first frame: a server's peer sends `PREFACE`, a client's nothing."""
        self._preface = preface
        self._partial = bytearray()
        """The beginning of a frame that is passed on whole."""
        self._left = 0
        """The bytes that the DATA or unknown frame lacks that is being passed on; these are its head:"""
        self._kind = self._flags = self._stream_id = 0

    def frames(self, data: memoryview) -> Iterator[Frame]:
        """Yield the frames in `data` and in what was kept of earlier chunks. Raises `RemoteProtocolError`."""
        at, end = (self._take_preface(data) if self._preface else 0), len(data)
        while at < end:
            if self._left:
                size = min(self._left, end - at)
                self._left -= size
                yield self._kind, 0 if self._left else self._flags, self._stream_id, data[at : at + size]
                at += size
            elif self._partial or end - at < _HEAD.size:
                at += self._fill_partial(data[at:])
                yield from self._maybe_whole()
            else:
                word, flags, stream_id = _HEAD.unpack_from(data, at)
                kind, at, after = word & 0xFF, at + _HEAD.size, at + _HEAD.size + (word >> 8)
                if kind or word > _DATA_WORD_MAX:
                    _check_length(kind, word >> 8)
                if after <= end:
                    yield kind, flags, stream_id & LENGTH_31_BITS, data[at:after]
                    at = after
                elif _passes_in_pieces(kind, flags):
                    self._begin_pieces(kind, flags, stream_id, after - at)
                else:
                    at -= _HEAD.size
                    self._partial += data[at:]
                    return

    def _take_preface(self, data: memoryview) -> int:
        part = bytes(data[: len(self._preface)])
        if not self._preface.startswith(part):
            raise connection_error("something else than the HTTP/2 preface first", ErrorCode.PROTOCOL_ERROR)
        self._preface = self._preface[len(part) :]
        return len(part)

    def _begin_pieces(self, kind: int, flags: int, stream_id: int, length: int) -> None:
        self._kind, self._flags, self._stream_id, self._left = kind, flags, stream_id & LENGTH_31_BITS, length

    def _fill_partial(self, data: memoryview) -> int:
        """Take what the head, or the frame whose head is there, still lacks, and return how many bytes that were."""
        size = _HEAD.size
        if len(self._partial) >= size:
            size += unpack_u32(self._partial) >> 8
        part = data[: size - len(self._partial)]
        self._partial += part
        return len(part)

    def _maybe_whole(self) -> Iterator[Frame]:
        if len(self._partial) < _HEAD.size:
            return
        word, flags, stream_id = _HEAD.unpack_from(self._partial)
        kind, length = word & 0xFF, word >> 8
        if len(self._partial) == _HEAD.size:
            _check_length(kind, length)
            if length and _passes_in_pieces(kind, flags):
                self._begin_pieces(kind, flags, stream_id, length)
                self._partial.clear()
                return
        if len(self._partial) == _HEAD.size + length:
            payload = bytes(self._partial[_HEAD.size :])
            self._partial.clear()
            yield kind, flags, stream_id & LENGTH_31_BITS, payload


def _passes_in_pieces(kind: int, flags: int) -> bool:
    return (kind == DATA and not flags & PADDED) or kind > CONTINUATION


def _check_length(kind: int, length: int) -> None:
    exact = _EXACT_BYTES.get(kind)
    if length > limits.H2_MAX_FRAME_BYTES or (exact is not None and length != exact):
        what = f"a frame of type {kind} with {length} bytes; it may have {exact or limits.H2_MAX_FRAME_BYTES}"
        raise connection_error(what, ErrorCode.FRAME_SIZE_ERROR)
    if length > _BYTES_MAX.get(kind, limits.H2_MAX_FRAME_BYTES):
        what = f"a frame of type {kind} with {length} bytes; at most {_BYTES_MAX[kind]} are taken"
        raise connection_error(what, ErrorCode.ENHANCE_YOUR_CALM)


class Output:
    def __init__(self) -> None:
        self._small: list[Buffer] = []
        """Small buffers that become one, once something large or the end follows."""
        self._buffers: list[Buffer] = []

    def put(self, frame: bytes) -> None:
        self._small.append(frame)

    def put_payload(self, buffers: tuple[Buffer, ...]) -> None:
        """Add the payload of the frame whose head was put just before."""
        for buffer in buffers:
            if len(buffer) < H2_JOINED_BYTES_MAX:
                self._small.append(buffer)
            else:
                self._join_small()
                self._buffers.append(buffer)

    def take(self) -> list[Buffer]:
        """Take all of it, in order; none of the buffers is empty."""
        self._join_small()
        buffers, self._buffers = self._buffers, []
        return buffers

    def _join_small(self) -> None:
        if joined := b"".join(self._small):
            self._buffers.append(joined)
        self._small.clear()
