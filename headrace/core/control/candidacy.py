"""Which of several operators of a cluster acts: whoever holds one Lease. Pure; one object per operator process.

    standing by ── nobody holds it, or an earlier life of this very identity does ──────────> bid
                ── another holds it, and it has not changed for its whole duration ─────────> bid
    bid ── landed ──> acting, for the duration from when the write was sent; renewed in time
        └─ conflict, or no answer ──> look again
    acting ── not renewed in time, or somebody else holds it ──> standing by

A turn that has run out ends, even if nobody looked meanwhile: a renewal that lands after that begins a new one, and
what was passed over in between is to be looked at again.

At most one of them acts at a time, as far as their clocks run equally fast: who acts counts from before its write, who
waits from after it has seen it. Nothing depends on that: every write of an operator is a compare-and-set on what it
observed, so that two that act at once get into each other's way and lose nothing.
"""

from headrace.core.limits import OPERATOR_LEASE_DURATION_MS, OPERATOR_LEASE_RENEW_MS
from headrace.core.resources.operator_lease import OperatorLease


class Candidacy:
    def __init__(self, me: str, vacant: OperatorLease) -> None:
        """`vacant` is what is written first where there is no Lease."""
        self._me = me
        self._vacant = vacant
        self._seen = vacant
        self._changed_ms = 0
        """When it was first seen in this state."""
        self._asked_ms: int | None = None
        """When the last write that landed was sent; None where this process does not hold the Lease."""

    @property
    def holder(self) -> str:
        """As last seen; empty where there is none."""
        return self._seen.holder

    def acts(self, now_ms: int) -> bool:
        return self._asked_ms is not None and now_ms < self._asked_ms + OPERATOR_LEASE_DURATION_MS

    def observe(self, lease: OperatorLease | None, now_ms: int) -> None:
        """The Lease as a linearizable read shows it; None where there is none."""
        found = lease or self._vacant
        if (found.holder, found.renew_time) != (self._seen.holder, self._seen.renew_time):
            self._changed_ms = now_ms
        if found.holder != self._me:
            self._asked_ms = None
        self._seen = found

    def due_ms(self) -> int:
        """When to bid, or to renew; what is observed until then may change it."""
        if self._asked_ms is not None:
            return self._asked_ms + OPERATOR_LEASE_RENEW_MS
        if self._seen.holder in ("", self._me):
            return self._changed_ms
        return self._changed_ms + OPERATOR_LEASE_DURATION_MS

    def bid(self, wall_time: str) -> OperatorLease:
        """What to write, by compare-and-set on what was observed; `wall_time` is for people."""
        return self._seen.held_by(self._me, wall_time)

    def won(self, lease: OperatorLease, asked_ms: int, now_ms: int) -> bool:
        """The write that was sent at `asked_ms` has landed -> whether a turn begins, and none just goes on."""
        acted = self.acts(now_ms)
        self._seen, self._asked_ms = lease, asked_ms
        return self.acts(now_ms) and not acted

    def resign(self) -> OperatorLease | None:
        """What to write so that another acts at once; None where the Lease is another's, as far as was observed.

        This process acts no more, whatever becomes of the write.
        """
        self._asked_ms = None
        return self._seen.vacated() if self._seen.holder == self._me else None
