"""The events that the engine reports, and the two ways in which it fails.

Events are immutable and carry no reference to the HTTP/2 library, so that the engine stays replaceable. Header fields
are pairs of bytes, names in lower case, pseudo headers first (RFC 9113 section 8.3). `RemoteProtocolError` is the
peer's fault and ends the connection: the GOAWAY that says so is already in `data_to_send`. `LocalProtocolError` is
ours: nothing was sent and the connection is as it was.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from headrace.core.errors import HeadraceError, LocalError

Fields: TypeAlias = list[tuple[bytes, bytes]]

EVERY_STREAM = 0
"""The stream id of a `WindowOpened` that is the connection's, or says that more streams may be opened."""


class ErrorCode(IntEnum):
    """RFC 9113 section 7: the codes that we send or tell apart."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class RemoteProtocolError(HeadraceError):
    """The peer broke HTTP/2, and the connection is over."""

    code = "Http2ProtocolError"
    status = 502
    retriable = True


class LocalProtocolError(LocalError):
    """Our own side asked for something that HTTP/2 does not allow; nothing was sent."""

    code = "Http2LocalError"


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A client opened a stream; `ended` means that no body follows."""

    stream_id: int
    fields: Fields
    ended: bool


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The server's final response head (1xx ones are swallowed); `ended` means that no body follows."""

    stream_id: int
    fields: Fields
    ended: bool


@dataclass(frozen=True, slots=True)
class DataReceived:
    """Body bytes, never empty. Their credit goes back by `Engine.credit_stream` and `Engine.credit_connection`."""

    stream_id: int
    data: bytes | memoryview
    """The bytes, perhaps a view of what the engine was given: a consumer that keeps them copies them."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The peer has said all that it will say on this stream. Trailers, where there were any, are dropped."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The stream is over, by the peer's RST_STREAM or because of the peer's mistake; nothing more can be sent on it."""

    stream_id: int
    error_code: int


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """More body may be sent on this stream, or on those that only waited for the connection (`EVERY_STREAM`)."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class GoAwayReceived:
    """The peer takes no new streams; those of ours above `last_stream_id` were not and will not be processed."""

    last_stream_id: int
    error_code: int
    reason: str


Event: TypeAlias = (
    RequestReceived | ResponseReceived | DataReceived | StreamEnded | StreamReset | WindowOpened | GoAwayReceived
)
