"""The invariants of a group, which the simulator and tests can check at any time, on any log.

- **NoDoubleAssignment**: at no time do two members of a group both own a partition with valid epochs. A member owns
  what it believes to own; its epoch is valid as long as it is a member and in the same life of it. No partition is
  in two members' records, so it is enough that none of them claims more than its record has.
- Epochs and revisions only rise, and none is above the group's.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.core.groups.assignment import Partitions
from headrace.core.groups.entries import Image, Mark
from headrace.core.groups.identity import GroupEpoch, MemberId
from headrace.core.groups.members import may_commit
from headrace.core.types import PartitionKey


class OwnershipClaim(NamedTuple):
    """The claim of a process to own partitions."""

    member: MemberId
    mark: Mark
    """The mark of the last answer it has seen."""
    owned: Partitions


class Marks(NamedTuple):
    """The numbers that only rise."""

    group: tuple[GroupEpoch, GroupEpoch]
    members: Mapping[MemberId, Mark]


def marks(image: Image) -> Marks:
    group = image.group
    return Marks(
        (group.epoch, group.assignment_epoch),
        {member: current.mark for member, current in image.currents.items()},
    )


def fallen(before: Marks, after: Marks) -> list[str]:
    """Return what went back between two moments of one group that was not deleted in between."""
    found = [f"the group went from {before.group} to {after.group}"] if after.group < before.group else []
    for member, mark in before.members.items():
        if after.members.get(member, mark) < mark:
            found.append(f"{member} went from {mark} to {after.members[member]}")
    return found


def broken(image: Image) -> list[str]:
    """Return the rules that a group's records break."""
    group = image.group
    found = []
    if image.members.keys() != image.currents.keys() or not image.targets.keys() <= image.members.keys():
        found.append("there are records of members that are none")
    if group.assignment_epoch > group.epoch:
        found.append(f"assigned for epoch {group.assignment_epoch}, in epoch {group.epoch}")
    for member, current in image.currents.items():
        if max([*current.assigned.values(), *current.revoking.values()], default=0) > current.epoch:
            found.append(f"{member} has a partition since after its epoch {current.epoch}")
        if current.epoch > group.epoch:
            found.append(f"{member} is in epoch {current.epoch}, the group in {group.epoch}")
    found += _twice({member: (*c.assigned, *c.revoking) for member, c in image.currents.items()}, "is in two records")
    return found + _twice(image.targets, "is in two targets")


def double_owners(image: Image, claims: Iterable[OwnershipClaim]) -> list[str]:
    """Return the partitions with two valid owners; a process may claim anything, as long as the claim is not valid."""
    valid: dict[MemberId, set[PartitionKey]] = {}
    found = []
    for member, mark, owned in claims:
        current = image.currents.get(member)
        if current is None or mark < current.joined:
            continue
        held = current.assigned.keys() | current.revoking.keys()
        if owned - held:
            found.append(f"{member} believes to own {min(owned - held)}, which is not in its record")
        valid.setdefault(member, set()).update(p for p in owned & held if may_commit(current, p, mark[0]))
    return found + _twice(valid, "has two owners")


def _twice(partitions: Mapping[MemberId, Iterable[PartitionKey]], what: str) -> list[str]:
    owners: dict[PartitionKey, MemberId] = {}
    found = []
    for member, each in partitions.items():
        for partition in set(each):
            if partition in owners:
                found.append(f"{partition} {what}: {owners[partition]} and {member}")
            owners[partition] = member
    return found
