"""The liveness of brokers and operators, as one reader sees it: by its own monotonic clock, never a timestamp.

A broker is live for LEASE_DURATION_MS after the reader last saw its Lease change. A Lease that was only ever seen in
one state may be old: its broker is live for now, but not *proven*, and is given nothing new. This is a failure detector
and no more: safety comes from epochs. After any gap in its own contact with the API server the
reader calls `restart`: it could not see any change. One `Liveness` per process, used by operator and brokers.

    a Pod that was there is gone, or is another of its name ─┐
    its container runs no longer, or is not the one that ran ├──> the process that ran until then is dead
    a container that does not run, at our first look        ─┘
    a container that runs again after we saw it dead         ──> no news: its Lease decides

A dead broker is lost at once and until its Lease changes (`Liveness.died`). A wrong guess costs an election and no
record. A Pod that is to be deleted is not dead: its broker drains.

    standing by ── no operator has the operators' Lease, or an earlier life of this very identity does ──> bid
                ── another has it, and it has not changed for its whole duration ─────────────────────> bid
    bid ── landed ──> acting, for the duration from when the write was sent; renewed in time
        └─ conflict, or no answer ──> look again
    acting ── not renewed in time, or another operator has it ──> standing by

A turn that has run out ends, even if it was not checked meanwhile. At most one operator acts at a time, as far as
clocks run equally fast. Nothing depends on that: every write of an operator is a compare-and-set on what it observed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.core.limits import LEASE_DURATION_MS, OPERATOR_LEASE_DURATION_MS, OPERATOR_LEASE_RENEW_MS
from headrace.core.resources.kubernetes_objects import BrokerPod
from headrace.core.resources.lease import BrokerLease, OperatorLease
from headrace.core.types import BrokerId, Incarnation


@dataclass(slots=True)
class _Sign:
    incarnation: Incarnation
    renew_time: str
    seen_ms: int
    proven: bool
    taken_ms: int
    """The time when its incarnation was first seen."""
    dead: bool = False

    def is_of(self, lease: BrokerLease) -> bool:
        return self.incarnation == lease.incarnation and self.renew_time == lease.renew_time


class Liveness:
    def __init__(self, duration_ms: int = LEASE_DURATION_MS) -> None:
        self._duration_ms = duration_ms
        self._signs: dict[BrokerId, _Sign] = {}
        self._looking = False
        """True where all Leases were seen at least once since the start or the last gap: a new one came just now."""

    def observe_all(self, leases: Iterable[BrokerLease], now_ms: int) -> None:
        """Observe all Leases there are, as they were just listed."""
        for lease in leases:
            self.observe(lease, now_ms)
        self._looking = True

    def observe(self, lease: BrokerLease, now_ms: int) -> None:
        """Observe one Lease as it was just read. Reading the same state again is no sign of life."""
        known = self._signs.get(lease.broker)
        if known is None or not known.is_of(lease):
            same_life = known is not None and known.incarnation == lease.incarnation
            taken_ms = known.taken_ms if known is not None and same_life else now_ms
            self._signs[lease.broker] = _Sign(lease.incarnation, lease.renew_time, now_ms, self._looking, taken_ms)

    def died(self, broker: BrokerId, since_ms: int) -> None:
        """Note that the process that ran at `since_ms` is dead. An incarnation that was first seen after that may be of
        another, which is not."""
        sign = self._signs.get(broker)
        if sign is not None and sign.taken_ms <= since_ms:
            sign.dead = True

    def restart(self, since_ms: int, now_ms: int) -> None:
        """Note that contact was lost from `since_ms` until now: a broker that was live then gets a whole lease time
        again.

        Every broker must prove itself again; one that was lost before the gap stays lost until its Lease changes.
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
        """Return whether its Lease changed while this reader was observing."""
        sign = self._signs.get(broker)
        return sign is not None and sign.proven

    def last_change_ms(self) -> int:
        """Return when any Lease was seen to change: a reader that judges as of then calls no broker lost because of its
        own outage."""
        return max((sign.seen_ms for sign in self._signs.values()), default=0)

    def next_expiry_ms(self, now_ms: int) -> int | None:
        """Return when the next live broker is lost unless its Lease changes; None when no broker is live."""
        ends = (sign.seen_ms + self._duration_ms for sign in self._signs.values() if not sign.dead)
        return min((end for end in ends if end > now_ms), default=None)


