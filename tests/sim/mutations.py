"""Safety rules deleted in turn: the simulator must catch each of them, or it would catch no mistake either.

A mutation replaces one function of the core. `tests/unit/sim` demands that one of the seeds named here fails under it.
The list grows with the simulator: what it does not catch yet is no rule less.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.log.epochs import EpochEnd, LeaderEpochs
from headrace.core.replication import following, seats
from headrace.core.replication.followers import Ends
from headrace.core.replication.set_writer import SetWriter
from headrace.core.replication.truncation import Agreed
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import Offset, Seat


@dataclass(frozen=True)
class Mutation:
    name: str
    owner: Any
    attribute: str
    replacement: Any
    seeds: Sequence[int]


def _never_truncates(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd) -> Agreed:
    return Agreed(log_end, "it never truncates")


def _log_end(self: Ends, durability: object) -> Offset:
    return self.log_end


def _always_intact(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    return _RENEWED(state, me, replace(log, damage=""))


_RENEWED = seats._renewed


def _any_read(self: SetWriter, partition_set: PartitionSet, *, based_on: str) -> None:
    self._settle(partition_set)


MUTATIONS = (
    Mutation("no truncation", following, "reconcile", _never_truncates, range(2)),
    Mutation("votes of what is not on disk", Ends, "vouched", _log_end, range(5, 9)),
    Mutation("renewal whatever was lost", seats, "_renewed", _always_intact, range(12, 16)),
    Mutation("reads that began before", SetWriter, "read", _any_read, range(3, 7)),
)
