"""The names, numbers and settings of consumer groups, and the partition of the offsets topic that a group belongs to.

A group is named as its ConsumerGroup. A member names itself: it makes up its id once in its life, so that a join whose
answer was lost is known again. Epochs are compared, never counted: they rise by as much as they like. The settings
stand here, apart from coordinator and resource, so that a reader of a ConsumerGroup need not load a coordinator.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, NewType

from headrace.core.murmur2 import partition_for_key
from headrace.core.types import PartitionId, TopicUid

GROUP_SESSION_MS_DEFAULT = 45_000


OFFSETS_TOPIC: Final = "headrace-offsets"
"""The internal topic. Its number of partitions never changes: `coordinator_partition` depends on it."""

MemberId = NewType("MemberId", str)

GroupEpoch = NewType("GroupEpoch", int)
"""The version of a group's members and of what there is to share out; member epochs are group epochs, reached one by
one."""

NO_GROUP_EPOCH: Final = GroupEpoch(0)
"""The epoch of a group that has had no members, and of a member that is about to join."""


class GroupName(NamedTuple):
    """A group's full name, written `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupState(StrEnum):
    """The state, spelled as in `status.state`; of a dead group there is no ConsumerGroup, or its status is what it last
    was."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(StrEnum):
    """The `spec.type` of a ConsumerGroup."""

    CONSUMER = "Consumer"
    """The type whose members share partitions, and commit how far they have read them."""
    SPARK = "Spark"
    """The type that shows the progress of a Spark query, which keeps its position itself: no members, and no consumer
    begins at its offsets."""


class TopicShape(NamedTuple):
    """The properties of a topic that matter to a group."""

    uid: TopicUid
    partitions: int


def coordinator_partition(group: GroupName, partition_count: int) -> PartitionId:
    """Return the partition of the offsets topic whose leader coordinates `group`."""
    return partition_for_key(str(group).encode(), partition_count)


class Assignor(StrEnum):
    """The assignor, spelled as in `spec.assignor`."""

    UNIFORM = "Uniform"
    RANGE = "Range"


class OffsetRetention(NamedTuple):
    """The time for which a group without members keeps its offsets."""

    ms: int | None
    """The time; None: without end."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The `spec` of the ConsumerGroup, in milliseconds; None: without end, or not."""

    assignor: Assignor = Assignor.UNIFORM
    session_ms: int = GROUP_SESSION_MS_DEFAULT
    offsets_retention_ms: int | None = 7 * 24 * 3_600_000
    paused_until_ms: int | None = None
    """The time by the clock of `now_ms`, before which no member gets partitions."""
    type: GroupType = GroupType.CONSUMER
