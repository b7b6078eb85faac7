"""The entries of the offsets topic as values (a key and its last value; None: forget it), and the image that they make.

    group    when its members changed last; what the target was made from; since when it is empty; the last reset
    member what a member sent about itself when it joined
    target   what a member is to have, by the group's assignment epoch
    current  what a member has, and what it is to give up: no other member may be given either
    offset   how far the group is in one partition

A group's durable state is nothing but the last value of each of its keys, so that it can be read from a compacted log
in one pass. An `Image` is that state. Only `apply` changes it, so a coordinator works with what another one would read
from the log. Entries come one by one; the rules between members are true where a batch ends. `records`
has the bytes. An image is owned by one `Group`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar, assert_never

from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.identity import (
    NO_GROUP_EPOCH,
    Assignor,
    GroupEpoch,
    GroupName,
    GroupType,
    MemberId,
    OffsetRetention,
    TopicShape,
)
from headrace.core.log.epochs import NO_EPOCH as NO_LEADER
from headrace.core.types import LeaderEpoch, Offset, PartitionKey

Mark: TypeAlias = tuple[GroupEpoch, int]
"""The (epoch, revision) of a member."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class GroupKey:
    group: GroupName


@dataclass(frozen=True, slots=True)
class MemberKey:
    group: GroupName
    member: MemberId


@dataclass(frozen=True, slots=True)
class TargetKey:
    group: GroupName
    member: MemberId


@dataclass(frozen=True, slots=True)
class CurrentKey:
    group: GroupName
    member: MemberId


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group: GroupName
    partition: PartitionKey


class Inputs(NamedTuple):
    """The inputs of a target, beside the members. Where they change, the group's epoch rises."""

    topics: Mapping[str, TopicShape]
    """The topics that a member subscribes to and that exist."""
    assignor: Assignor = Assignor.UNIFORM
    paused: bool = False


@dataclass(frozen=True, slots=True)
class GroupValue:
    epoch: GroupEpoch = NO_GROUP_EPOCH
    assignment_epoch: GroupEpoch = NO_GROUP_EPOCH
    """The group's epoch that the target was made for."""
    inputs: Inputs = field(default_factory=lambda: Inputs({}))
    """The inputs as of `epoch`."""
    empty_since_ms: int = 0
    """The time in milliseconds since 1970 by the coordinator's clock; without meaning while there are members."""
    last_reset: str = ""
    """The id of the last `spec.resetOffsets` that was carried out."""
    retention: OffsetRetention | None = None
    """The retention of the ConsumerGroup when it was last seen; None: it was not seen yet, and nothing is forgotten."""
    type: GroupType = GroupType.CONSUMER
    """The type as of its first use, for its whole life: its next coordinator may not see the ConsumerGroup."""


@dataclass(frozen=True, slots=True)
class MemberValue:
    subscription: Subscription
    instance: str = ""
    """The instance id; empty: not static."""
    client_address: str = ""
    rebalance_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class CurrentValue:
    """The current state of a member: (epoch, revision) names one answer to it, over all its lives; a member that
    repeats them has seen all that came before."""

    epoch: GroupEpoch
    """The member's epoch."""
    revision: int = 0
    """The revision, which rises with every change of this value."""
    assigned: Mapping[PartitionKey, GroupEpoch] = field(default_factory=dict)
    """The partitions to read, with the member's epoch when each was given: commits of an earlier one are late."""
    revoking: Mapping[PartitionKey, GroupEpoch] = field(default_factory=dict)
    """The partitions to give up; the member may still commit."""
    away: bool = False
    """True for a static member that announced to come back."""
    joined: Mark = (NO_GROUP_EPOCH, 0)
    """The first (epoch, revision) of this life of the member: a request with an older one is late."""

    @property
    def mark(self) -> Mark:
        return self.epoch, self.revision


@dataclass(frozen=True, slots=True)
class OffsetValue:
    offset: Offset
    """The offset of the next record to read."""
    leader_epoch: LeaderEpoch = NO_LEADER
    """The epoch of the last record that was read; `NO_LEADER` where that is not known."""
    metadata: str = ""
    """The member's own text."""
    committed_ms: int = 0
    """The time in milliseconds since 1970 by the coordinator's clock."""


class GroupRecord(NamedTuple):
    key: GroupKey
    value: GroupValue | None


class MemberRecord(NamedTuple):
    key: MemberKey
    value: MemberValue | None


class TargetRecord(NamedTuple):
    key: TargetKey
    value: Partitions | None


class CurrentRecord(NamedTuple):
    key: CurrentKey
    value: CurrentValue | None


class OffsetRecord(NamedTuple):
    key: OffsetKey
    value: OffsetValue | None


Key: TypeAlias = GroupKey | MemberKey | TargetKey | CurrentKey | OffsetKey
Entry: TypeAlias = GroupRecord | MemberRecord | TargetRecord | CurrentRecord | OffsetRecord
"""A value of None is a tombstone."""


class Image:
    def __init__(self, name: GroupName) -> None:
        self.name = name
        self.group = GroupValue()
        self.is_known = False
        """True where there is a record of the group itself; offsets are never without one."""
        self.members: dict[MemberId, MemberValue] = {}
        self.targets: dict[MemberId, Partitions] = {}
        self.currents: dict[MemberId, CurrentValue] = {}
        self.offsets: dict[PartitionKey, OffsetValue] = {}
        self.owners: dict[PartitionKey, MemberId] = {}
        """The owner of each partition, those that are being given up included: no other member may be given it."""
        self.instances: dict[str, MemberId] = {}
        """The static members by their instance ids."""

    def apply(self, entry: Entry) -> None:
        match entry:
            case GroupRecord(_, value):
                self.group, self.is_known = value or GroupValue(), value is not None
            case MemberRecord(key, value):
                self._set_member(key.member, value)
            case TargetRecord(key, value):
                _set(self.targets, key.member, value)
            case CurrentRecord(key, value):
                self._set_current(key.member, value)
            case OffsetRecord(key, value):
                _set(self.offsets, key.partition, value)
            case _:
                assert_never(entry)

    def target(self, member: MemberId) -> Partitions:
        return self.targets.get(member, frozenset())

    def _set_member(self, member: MemberId, value: MemberValue | None) -> None:
        before = self.members.get(member)
        if before is not None and self.instances.get(before.instance) == member:
            del self.instances[before.instance]
        _set(self.members, member, value)
        if value is not None and value.instance:
            self.instances[value.instance] = member

    def _set_current(self, member: MemberId, value: CurrentValue | None) -> None:
        before = self.currents.get(member)
        if before is not None:
            for partition in (*before.assigned, *before.revoking):
                if self.owners.get(partition) == member:
                    del self.owners[partition]
        _set(self.currents, member, value)
        if value is not None:
            self.owners |= dict.fromkeys((*value.assigned, *value.revoking), member)


def _set(values: dict[_K, _V], key: _K, value: _V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
