"""Has a client stalled? Adds up the time in which nothing moved although something should. Pure.

Only time that the watcher was awake for counts: a process that was stopped (Ctrl-Z, a suspended machine) and goes on is
no stalled client. Owned by one producer or consumer; whoever waits there looks every `CLIENT_STALL_CHECK_MS`.
"""

from headrace.core.limits import CLIENT_STALL_CHECK_MS
from headrace.core.slotted import dataclass


@dataclass(slots=True)
class Watchdog:
    patience_ms: int
    still_ms: int = 0
    _looked_ms: int = 0

    def moved(self) -> None:
        self.still_ms = 0

    def was_away(self, now_ms: int) -> bool:
        """Since the last look: then answers may lie there that nobody has had the time to take."""
        return now_ms - self._looked_ms > 2 * CLIENT_STALL_CHECK_MS

    def is_stalled(self, now_ms: int, *, should_move: bool) -> bool:
        step_ms = min(now_ms - self._looked_ms, 2 * CLIENT_STALL_CHECK_MS)
        self._looked_ms = now_ms
        self.still_ms = self.still_ms + step_ms if should_move else 0
        return self.still_ms > self.patience_ms

    @property
    def still_s(self) -> str:
        """For the sentence that says so."""
        return f"{self.still_ms / 1000:.0f} s"
