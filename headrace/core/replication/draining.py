"""What a broker that was asked to stop waits for, so that nobody misses it. Pure; asked again with every change.

    asked to stop ──> draining ── it leads nothing that another replica could lead ──> steps down ──> stops
    its ordinal is above the StatefulSet's replicas ──> draining ── no PartitionSet names it any more ──> stops

The operator moves leaderships and replicas; a broker only waits, for bounded times, and never for what cannot happen:
where every other member of the ISR is away or drains too, as when a whole cluster stops, there is nobody to wait for.
"""

from collections.abc import Collection, Iterable

from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, Seat


def to_hand_over(states: Iterable[PartitionState], me: Seat, ready: Collection[Seat]) -> int:
    """How many partitions `me` leads that another could lead; `ready` are the seats that serve and do not drain."""
    led = (state for state in states if state.leader == me)
    return sum(any(seat != me and seat in ready for seat in state.isr) for state in led)


def to_give_away(states: Iterable[PartitionState], broker: BrokerId) -> int:
    """Of how many partitions the broker is a replica."""
    return sum(broker in state.replicas for state in states)
