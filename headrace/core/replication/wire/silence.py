"""Whether the other side of a stream is still there: by the listener's own clock, asked every REPLICATION_TICK_MS.

A listener that was not running itself, stopped or starved, cannot tell: what was said meanwhile may lie unread before
it. A gap between two questions therefore counts as if something had been heard at its end.
"""

from headrace.core.limits import REPLICATION_ALIVE_MS, REPLICATION_SILENCE_MS_MAX, REPLICATION_TICK_MS

_GAP_MS = 2 * REPLICATION_TICK_MS


class Silence:
    def __init__(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self._asked_ms = now_ms

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms

    def lasts_too_long(self, now_ms: int) -> bool:
        gap_ms, self._asked_ms = now_ms - self._asked_ms, now_ms
        if gap_ms > _GAP_MS:
            self._heard_ms = now_ms
        return now_ms - self._heard_ms > REPLICATION_SILENCE_MS_MAX


class Pulse:
    """What is done once in an interval: by default, to say oneself that one is alive."""

    def __init__(self, now_ms: int, interval_ms: int = REPLICATION_ALIVE_MS) -> None:
        self._interval_ms = interval_ms
        self._due_ms = now_ms + interval_ms

    def is_due(self, now_ms: int) -> bool:
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._interval_ms
        return True
