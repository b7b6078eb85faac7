"""What happens to a group, and what its coordinator decides: the words of `Group.step`.

Events are past participles or requests that were received; `request` is the shell's own number of it, and each gets
one Answer or Refuse. Effects are carried out in the order given: records are committed first, and only then is anybody
told (`core.coordinator` holds back what must wait). Each effect says why, for the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.core.coordinator import Answer, Persist, Refuse, Ticked
from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.entries import Entry, OffsetValue
from headrace.core.groups.identity import (
    NO_GROUP_EPOCH,
    GroupEpoch,
    GroupName,
    GroupSettings,
    GroupType,
    MemberId,
    TopicShape,
)
from headrace.core.limits import REBALANCE_TIMEOUT_MS_DEFAULT
from headrace.core.types import PartitionKey, TopicUid


@dataclass(frozen=True, slots=True)
class JoinReceived:
    """A member that owns nothing wants to come in, or does not know that it is in."""

    request: int
    member: MemberId
    subscription: Subscription
    instance: str = ""
    """Of a static member; empty otherwise."""
    client_address: str = ""
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS_DEFAULT


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    request: int
    member: MemberId
    epoch: GroupEpoch
    revision: int
    """Both of the last answer that the member has seen."""
    owned: Partitions
    """What it has not given up yet, of what it was ever given."""
    subscription: Subscription | None = None
    """None: as before."""
    instance: str = ""
    wait_ms: int = 0
    """How long the answer may wait for news."""


@dataclass(frozen=True, slots=True)
class LeaveReceived:
    """The member has given up everything."""

    request: int
    member: MemberId


@dataclass(frozen=True, slots=True)
class AbsenceReceived:
    """A static member has stopped and will be back within its session: its partitions wait for it."""

    request: int
    member: MemberId


@dataclass(frozen=True, slots=True)
class CommitReceived:
    request: int
    offsets: Mapping[PartitionKey, OffsetValue]
    """When they were committed says the coordinator."""
    member: MemberId | None = None
    """None: from outside, which only a group without members takes."""
    epoch: GroupEpoch = NO_GROUP_EPOCH
    type: GroupType = GroupType.CONSUMER
    """Of the group that it is meant for."""


@dataclass(frozen=True, slots=True)
class OffsetsAsked:
    request: int
    partitions: Partitions | None = None
    """None: all there are."""


@dataclass(frozen=True, slots=True)
class ResetResolved:
    """`spec.resetOffsets` in numbers."""

    request: int
    id: str
    offsets: Mapping[PartitionKey, OffsetValue]


@dataclass(frozen=True, slots=True)
class DeletionReceived:
    request: int


@dataclass(frozen=True, slots=True)
class TargetOffered:
    """The operator has published this."""

    epoch: GroupEpoch
    """The group's, that it was made for."""
    target: Mapping[MemberId, Partitions]


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """All topics of the namespace, by name."""

    topics: Mapping[str, TopicShape]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """Surely, by whoever may: not merely out of sight."""

    uid: TopicUid


@dataclass(frozen=True, slots=True)
class SettingsSeen:
    settings: GroupSettings


Request: TypeAlias = (
    JoinReceived
    | HeartbeatReceived
    | LeaveReceived
    | AbsenceReceived
    | CommitReceived
    | OffsetsAsked
    | ResetResolved
    | DeletionReceived
)
Event: TypeAlias = Request | TargetOffered | TopicsSeen | TopicDeleted | SettingsSeen | Ticked


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member is told. Whoever gets it gives up what it owns and is not in `assigned`, and only then says
    (epoch, revision) again, with what it owns by then."""

    epoch: GroupEpoch
    revision: int
    assigned: Partitions | None
    """None: as the member knows."""
    heartbeat_ms: int
    """Be heard from again within this."""
    session_ms: int
    """From when this was asked for: who has no later answer by then has lost everything."""


@dataclass(frozen=True, slots=True)
class Offsets:
    offsets: Mapping[PartitionKey, OffsetValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    pass


Reply: TypeAlias = Membership | Offsets | Done


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Members, epochs or assignments are others now: the ConsumerGroup's status should say so."""

    group: GroupName
    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """The operator's target does not fit."""

    group: GroupName
    reason: str


Notice: TypeAlias = GroupChanged | Ignored
Effect: TypeAlias = Persist[Entry] | Answer[Reply] | Refuse | Notice
