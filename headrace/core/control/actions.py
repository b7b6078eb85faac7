"""The actions of the planner, for topics and for consumer groups, and the changes of partitions that they write.

The operator carries actions out in order, each by compare-and-set on what was observed. Any prefix may be carried out
before the operator dies: the next plan goes on from there. An action that meets a conflict is dropped together with
the rest of its topic's; the next plan decides again. For groups: one write per object and pass, and everything that
follows from it is planned once it is seen.

A `Change` is one election or reassignment of one partition; a `ChangeBudget` bounds how much may change in one pass.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from headrace.core.control.observed import BrokerState, Observed
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionEpoch, TopicName

LEADER_RETURNS_MAX = 50
"""Leaderships that return to their preferred leaders in one pass of the operator; each is a short interruption."""
REASSIGNMENTS_MAX = 10
"""Partitions of a cluster that copy data to new replicas at the same time."""


class ChangeKind(StrEnum):
    """The kinds of changes that are counted and announced."""

    ELECTED = "the leader was gone"
    ELECTED_UNCLEANLY = "the leader was gone, and so was everybody in sync"
    RESORTED = "nobody in sync had an intact log"
    MOVED = "the leader is to stop, or to go"
    RETURNED = "the preferred leader is back"
    OFFLINE = "nobody can lead"
    SHRUNK = "lost brokers left the ISR"
    REASSIGNED = "replicas move"


UNCLEAN = frozenset({ChangeKind.ELECTED_UNCLEANLY, ChangeKind.RESORTED})
"""The kinds after which acknowledged records may be lost."""
ELECTIONS = UNCLEAN | {ChangeKind.ELECTED, ChangeKind.MOVED, ChangeKind.RETURNED}


@dataclass(frozen=True, slots=True)
class Change:
    """The write of one partition's `state`."""

    state: PartitionState
    reason: str
    kinds: tuple[ChangeKind, ...]
    cause: str = ""
    """The cause of an election, as a clause that is the same for all partitions with that cause."""
    loss: str = ""
    """The loss that people must know of: records may be missing; empty where none can be."""


@dataclass(slots=True)
class ChangeBudget:
    """The changes that one pass may still make, over all topics. Made anew for each pass, from what is observed."""

    returns: int = LEADER_RETURNS_MAX
    moves: int = REASSIGNMENTS_MAX
    leads: Counter[BrokerId] = field(default_factory=Counter)
    """The number of partitions that each broker leads, whatever their topic."""

    @classmethod
    def of(cls, states: Iterable[PartitionState], observed: Observed) -> "ChangeBudget":
        known = list(states)
        moving = sum(is_copying(state, observed) for state in known)
        return cls(moves=max(0, REASSIGNMENTS_MAX - moving), leads=leaders_of(known, observed))


def leaders_of(states: Iterable[PartitionState], observed: Observed) -> Counter[BrokerId]:
    """Return the number of partitions that each live broker leads."""
    return Counter(s.leader.broker for s in states if s.leader is not None and observed.holds(s.leader))


def is_copying(state: PartitionState, observed: Observed) -> bool:
    """Return whether data moves just now: a new replica whose broker is away does not count."""
    return any(observed.state_of(broker) is not BrokerState.LOST for broker in state.adding)


def revised(state: PartitionState, **changes: Any) -> PartitionState:
    """Return the state after `changes`, with the next partition epoch."""
    return replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1), **changes)


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event for people, recorded once the action that it belongs to has landed."""

    reason: str
    message: str
    warning: bool = False
    about: str = ""
    """The text that distinguishes it from others of its reason: `Restraint` holds back repetitions."""


@dataclass(frozen=True, slots=True)
class CreateSet:
    set: PartitionSet
    reason: str
    notices: tuple[Notice, ...] = ()
    """The notices of the topic."""


@dataclass(frozen=True, slots=True)
class ReplaceSet:
    """A PUT with the resourceVersion that was observed."""

    set: PartitionSet
    reason: str
    notices: tuple[Notice, ...] = ()
    """The notices of the topic."""
    kinds: tuple[ChangeKind, ...] = ()
    """The kinds of all changes in it, for counting."""


@dataclass(frozen=True, slots=True)
class DeleteSet:
    set: PartitionSet
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteOrphanSet:
    """The deletion of a set, made only if the API server, asked once more, has no Topic of this uid: a stale view must
    cost no topic its seats."""

    set: PartitionSet
    reason: str


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    topic: Topic
    finalizers: tuple[str, ...]
    reason: str
    notices: tuple[Notice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations to be set beside those that there are."""


@dataclass(frozen=True, slots=True)
class PatchStatus:
    topic: Topic
    status: Mapping[str, Any]
    reason: str
    notices: tuple[Notice, ...] = ()


Action: TypeAlias = CreateSet | ReplaceSet | DeleteSet | DeleteOrphanSet | SetFinalizers | PatchStatus


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The actions for one topic, in order; never empty. Plans of different topics do not depend on each other."""

    topic: TopicName
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    manifest: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class PatchTopic:
    """A patch, merged into what was observed."""

    topic: Topic
    patch: Mapping[str, Any]
    reason: str
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseTopic:
    """The release of a topic, made only if the API server, asked once more, has no group with offsets in it: a stale
    view must cost no group its offsets."""

    topic: Topic
    finalizers: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SetGroupFinalizers:
    group: ConsumerGroup
    finalizers: tuple[str, ...]
    reason: str
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteGroupStatus:
    """A PUT of the whole status."""

    group: ConsumerGroup
    """The new group, with the resourceVersion that was observed."""
    reason: str
    notices: tuple[Notice, ...] = ()
    assigns: bool = False
    """True where a new target is in it."""


TopicAction: TypeAlias = CreateTopic | PatchTopic | ReleaseTopic | PatchStatus
GroupAction: TypeAlias = SetGroupFinalizers | WriteGroupStatus
