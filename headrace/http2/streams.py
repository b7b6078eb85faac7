"""What an engine knows of its streams: those that are open, and enough of those that are gone to judge late frames.

RFC 9113 section 5.1 asks for different answers to a frame on a stream that never was, on one that ended, and on one
that we reset while the frame was on its way. A stream that is open has a `Stream`; of the others `Streams` keeps the
highest id, the latest ids that were skipped, and the latest that we reset. Owned by one `Engine`, for its lifetime.
"""

from enum import Enum

from headrace.core import limits
from headrace.core.slotted import dataclass


class Gone(Enum):
    """Why a stream that is not open is not."""

    IDLE = "never opened"
    SKIPPED = "skipped: opening a later one closed it"
    RESET_BY_US = "reset by us: the peer may not know yet"
    ENDED = "ended or reset by the peer: it knows"


@dataclass(slots=True)
class Stream:
    send_window: int
    receive_window: int
    """What is left of `window` to the peer."""
    window: int
    sending: bool = True
    receiving: bool = True
    uncredited: int = 0
    """Bytes that were taken and whose credit has not been sent yet; below 0 where the window became smaller."""
    unread: int | None = None
    """What the announced content-length still lacks; None where none was announced."""
    has_head: bool = False
    """The request, or the final response, has come."""
    is_head_request: bool = False


class Streams:
    def __init__(self) -> None:
        self.open: dict[int, Stream] = {}
        self.highest_id = 0
        """Of those that were opened, by whichever side is the client."""
        self._skipped = range(0)
        self._reset_by_us: dict[int, None] = {}

    def number(self, stream_id: int) -> None:
        """The client has used this id, and with it all that are lower, whatever becomes of the stream."""
        if stream_id > self.highest_id + 2:
            self._skipped = range(self.highest_id + 1, stream_id)
        self.highest_id = stream_id

    def remember_reset(self, stream_id: int) -> None:
        self._reset_by_us[stream_id] = None
        if len(self._reset_by_us) > limits.H2_RESETS_REMEMBERED_MAX:
            del self._reset_by_us[next(iter(self._reset_by_us))]

    def why_gone(self, stream_id: int) -> Gone:
        """Of a stream that is not open."""
        if stream_id > self.highest_id or stream_id % 2 == 0:
            return Gone.IDLE
        if stream_id in self._reset_by_us:
            return Gone.RESET_BY_US
        return Gone.SKIPPED if stream_id in self._skipped else Gone.ENDED
