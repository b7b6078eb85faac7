"""The durable state of one group: what its records in the offsets topic say, the last one of each key.

Changed by `apply` alone, so that what a coordinator works with is what another one would read from the log. While a
log is replayed, and while a decision is made, entries come one by one; what must hold between members (`checking`)
holds where a batch ends. Owned by one `Group`.
"""

from typing import TypeVar, assert_never

from headrace.core.groups.assigning import Partitions
from headrace.core.groups.entries import (
    CurrentRecord,
    CurrentValue,
    Entry,
    GroupRecord,
    GroupValue,
    MemberRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    TargetRecord,
)
from headrace.core.groups.identity import GroupName, MemberId
from headrace.core.types import PartitionKey

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
