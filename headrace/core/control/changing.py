"""What elections and reassignments have in common: one change of one partition, and how much may change in one pass."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from headrace.core.control.observed import BrokerState, Observed
from headrace.core.limits import LEADER_RETURNS_MAX, REASSIGNMENTS_MAX
from headrace.core.resources.partition_set import PartitionState
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId, PartitionEpoch


class ChangeKind(StrEnum):
    """What people count, and hear of."""

    ELECTED = "the leader was gone"
    ELECTED_UNCLEANLY = "the leader was gone, and so was everybody in sync"
    RESORTED = "nobody in sync had an intact log"
    MOVED = "the leader is to stop, or to go"
    RETURNED = "the preferred leader is back"
    OFFLINE = "nobody can lead"
    SHRUNK = "lost brokers left the ISR"
    REASSIGNED = "replicas move"


UNCLEAN = frozenset({ChangeKind.ELECTED_UNCLEANLY, ChangeKind.RESORTED})
"""Acknowledged records may be lost."""
ELECTIONS = UNCLEAN | {ChangeKind.ELECTED, ChangeKind.MOVED, ChangeKind.RETURNED}


@dataclass(frozen=True, slots=True)
class Change:
    """Write `state`."""

    state: PartitionState
    reason: str
    kinds: tuple[ChangeKind, ...]
    cause: str = ""
    """Of an election, as a clause that is the same for all partitions which it befalls."""
    loss: str = ""
    """What people must be told: records may be missing; empty where none can be."""


@dataclass(slots=True)
class Budget:
    """What one pass may still do, over all topics. Made anew for each pass, from what is observed."""

    returns: int = LEADER_RETURNS_MAX
    moves: int = REASSIGNMENTS_MAX
    leads: Counter[BrokerId] = field(default_factory=Counter)
    """Partitions that each broker leads, whatever their topic."""

    @classmethod
    def of(cls, states: Iterable[PartitionState], observed: Observed) -> "Budget":
        known = list(states)
        moving = sum(is_copying(state, observed) for state in known)
        return cls(moves=max(0, REASSIGNMENTS_MAX - moving), leads=leaders_of(known, observed))


def leaders_of(states: Iterable[PartitionState], observed: Observed) -> Counter[BrokerId]:
    """Partitions that each live broker leads."""
    return Counter(s.leader.broker for s in states if s.leader is not None and observed.holds(s.leader))


def is_copying(state: PartitionState, observed: Observed) -> bool:
    """Whether data moves just now: a new replica whose broker is away takes nobody's turn."""
    return any(observed.state_of(broker) is not BrokerState.LOST for broker in state.adding)


def revised(state: PartitionState, **changes: Any) -> PartitionState:
    """As it is after `changes`, with the next partition epoch."""
    return replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1), **changes)
