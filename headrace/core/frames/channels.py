"""The open channels of one stream, on the side that opens them and on the other. No I/O.

    open ── either side says so ──> over

Numbers only rise, so that a number alone tells a channel that is over from one that was never opened. What still
arrives for a channel that is over is skipped; a channel that was never opened breaks the protocol. Owned by one end
of a session or of a replication stream, for the stream's lifetime.
"""

from typing import TypeVar

from headrace.core.errors import BrokenSessionError, ThrottledError
from headrace.core.frames.frame import STREAM

C = TypeVar("C")


class OpenChannels(dict[int, C]):
    """The channels by number. A number is given or taken first, then its channel is put in."""

    highest: int = STREAM

    def give_number(self) -> int:
        """Number a channel that this side opens."""
        self.highest += 1
        return self.highest

    def take_number(self, number: int, channels_max: int) -> None:
        """Take the number of a channel that the other side opens.

        Raises BrokenSessionError, and ThrottledError where only the channel is refused.
        """
        if number <= self.highest:
            raise BrokenSessionError(
                f"channel {number} is opened after channel {self.highest}: each needs a higher number than the last"
            )
        self.highest = number
        if len(self) >= channels_max:
            raise ThrottledError(
                f"this session has {channels_max} channels open, as many as it may; close some, or open another session"
            )

    def find(self, number: int) -> C | None:
        """Return a channel; None where it is over. Raises BrokenSessionError where it was never opened."""
        if not STREAM < number <= self.highest:
            raise BrokenSessionError(f"channel {number} was never opened: open it first")
        return self.get(number)
