"""How fast one client may bring groups into being, each of which is an object of the cluster's API.

    a group that is there, or has a ConsumerGroup ──> no matter
    a new one ──> GROUPS_NEW_BURST at once, then one every GROUPS_NEW_INTERVAL_MS; above that it is refused for now

Pure: time comes in as `now_ms`. One per broker, where groups are coordinated; a client is the holder of a share
(`core.holders`), and None, a broker that asks for itself, is never refused.
"""

from headrace.core.errors import ThrottledError
from headrace.core.holders import HolderRate
from headrace.core.limits import GROUPS_NEW_BURST, GROUPS_NEW_CLIENTS_MAX, GROUPS_NEW_INTERVAL_MS


class Newcomers:
    def __init__(self, burst: int = GROUPS_NEW_BURST, interval_ms: int = GROUPS_NEW_INTERVAL_MS) -> None:
        self._burst = burst
        self._rate = HolderRate(burst, interval_ms, GROUPS_NEW_CLIENTS_MAX)

    def __len__(self) -> int:
        """Of clients of whom anything is remembered."""
        return len(self._rate)

    def take(self, holder: str | None, now_ms: int) -> None:
        """One more new group of this client's. Raises ThrottledError."""
        wait_ms = self._rate.wait_ms(holder, now_ms)
        if wait_ms > 0:
            raise ThrottledError(
                f"{holder} has made {self._burst} new groups in a row; the next is taken in {wait_ms / 1000:.1f} s:"
                " use groups that there are, or create ConsumerGroups",
                retryAfterMs=round(wait_ms),
            )
        self._rate.take(holder, now_ms)
