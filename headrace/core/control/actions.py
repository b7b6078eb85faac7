"""What the planner wants done. The operator carries actions out in order, each by compare-and-set on what was observed.

Any prefix may be carried out before the operator dies: the next plan goes on from there. An action that meets a
conflict is dropped together with the rest of its topic's; the next plan, on what is there then, decides again.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from headrace.core.control.changing import ChangeKind
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
from headrace.core.slotted import dataclass
from headrace.core.types import TopicName


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event for people, recorded once the action that it belongs to has landed."""

    reason: str
    message: str
    warning: bool = False
    about: str = ""
    """What else tells it from others of its reason: `group_events` holds back repetitions."""


@dataclass(frozen=True, slots=True)
class CreateSet:
    set: PartitionSet
    reason: str
    notices: tuple[Notice, ...] = ()
    """Of the topic."""


@dataclass(frozen=True, slots=True)
class ReplaceSet:
    """PUT with the resourceVersion that was observed."""

    set: PartitionSet
    reason: str
    notices: tuple[Notice, ...] = ()
    """Of the topic."""
    kinds: tuple[ChangeKind, ...] = ()
    """Of all changes in it, for those who count them."""


@dataclass(frozen=True, slots=True)
class DeleteSet:
    set: PartitionSet
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteOrphanSet:
    """Only if the API server, asked once more, has no Topic of this uid: a stale view must cost no topic its seats."""

    set: PartitionSet
    reason: str


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    topic: Topic
    finalizers: tuple[str, ...]
    reason: str
    notices: tuple[Notice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """To be set beside those that there are."""


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
