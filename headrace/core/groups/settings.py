"""The settings of a group, as its ConsumerGroup gives them: words that the resource shares with the coordinator.

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
    """The time for which a group without members keeps its offsets."""

    ms: int | None
    """None: for ever."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`spec` of the ConsumerGroup, in milliseconds; None: without end, or not."""

    assignor: Assignor = Assignor.UNIFORM
    session_ms: int = GROUP_SESSION_MS_DEFAULT
    offsets_retention_ms: int | None = 7 * 24 * 3_600_000
    paused_until_ms: int | None = None
    """A time by the clock of `now_ms`, before which no member gets partitions."""
    type: GroupType = GroupType.CONSUMER
