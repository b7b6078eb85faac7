"""The rules of a session's channels: how they are numbered, and in which order what is produced on one is answered.

    going ── refused, or the answer to one is an error ──> failing ── all before it are answered ──> over
      └── closed ──> closing ── all are answered ──> over

Invariants of a `Ledger`: answers come in the order of the produces, each once; after the first failure nothing is taken
and nothing more is said than what was produced before it, then `Failed`; the last word is `Failed` or `Closed`. A
ledger belongs to one produce channel of one session, on the broker's side.
"""

from collections import deque
from collections.abc import Sequence

from headrace.core.errors import BrokenSessionError, HeadraceError, ThrottledError
from headrace.core.limits import SESSION_CHANNELS_MAX, SESSION_PRODUCES_PENDING_MAX
from headrace.core.session.messages import NO_SEQUENCE, Closed, Failed, Produced
from headrace.core.slotted import dataclass


class Numbering:
    """Which channel a number means: one that was opened, or one that is over."""

    def __init__(self, channels_max: int = SESSION_CHANNELS_MAX) -> None:
        self._channels_max = channels_max
        self.highest = 0

    def take(self, channel: int, open_channels: int) -> None:
        """A client opens `channel`. Raises BrokenSessionError, and ThrottledError where only the channel is refused."""
        if channel <= self.highest:
            raise BrokenSessionError(
                f"channel {channel} is opened after channel {self.highest}: each needs a higher number than the last"
            )
        self.highest = channel
        if open_channels >= self._channels_max:
            raise ThrottledError(
                f"this session has {self._channels_max} channels open, as many as it may; close some, or open another"
                " session"
            )

    def check_was_opened(self, channel: int) -> None:
        """Raises BrokenSessionError. What is said of a channel that is over is skipped."""
        if channel > self.highest:
            raise BrokenSessionError(f"channel {channel} was never opened: open it first")


@dataclass(slots=True, eq=False)
class Group:
    """Produces that were appended in one go, and are answered together."""

    answers: Sequence[Produced]
    is_done: bool = False
    error: HeadraceError | None = None


class Ledger:
    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.pending = 0
        """Produces that are not answered yet."""
        self._groups: deque[Group] = deque()
        self._last_word: Failed | Closed | None = None
        """Said when everything before it is answered."""
        self.is_over = False

    @property
    def takes_more(self) -> bool:
        return self._last_word is None and not self.is_over

    def check_room(self, collected: int) -> None:
        """For one more produce beside those that are `collected` to be appended. Raises ThrottledError."""
        if self.pending + collected >= SESSION_PRODUCES_PENDING_MAX:
            raise ThrottledError(
                f"{SESSION_PRODUCES_PENDING_MAX} produces of channel {self.channel} are not answered yet, as many as"
                " may be; wait for answers before you send more"
            )

    def appended(self, group: Group) -> None:
        """These are written; they may be done already."""
        assert self.takes_more, "after a failure nothing is appended"
        self.pending += len(group.answers)
        self._groups.append(group)

    def refuse(self, error: HeadraceError, sequence: int = NO_SEQUENCE) -> None:
        """The channel fails, with the produce of that number or for a reason of its own."""
        if self.takes_more:
            self._last_word = Failed(self.channel, error, sequence)

    def close(self) -> None:
        if self.takes_more:
            self._last_word = Closed(self.channel)

    def take(self) -> list[Produced | Failed | Closed]:
        """What is to be said now, in this order."""
        said: list[Produced | Failed | Closed] = []
        while self._groups and self._groups[0].is_done:
            group = self._groups.popleft()
            if group.error is not None:
                return [*said, self._end(Failed(self.channel, group.error, group.answers[0].sequence))]
            said += group.answers
            self.pending -= len(group.answers)
        if self._last_word is not None and not self._groups:
            said.append(self._end(self._last_word))
        return said

    def _end(self, last_word: Failed | Closed) -> Failed | Closed:
        self.is_over, self._last_word, self.pending = True, None, 0
        self._groups.clear()
        return last_word
