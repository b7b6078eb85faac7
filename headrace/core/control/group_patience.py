"""Which groups the operator does not write for a while: their last writes have failed. No I/O; one per process.

What fails for one group alone (its status is too large for the API server, a webhook is away for its namespace) must
hold up nobody else: each has pauses of its own, which double with every failure in a row up to PAUSE_MS_MAX and end
with a write that lands. A conflict is no failure by itself: the group is read again, and the next one counts.
"""

from collections.abc import Collection
from typing import Final

from headrace.core.limits import RECONCILE_INTERVAL_MS_MIN, RECONCILE_RESYNC_MS
from headrace.core.slotted import dataclass

PAUSE_MS_MAX: Final = RECONCILE_RESYNC_MS
_DOUBLINGS_MAX: Final = (PAUSE_MS_MAX // RECONCILE_INTERVAL_MS_MIN).bit_length()


@dataclass(slots=True)
class _Failing:
    failures: int = 0
    until_ms: int = 0
    is_stuck: bool = False
    """Whether it was more than a conflict."""


class GroupPatience:
    def __init__(self) -> None:
        self._failing: dict[str, _Failing] = {}
        """By the uid of the group."""

    def held(self, uids: Collection[str], now_ms: int) -> frozenset[str]:
        """Whom to leave alone now. `uids` are all groups that there are: others are forgotten, and old failures too."""
        self._failing = {
            uid: failing
            for uid, failing in self._failing.items()
            if uid in uids and failing.until_ms + PAUSE_MS_MAX > now_ms
        }
        return frozenset(uid for uid, failing in self._failing.items() if failing.until_ms > now_ms)

    def landed(self, uid: str) -> None:
        self._failing.pop(uid, None)

    def overtaken(self, uid: str, now_ms: int) -> None:
        """Somebody else has written it meanwhile."""
        failing = self._failing.setdefault(uid, _Failing())
        failing.until_ms = now_ms + _pause_ms(failing.failures)
        failing.failures += 1

    def failed(self, uid: str, now_ms: int) -> None:
        """The API server could not do it."""
        failing = self._failing.setdefault(uid, _Failing())
        failing.failures += 1
        failing.until_ms = now_ms + _pause_ms(failing.failures)
        failing.is_stuck = True

    def refused(self, uid: str, now_ms: int) -> None:
        """It will not do it, unless somebody changes something."""
        self._failing[uid] = _Failing(_DOUBLINGS_MAX, now_ms + PAUSE_MS_MAX, is_stuck=True)

    def next_ms(self, now_ms: int) -> int | None:
        """When the next pause ends."""
        return min((each.until_ms for each in self._failing.values() if each.until_ms > now_ms), default=None)

    @property
    def stuck(self) -> int:
        """Groups that cannot be written."""
        return sum(failing.is_stuck for failing in self._failing.values())


def _pause_ms(failures: int) -> int:
    doubled = (1 << min(failures, _DOUBLINGS_MAX)) - 1
    return min(doubled * RECONCILE_INTERVAL_MS_MIN, PAUSE_MS_MAX)
