"""One decision about one group, while it is made: the records that say it, applied to the image as they are put.

Everything that a step of `Group` changes is put here and taken out at its end as one batch, each key once. Owned by
one `Group`.
"""

from dataclasses import replace

from headrace.core.groups.entries import (
    CurrentKey,
    CurrentRecord,
    CurrentValue,
    Entry,
    GroupKey,
    GroupRecord,
    GroupValue,
    Key,
    MemberKey,
    MemberRecord,
    OffsetRecord,
    TargetKey,
    TargetRecord,
)
from headrace.core.groups.identity import GroupEpoch, MemberId
from headrace.core.groups.image import Image


class Draft:
    def __init__(self, image: Image) -> None:
        self.image = image
        self.regrouped = False
        """Members, or what they subscribe to, changed: the group's epoch must rise."""
        self.touched = False
        """More than offsets changed."""
        self.moved: set[MemberId] = set()
        """Members that have, or are to have, something else now."""
        self._entries: dict[Key, Entry] = {}
        self._reasons: dict[str, None] = {}

    @property
    def next_epoch(self) -> GroupEpoch:
        """The group's epoch once this decision is made, where it rises: once a decision, whoever joins with it."""
        return GroupEpoch(self.image.group.epoch + 1)

    def put(self, entry: Entry, reason: str) -> None:
        self.image.apply(entry)
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry
        self._reasons[reason] = None
        self.touched = self.touched or not isinstance(entry, OffsetRecord)
        if isinstance(entry, TargetRecord | CurrentRecord):
            self.moved.add(entry.key.member)

    def put_group(self, value: GroupValue, reason: str) -> None:
        self.put(GroupRecord(GroupKey(self.image.name), value), reason)

    def put_current(self, member: MemberId, value: CurrentValue, reason: str) -> None:
        """With the next revision."""
        raised = replace(value, revision=value.revision + 1)
        self.put(CurrentRecord(CurrentKey(self.image.name, member), raised), reason)

    def remove(self, member: MemberId, reason: str) -> None:
        """Whatever the member had is free now."""
        name = self.image.name
        self.put(MemberRecord(MemberKey(name, member), None), reason)
        self.put(CurrentRecord(CurrentKey(name, member), None), reason)
        if member in self.image.targets:
            self.put(TargetRecord(TargetKey(name, member), None), reason)

    def take(self) -> tuple[tuple[Entry, ...], str]:
        """What was put since it was last taken, and why."""
        taken = tuple(self._entries.values()), "; ".join(self._reasons)
        self._entries, self._reasons, self.moved = {}, {}, set()
        self.regrouped = self.touched = False
        return taken
