"""Who may be in sync: the ISR that is known to have landed, and what is on its way to the API server. No I/O.

A write whose outcome is not known may have landed, or land later. So the high watermark counts everybody who may be in
the ISR (the maximal ISR: a proposed addition counts at once), and `minInsyncReplicas` only those who are in it whatever
becomes of the write (a proposed removal counts at once there, and nowhere else). Source: Kafka's `maximalIsr`, KIP-497.

Invariants: `certain` <= the landed ISR <= `maximal`; what is pending only grows until it is decided.
"""

from dataclasses import replace

from headrace.core.resources.partition_set import PartitionState
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId, PartitionEpoch, Seat


def floor(state: PartitionState, min_insync_replicas: int) -> int:
    """How many must be in sync: as the topic says, but no more than there are replicas (KIP-966), and at least one.

    Replicas that are being added do not count before they have caught up.
    """
    return max(1, min(min_insync_replicas, len(settled(state))))


def settled(state: PartitionState) -> tuple[BrokerId, ...]:
    """The replicas but those that are being added."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


@dataclass(frozen=True, slots=True)
class PendingIsr:
    """All writes of one partition that are not decided, taken together."""

    added: frozenset[Seat]
    removed: frozenset[Seat]
    partition_epoch: PartitionEpoch
    """The greatest among them."""


@dataclass(frozen=True, slots=True)
class Isr:
    """`state` is known to have landed."""

    state: PartitionState
    pending: PendingIsr | None = None

    @property
    def maximal(self) -> frozenset[Seat]:
        """Everybody who may be in sync: the high watermark waits for all of them."""
        landed = frozenset(self.state.isr)
        return landed | self.pending.added if self.pending is not None else landed

    @property
    def certain(self) -> frozenset[Seat]:
        """Those who are in sync whatever becomes of what is pending."""
        landed = frozenset(self.state.isr)
        return landed - self.pending.removed if self.pending is not None else landed

    def proposing(self, state: PartitionState) -> "Isr":
        """`state` is being written, too, under a partition epoch above all others (see `next_epoch`)."""
        assert state.partition_epoch == self.next_epoch, "each attempt has an epoch of its own"
        landed, proposed = frozenset(self.state.isr), frozenset(state.isr)
        added, removed = proposed - landed, landed - proposed
        if self.pending is not None:
            added, removed = added | self.pending.added, removed | self.pending.removed
        return replace(self, pending=PendingIsr(added, removed, state.partition_epoch))

    @property
    def next_epoch(self) -> PartitionEpoch:
        """Of the next write: above the landed one and every attempt."""
        last = self.state.partition_epoch if self.pending is None else self.pending.partition_epoch
        return PartitionEpoch(last + 1)
