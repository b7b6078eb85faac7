"""A log is damaged: when may a replica throw its part of a log away and fetch it again? Pure.

    damage found ──> others have it all ──> this life ends as every stop does: leaderships and seats are handed over
                 │                            ──> others still have it all ──> the next one cuts the log at the damage,
                 │                                   gives up its seat (`log.intact`), and fetches from whoever leads
                 └──> nobody else has it ──> nothing is cut: what is before and after the damage can still be read

The votes of a life count on what it had, so nothing that it has voted for is cut in it: positions that its leader
remembers, and writes that are on their way and would take it for in sync, are void with its incarnation, and with no
rule but that. A seat of this life that nobody could do without (`seats.step_down`) is void in the next one, which gives
it up. Called by the broker's verification with every change, and once more at the end of the life.

Invariants: what is cut is in as many other logs as must be in sync, whose brokers live; the only replica cuts nothing.
"""

from collections.abc import Collection

from headrace.core.replication.isr import floor, settled
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Seat


def others_have_it(state: PartitionState, me: Seat, ready: Collection[Seat], min_insync_replicas: int) -> bool:
    """Whether enough others are in sync; `ready` are the seats whose brokers live, do not drain and have room."""
    others = sum(seat.broker != me.broker and seat in ready for seat in state.isr)
    return others >= max(1, min(floor(state, min_insync_replicas), len(settled(state)) - 1))
