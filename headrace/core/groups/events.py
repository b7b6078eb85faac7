"""The events of a group, and the decisions of its coordinator: the words of `Group.step`.

Events are past participles or requests that were received; `request` is the shell's own number of it, and each gets one
Answer or Refuse. Effects are carried out in the order given: records are committed first, and only then are answers
sent (`core.coordinator` holds back what must wait). Each effect has a reason, for the log.
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
    """A member that owns nothing wants to join, or does not know that it has joined."""

    request: int
    member: MemberId
    subscription: Subscription
    instance: str = ""
    """The instance id of a static member; empty otherwise."""
    client_address: str = ""
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS_DEFAULT


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    request: int
    member: MemberId
    epoch: GroupEpoch
    revision: int
    """The revision; epoch and revision are those of the last answer that the member has seen."""
    owned: Partitions
    """The partitions that it was ever given and has not given up yet."""
    subscription: Subscription | None = None
    """The subscription; None: as before."""
    instance: str = ""
    wait_ms: int = 0
    """The time that the answer may wait for news."""


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
    """The offsets; the coordinator adds when they were committed."""
    member: MemberId | None = None
    """The member; None: from outside, which only a group without members takes."""
    epoch: GroupEpoch = NO_GROUP_EPOCH
    type: GroupType = GroupType.CONSUMER
    """The type of the group that it is meant for."""


@dataclass(frozen=True, slots=True)
class OffsetsAsked:
    request: int
    partitions: Partitions | None = None
    """The partitions; None: all there are."""


@dataclass(frozen=True, slots=True)
class ResetResolved:
    """The numbers of `spec.resetOffsets`."""

    request: int
    id: str
    offsets: Mapping[PartitionKey, OffsetValue]


@dataclass(frozen=True, slots=True)
class DeletionReceived:
    request: int


@dataclass(frozen=True, slots=True)
class TargetOffered:
    """The operator has published this target."""

    epoch: GroupEpoch
    """The group's epoch that it was made for."""
    target: Mapping[MemberId, Partitions]


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """The topics of the namespace have been read, by name."""

    topics: Mapping[str, TopicShape]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was surely deleted, by a user with the right to do so: it is not merely out of sight."""

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
    """The answer to a member. The member gives up what it owns and is not in `assigned`, and only then sends (epoch,
    revision) again, with what it owns by then."""

    epoch: GroupEpoch
    revision: int
    assigned: Partitions | None
    """The partitions; None: those that the member knows."""
    heartbeat_ms: int
    """The time within which the next heartbeat must come."""
    session_ms: int
    """The session from when this was asked for: a member without a later answer by then has lost everything."""


@dataclass(frozen=True, slots=True)
class Offsets:
    offsets: Mapping[PartitionKey, OffsetValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    pass


Reply: TypeAlias = Membership | Offsets | Done


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """The effect where members, epochs or assignments have changed: the ConsumerGroup's status should show it."""

    group: GroupName
    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """The effect where the operator's target does not fit."""

    group: GroupName
    reason: str


Notice: TypeAlias = GroupChanged | Ignored
Effect: TypeAlias = Persist[Entry] | Answer[Reply] | Refuse | Notice
