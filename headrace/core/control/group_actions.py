"""What the planner wants done for consumer groups: each a compare-and-set on what was observed, as for topics.

Any prefix may be carried out before the operator dies. One write per object and pass: whatever follows from it is
planned once it is seen.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from headrace.core.control.actions import Notice, PatchStatus
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.topic import Topic
from headrace.core.slotted import dataclass


@dataclass(frozen=True, slots=True)
class CreateTopic:
    manifest: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class PatchTopic:
    """Merged into what was observed."""

    topic: Topic
    patch: Mapping[str, Any]
    reason: str
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseTopic:
    """Only if the API server, asked once more, has no group with offsets in it: a stale view must cost nobody any."""

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
    """PUT of the status, whole."""

    group: ConsumerGroup
    """As it is to be, with the resourceVersion that was observed."""
    reason: str
    notices: tuple[Notice, ...] = ()
    assigns: bool = False
    """Whether a new target is in it."""


TopicAction: TypeAlias = CreateTopic | PatchTopic | ReleaseTopic | PatchStatus
GroupAction: TypeAlias = SetGroupFinalizers | WriteGroupStatus
