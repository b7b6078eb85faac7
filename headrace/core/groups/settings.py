"""How a group is to be run, as its ConsumerGroup says: words that the resource shares with the coordinator.

Apart from both, so that whoever reads a ConsumerGroup need not load a coordinator.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.core.groups.identity import GroupType
from headrace.core.limits import GROUP_SESSION_MS_DEFAULT


class Assignor(StrEnum):
    """Spelled as in `spec.assignor`."""

    UNIFORM = "Uniform"
    RANGE = "Range"


class Retention(NamedTuple):
    """How long a group without members keeps its offsets."""

    ms: int | None
    """None: for ever."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`spec` of the ConsumerGroup, in milliseconds; None: without end, or not."""

    assignor: Assignor = Assignor.UNIFORM
    session_ms: int = GROUP_SESSION_MS_DEFAULT
    offsets_retention_ms: int | None = 7 * 24 * 3_600_000
    paused_until_ms: int | None = None
    """By the clock of `now_ms`: nobody is assigned anything before."""
    type: GroupType = GroupType.CONSUMER
