"""The entries of the offsets topic as values (a key and its last value; None: forget it), and the image that they make.

    group    when its members changed last; what the target was made from; since when it is empty; the last reset
    member   what a member said of itself when it joined
    target   what a member is to have, by the group's assignment epoch
    current  what a member has, and what it is to give up: nobody else may be given either
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
    Retention,
    TopicShape,
)
from headrace.core.log.epochs import NO_EPOCH as NO_LEADER
from headrace.core.types import LeaderEpoch, Offset, PartitionKey

Mark: TypeAlias = tuple[GroupEpoch, int]
"""(epoch, revision) of a member."""


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
    """What a target is made from, beside the members. Where it changes, the group's epoch rises."""

    topics: Mapping[str, TopicShape]
    """Those that somebody subscribes to and that exist."""
    assignor: Assignor = Assignor.UNIFORM
    paused: bool = False


@dataclass(frozen=True, slots=True)
class GroupValue:
    epoch: GroupEpoch = NO_GROUP_EPOCH
    assignment_epoch: GroupEpoch = NO_GROUP_EPOCH
    """The group's epoch that the target was made for."""
    inputs: Inputs = field(default_factory=lambda: Inputs({}))
    """As of `epoch`."""
    empty_since_ms: int = 0
    """Milliseconds since 1970 by the coordinator's clock; without meaning while there are members."""
    last_reset: str = ""
    """The id of the last `spec.resetOffsets` that was carried out."""
    retention: Retention | None = None
    """As the ConsumerGroup said when it was last seen; None: nobody has said it yet, and nothing is forgotten."""
    type: GroupType = GroupType.CONSUMER
    """As of its first use, for its whole life: whoever coordinates it next may not see the ConsumerGroup."""


@dataclass(frozen=True, slots=True)
class MemberValue:
    subscription: Subscription
    instance: str = ""
    """Empty: not static."""
    client_address: str = ""
    rebalance_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class CurrentValue:
    """(epoch, revision) names one answer to the member, over all its lives: whoever says it again has seen all that
    came before it."""

    epoch: GroupEpoch
    """The member's."""
    revision: int = 0
    """Rises with every change of this value."""
    assigned: Mapping[PartitionKey, GroupEpoch] = field(default_factory=dict)
    """To read, with the member's epoch when it was given: commits of an earlier one are late."""
    revoking: Mapping[PartitionKey, GroupEpoch] = field(default_factory=dict)
    """To give up; the member may still commit."""
    away: bool = False
    """A static member that said it will be back."""
    joined: Mark = (NO_GROUP_EPOCH, 0)
    """The first (epoch, revision) of this life of the member: what it says of an older one is late."""

    @property
    def mark(self) -> Mark:
        return self.epoch, self.revision


@dataclass(frozen=True, slots=True)
class OffsetValue:
    offset: Offset
    """Of the next record to read."""
    leader_epoch: LeaderEpoch = NO_LEADER
    """Of the last record that was read; `NO_LEADER` where that is not known."""
    metadata: str = ""
    """The member's own words."""
    committed_ms: int = 0
    """Milliseconds since 1970 by the coordinator's clock."""


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


_K = TypeVar("_K")
_V = TypeVar("_V")


class Image:
    def __init__(self, name: GroupName) -> None:
        self.name = name
        self.group = GroupValue()
        self.is_known = False
        """Whether there is a record of the group itself; offsets are never without one."""
        self.members: dict[MemberId, MemberValue] = {}
        self.targets: dict[MemberId, Partitions] = {}
        self.currents: dict[MemberId, CurrentValue] = {}
        self.offsets: dict[PartitionKey, OffsetValue] = {}
        self.owners: dict[PartitionKey, MemberId] = {}
        """Who has each partition, those that are being given up included: nobody else may be given it."""
        self.instances: dict[str, MemberId] = {}
        """Static members by their instance ids."""

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