@dataclass(frozen=True, slots=True)
class _Look:
    pod: BrokerPod
    at_ms: int


class PodDeaths:
    def __init__(self) -> None:
        self._seen: dict[BrokerId, _Look] = {}

    def observe(self, pods: Iterable[BrokerPod], now_ms: int) -> Mapping[BrokerId, int]:
        """Observe all Pods of brokers as they are just now, and return the brokers that died since the last
        observation, with the time of that one.

        A life that began after that time may be a newer one. For a Pod that was dead when it was first seen, it is this
        very moment.
        """
        present = {pod.broker: _Look(pod, now_ms) for pod in pods}
        gone = [broker for broker in self._seen if broker not in present]
        ended = [broker for broker, look in present.items() if self._has_ended(look.pod)]
        deaths = {broker: self._seen[broker].at_ms if broker in self._seen else now_ms for broker in (*gone, *ended)}
        self._seen = present
        return deaths

    def _has_ended(self, pod: BrokerPod) -> bool:
        before = self._seen.get(pod.broker)
        if before is None:
            return not pod.running
        if before.pod == pod:
            return False
        return before.pod.running or not pod.running


class Candidacy:
    def __init__(self, me: str, vacant: OperatorLease) -> None:
        """Take `vacant`, which is written first where there is no Lease."""
        self._me = me
        self._vacant = vacant
        self._seen = vacant
        self._changed_ms = 0
        """The time when it was first seen in this state."""
        self._asked_ms: int | None = None
        """The time when the last write that landed was sent; None where this process does not hold the Lease."""

    @property
    def holder(self) -> str:
        """Return the holder as last seen; empty where there is none."""
        return self._seen.holder

    def acts(self, now_ms: int) -> bool:
        return self._asked_ms is not None and now_ms < self._asked_ms + OPERATOR_LEASE_DURATION_MS

    def observe(self, lease: OperatorLease | None, now_ms: int) -> None:
        """Observe the Lease as a linearizable read shows it; None where there is none."""
        found = lease or self._vacant
        if (found.holder, found.renew_time) != (self._seen.holder, self._seen.renew_time):
            self._changed_ms = now_ms
        if found.holder != self._me:
            self._asked_ms = None
        self._seen = found

    def due_ms(self) -> int:
        """Return when to bid, or to renew; what is observed until then may change it."""
        if self._asked_ms is not None:
            return self._asked_ms + OPERATOR_LEASE_RENEW_MS
        if self._seen.holder in ("", self._me):
            return self._changed_ms
        return self._changed_ms + OPERATOR_LEASE_DURATION_MS

    def bid(self, wall_time: str) -> OperatorLease:
        """Return what to write, by compare-and-set on what was observed; `wall_time` is for people."""
        return self._seen.held_by(self._me, wall_time)

    def won(self, lease: OperatorLease, asked_ms: int, now_ms: int) -> bool:
        """Note that the write that was sent at `asked_ms` has landed; return whether a turn begins, and none just goes
        on."""
        acted = self.acts(now_ms)
        self._seen, self._asked_ms = lease, asked_ms
        return self.acts(now_ms) and not acted

    def resign(self) -> OperatorLease | None:
        """Return what to write so that another acts at once; None where the Lease is another's, as far as was observed.

        This process acts no more, whatever becomes of the write.
        """
        self._asked_ms = None
        return self._seen.vacated() if self._seen.holder == self._me else None
