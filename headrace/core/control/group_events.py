"""How often people hear of the same kind of thing about one object: a group that rebalances all the time is no news.

No I/O; one per operator process. Invariant: of one reason (and `about`) about one object, at most one notice in an
interval.
"""

from collections.abc import Iterable

from headrace.core.control.actions import Notice
from headrace.core.limits import GROUP_EVENT_INTERVAL_MS


class Restraint:
    def __init__(self, interval_ms: int = GROUP_EVENT_INTERVAL_MS) -> None:
        self._interval_ms = interval_ms
        self._until_ms: dict[tuple[str, str, str], int] = {}
        """By the uid of the object, the reason and `about`; those of the last interval, oldest first."""

    def heard(self, uid: str, notices: Iterable[Notice], now_ms: int) -> list[Notice]:
        """Those to be recorded."""
        self._forget(now_ms)
        told = []
        for notice in notices:
            kind = (uid, notice.reason, notice.about)
            if kind not in self._until_ms:
                self._until_ms[kind] = now_ms + self._interval_ms
                told.append(notice)
        return told

    def _forget(self, now_ms: int) -> None:
        while self._until_ms:
            oldest = next(iter(self._until_ms))
            if self._until_ms[oldest] > now_ms:
                return
            del self._until_ms[oldest]
