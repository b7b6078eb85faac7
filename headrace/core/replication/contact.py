"""Is this broker still in touch: with the API server, by its Lease, or at least with everybody who could replace it?

A leader that was cut off, or stopped for a while, may have been replaced without knowing. What commits is safe by
epochs; but what is acknowledged before it commits (acks 0 and 1), and what is called `latest`, would be those of a
leader whose time is over. So both need a Lease that was renewed within its duration, or a word in this epoch, within
the same time, from each member of the ISR: one of them would have been elected, and would not follow any more.
All times are of this process's own monotonic clock.
"""

from typing import NamedTuple

from headrace.core.limits import LEASE_DURATION_MS


class Contact(NamedTuple):
    """A tuple, because each append without acks=all looks at one."""

    now_ms: int
    lease_renewed_ms: int
    """When the request was sent that renewed the Lease last."""

    @property
    def has_lease(self) -> bool:
        return self.is_recent(self.lease_renewed_ms)

    def is_recent(self, at_ms: int | None) -> bool:
        """Whether that lies within a Lease's duration; None: it never happened."""
        return at_ms is not None and self.now_ms - at_ms < LEASE_DURATION_MS
