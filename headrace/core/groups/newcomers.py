"""How fast one client may bring groups into being, each of which is an object of the cluster's API.

    a group that is there, or has a ConsumerGroup ──> no matter
    a new one ──> GROUPS_NEW_BURST at once, then one every GROUPS_NEW_INTERVAL_MS; above that it is refused for now

A generic cell rate algorithm: one time for each client, which is when all that it has taken is earned again. Pure: time
comes in as `now_ms`. One per broker, where groups are coordinated; a client is the holder of a share (`core.holders`),
and None, a broker that asks for itself, is never refused.
"""

from headrace.core.errors import ThrottledError
from headrace.core.limits import GROUPS_NEW_BURST, GROUPS_NEW_CLIENTS_MAX, GROUPS_NEW_INTERVAL_MS


class Newcomers:
    def __init__(self, burst: int = GROUPS_NEW_BURST, interval_ms: int = GROUPS_NEW_INTERVAL_MS) -> None:
        self._burst = burst
        self._interval_ms = interval_ms
        self._earned_ms: dict[str, int] = {}

    def __len__(self) -> int:
        """Of clients of whom anything is remembered."""
        return len(self._earned_ms)

    def take(self, holder: str | None, now_ms: int) -> None:
        """One more new group of this client's. Raises ThrottledError."""
        if holder is None:
            return
        earned_ms = max(now_ms, self._earned_ms.get(holder, now_ms)) + self._interval_ms
        early_ms = earned_ms - now_ms - self._burst * self._interval_ms
        if early_ms > 0:
            raise ThrottledError(
                f"{holder} has made {self._burst} new groups in a row; the next is taken in {early_ms / 1000:.1f} s:"
                " use groups that there are, or create ConsumerGroups",
                retryAfterMs=early_ms,
            )
        if holder not in self._earned_ms and len(self._earned_ms) >= GROUPS_NEW_CLIENTS_MAX:
            self._make_room(now_ms)
        self._earned_ms[holder] = earned_ms

    def _make_room(self, now_ms: int) -> None:
        """Forget all who have earned what they took, or whoever is nearest to it."""
        self._earned_ms = {holder: at_ms for holder, at_ms in self._earned_ms.items() if at_ms > now_ms}
        if len(self._earned_ms) >= GROUPS_NEW_CLIENTS_MAX:
            del self._earned_ms[min(self._earned_ms, key=self._earned_ms.__getitem__)]
