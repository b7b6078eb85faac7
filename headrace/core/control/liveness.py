"""Who is alive, as far as one reader can tell: by the reader's own monotonic clock, never by a Lease's timestamps.

A broker is live for LEASE_DURATION_MS after the reader last saw its Lease change. A Lease that the reader has only ever
seen in one state may have been left behind long ago: its broker is live for now, but not *proven*, and is given nothing
new. A Lease that appears while the reader looks is proven at once. This is a failure detector and no more: safety comes
from epochs (design section 6).

Where somebody knows better (its Pod has ended), a broker is lost at once, until its Lease changes: `died`.

After any gap in its own contact with the API server the reader calls `restart`: what it did not hear, it could not
hear. One object per process, used by operator and brokers; all times are the same monotonic milliseconds.
"""

from collections.abc import Iterable

from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.resources.lease import BrokerLease
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId, Incarnation


@dataclass(slots=True)
class _Sign:
    incarnation: Incarnation
    renew_time: str
    seen_ms: int
    proven: bool
    taken_ms: int
    """When its incarnation was first seen."""
    dead: bool = False

    def is_of(self, lease: BrokerLease) -> bool:
        return self.incarnation == lease.incarnation and self.renew_time == lease.renew_time


class Liveness:
    def __init__(self, duration_ms: int = LEASE_DURATION_MS) -> None:
        self._duration_ms = duration_ms
        self._signs: dict[BrokerId, _Sign] = {}
        self._looking = False
        """Whether all Leases were seen at least once since the start or the last gap: what is new now came just now."""

    def observe_all(self, leases: Iterable[BrokerLease], now_ms: int) -> None:
        """All Leases there are, as they were just listed."""
        for lease in leases:
            self.observe(lease, now_ms)
        self._looking = True

    def observe(self, lease: BrokerLease, now_ms: int) -> None:
        """One Lease as it was just read. Reading the same state again is no sign of life."""
        known = self._signs.get(lease.broker)
        if known is None or not known.is_of(lease):
            same_life = known is not None and known.incarnation == lease.incarnation
            taken_ms = known.taken_ms if known is not None and same_life else now_ms
            self._signs[lease.broker] = _Sign(lease.incarnation, lease.renew_time, now_ms, self._looking, taken_ms)

    def died(self, broker: BrokerId, since_ms: int) -> None:
        """The process that ran at `since_ms` is dead. An incarnation that was first seen after that may be of another,
        which is not."""
        sign = self._signs.get(broker)
        if sign is not None and sign.taken_ms <= since_ms:
            sign.dead = True

    def restart(self, since_ms: int, now_ms: int) -> None:
        """Contact was lost from `since_ms` until now: who was live then gets a whole lease time again.

        Everyone must prove itself again; who was lost before the gap stays lost until its Lease changes.
        """
        self._looking = False
        for sign in self._signs.values():
            if since_ms - sign.seen_ms < self._duration_ms:
                sign.seen_ms = now_ms
            sign.proven = False

    def is_live(self, broker: BrokerId, now_ms: int) -> bool:
        sign = self._signs.get(broker)
        return sign is not None and not sign.dead and now_ms - sign.seen_ms < self._duration_ms

    def is_proven(self, broker: BrokerId) -> bool:
        """Whether its Lease changed while this reader was looking."""
        sign = self._signs.get(broker)
        return sign is not None and sign.proven

    def last_change_ms(self) -> int:
        """When any Lease was seen to change: whoever judges as of then calls nobody lost because of its own outage."""
        return max((sign.seen_ms for sign in self._signs.values()), default=0)

    def next_expiry_ms(self, now_ms: int) -> int | None:
        """When the next live broker is lost unless its Lease changes; None when no broker is live."""
        ends = (sign.seen_ms + self._duration_ms for sign in self._signs.values() if not sign.dead)
        return min((end for end in ends if end > now_ms), default=None)
