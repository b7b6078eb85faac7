"""What those who coordinate groups and those who show them to Kubernetes ask of each other, within one broker.

    coordinators ── wanted, began, changed, ignored, committed, ended ──> GroupsListener    (watching, publishing, lag)
    CoordinatedGroups    <── configure, offer, find, all ────────────────

All of it on the event loop. Whatever a listener is told is committed in the offsets topic; the groups that it looks at
may be ahead of that by what is being written (`is_settled`).
"""

from collections.abc import Collection
from typing import Protocol

from headrace.core.groups.assignment import Topics
from headrace.core.groups.events import TargetOffered
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupName, GroupSettings, GroupType


class GroupsListener(Protocol):
    """Each call returns at once, raises nothing, and asks nothing back of who calls it but `find` and `all`."""

    def wanted(self, group: GroupName, group_type: GroupType) -> None:
        """Somebody uses a group while the offsets topic is not there: it comes with the first ConsumerGroup.

        Told again and again for as long as clients try.
        """

    def began(self, groups: Collection[GroupName], took_s: float) -> None:
        """This broker has begun to coordinate these, once it had read its log: what is shown of them may be old, and
        the targets that stand in their status have yet to be offered."""

    def changed(self, group: GroupName) -> None:
        """Members, epochs, assignments or offsets that were forgotten: it is to be shown anew.

        Where `CoordinatedGroups.find` has it no more, it is dead: an auto-created ConsumerGroup goes.
        """

    def ignored(self, group: GroupName, reason: str) -> None:
        """The target that was offered does not fit."""

    def committed(self, group: GroupName, offsets: int) -> None:
        """A commit of so many offsets was taken."""

    def ended(self, groups: Collection[GroupName]) -> None:
        """This broker coordinates these no more: whoever does will show them."""


class CoordinatedGroups(Protocol):
    """The groups whose coordinator this broker is just now."""

    def configure(self, group: GroupName, settings: GroupSettings | None) -> None:
        """What the ConsumerGroup says, by the clock of `clock.monotonic_ms`; None: there is none any more.

        For every group of the cluster, whoever coordinates it: it is remembered for whoever this broker may coordinate
        later.
        """

    def offer(self, group: GroupName, target: TargetOffered) -> None:
        """What the operator has published. Nothing happens where this broker does not coordinate the group."""

    def coordinates(self, group: GroupName) -> bool:
        """Whether this broker would answer for it just now: then a group that `find` has not is dead."""

    def is_settled(self, group: GroupName) -> bool:
        """Whether what `find` says of it is committed, but for offsets; else it will be told as `changed`."""

    def topics(self, namespace: str) -> Topics:
        """As groups know them."""

    def find(self, group: GroupName) -> Group | None:
        """None where the group has no record, or another broker coordinates it. For reading (`state`, `image`)."""

    def all(self) -> list[Group]:
        """All that `find` would find."""
