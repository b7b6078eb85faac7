"""The clients' clock, in milliseconds, and a watchdog that adds up by it how long nothing has moved.

Pure modules take `now_ms` as a parameter; shells read it here. `Watchdog` counts only time in which the watcher was
awake: a process that was stopped (Ctrl-Z, a suspended machine) and goes on is no stalled client. Each producer and
each consumer owns one watchdog, and looks at it every `CLIENT_STALL_CHECK_MS` while it waits.
"""

import time
from dataclasses import dataclass

from headrace.core.limits import CLIENT_STALL_CHECK_MS


def now_ms() -> int:
    """Return the milliseconds of a clock that never goes back: for waits and time limits."""
    return time.monotonic_ns() // 1_000_000


def epoch_ms() -> int:
    """Return the milliseconds since 1970 UTC: for the times of records."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Watchdog:
    patience_ms: int
    still_ms: int = 0
    _looked_ms: int = 0

    def moved(self) -> None:
        self.still_ms = 0

    def was_away(self, now_ms: int) -> bool:
        """Return whether the watcher slept since the last look: answers may have come that it had no time to take."""
        return now_ms - self._looked_ms > 2 * CLIENT_STALL_CHECK_MS

    def is_stalled(self, now_ms: int, *, should_move: bool) -> bool:
        step_ms = min(now_ms - self._looked_ms, 2 * CLIENT_STALL_CHECK_MS)
        self._looked_ms = now_ms
        self.still_ms = self.still_ms + step_ms if should_move else 0
        return self.still_ms > self.patience_ms

    @property
    def still_s(self) -> str:
        """The time without a move in seconds, as error messages show it."""
        return f"{self.still_ms / 1000:.0f} s"
