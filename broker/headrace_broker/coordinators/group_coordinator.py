"""The groups of one partition of the offsets topic on this broker: how they are asked, and who hears of them.

    coordinators ── wanted, began, changed, ignored, committed, ended ──> GroupsListener    (reports, metrics, lag)
    CoordinatedGroups    <── configure, offer, find, all ────────────────

All of it on the event loop. Everything that a listener is told is committed in the offsets topic; the groups that it
looks at may be ahead of that by what is being written (`is_settled`). The mechanism of a coordinator whose partition is
led here is in `coordinator_shell`.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Protocol, TypeAlias, assert_never

from headrace.core.coordinator import CoordinatorState
from headrace.core.errors import CoordinatorLoadingError
from headrace.core.groups.assignment import Topics
from headrace.core.groups.entries import Entry
from headrace.core.groups.events import (
    CommitReceived,
    Done,
    GroupChanged,
    Ignored,
    Notice,
    Reply,
    Request,
    TargetOffered,
)
from headrace.core.groups.group import Group
from headrace.core.groups.group_machine import ForGroup, GroupEvent, GroupMachine
from headrace.core.groups.identity import GroupName, GroupSettings, GroupType
from headrace.core.groups.records import decode, encode
from headrace_broker.coordinators.coordinator_log import EntryCodec
from headrace_broker.coordinators.coordinator_shell import CoordinatorShell
from headrace_broker.partition.partition import Partition

_log = logging.getLogger(__name__)
OFFSETS_LOG = EntryCodec(encode, decode, leaves_out=True)
GroupShell: TypeAlias = CoordinatorShell[Entry, GroupEvent, Reply, Notice]


class GroupsListener(Protocol):
    """The listener of groups. Each call returns at once, raises nothing, and asks back only `find` and `all`."""

    def wanted(self, group: GroupName, group_type: GroupType) -> None:
        """Note that somebody uses a group while the offsets topic is not there: it comes with the first ConsumerGroup.

        Told again and again for as long as clients try.
        """

    def began(self, groups: Collection[GroupName], took_s: float) -> None:
        """Note that this broker has begun to coordinate these, once it had read its log: what is shown of them may be
        old, and the targets in their status have yet to be offered."""

    def changed(self, group: GroupName) -> None:
        """Note that members, epochs or assignments have changed, or offsets were forgotten: show the group anew.

        A group that `CoordinatedGroups.find` no longer returns is dead: its auto-created ConsumerGroup is deleted.
        """

    def ignored(self, group: GroupName, reason: str) -> None:
        """Note that the target that was offered does not fit."""

    def committed(self, group: GroupName, offsets: int) -> None:
        """Note that a commit of so many offsets was taken."""

    def ended(self, groups: Collection[GroupName]) -> None:
        """Note that this broker coordinates these no more: their next coordinator will show them."""


class CoordinatedGroups(Protocol):
    """The groups that this broker coordinates just now."""

    def configure(self, group: GroupName, settings: GroupSettings | None) -> None:
        """Take the settings of the ConsumerGroup, by the clock of `clock.monotonic_ms`; None: it is gone.

        This is called for every group of the cluster, whichever broker coordinates it: the settings are kept for the
        time when this broker does.
        """

    def offer(self, group: GroupName, target: TargetOffered) -> None:
        """Take what the operator has published. Nothing happens where this broker does not coordinate the group."""

    def coordinates(self, group: GroupName) -> bool:
        """Return whether this broker would answer for it just now: then a group that `find` has not is dead."""

    def is_settled(self, group: GroupName) -> bool:
        """Return whether what `find` says of it is committed, but for offsets; else it will be told as `changed`."""

    def topics(self, namespace: str) -> Topics:
        """Return the topics of a namespace, as groups know them."""

    def find(self, group: GroupName) -> Group | None:
        """Return the group, for reading (`state`, `image`); None where it has no record, or another broker coordinates
        it."""

    def all(self) -> list[Group]:
        """Return all groups that `find` would find."""


class GroupCoordinator:
    def __init__(self, partition: Partition, listeners: Sequence[GroupsListener]) -> None:
        self.machine = GroupMachine()
        self.shell: GroupShell = CoordinatorShell(partition, self.machine, OFFSETS_LOG, self)
        self._listeners = listeners
        self._commits: dict[int, tuple[GroupName, int]] = {}
        """The commits that are not answered yet, and how many offsets each has."""

    def ask(self, group: GroupName, request: Request) -> "asyncio.Future[Reply]":
        """Return the answer to come. It raises what the request is refused with."""
        if isinstance(request, CommitReceived):
            self._commits[request.request] = (group, len(request.offsets))
        return self.shell.ask(request.request, ForGroup(group, request), str(group))

    def find(self, group: GroupName) -> Group | None:
        """Return the group, for reading; None where it has no record. Raise NotCoordinatorError or
        CoordinatorLoadingError where this broker does not coordinate it, or does not know."""
        if self.shell.state is CoordinatorState.LOADING:
            raise CoordinatorLoadingError(f"this broker has just become the coordinator of {group}: try again")
        self.shell.check_sure()
        return self.machine.groups.get(group)

    # -- `NoticeHandler` -----------------------------------------------------------------------------------------------

    def began(self, took_s: float) -> None:
        for listener in self._listeners:
            listener.began([*self.machine.groups], took_s)

    def notice(self, notice: Notice) -> None:
        match notice:
            case GroupChanged(group, reason):
                _log.debug("%s: %s", group, reason)
                for listener in self._listeners:
                    listener.changed(group)
            case Ignored(group, reason):
                for listener in self._listeners:
                    listener.ignored(group, reason)
            case _:
                assert_never(notice)

    def answered(self, request: int, reply: Reply) -> None:
        commit = self._commits.pop(request, None)
        if commit is not None and isinstance(reply, Done):
            for listener in self._listeners:
                listener.committed(*commit)

    def ended(self) -> None:
        self._commits.clear()
        for listener in self._listeners:
            listener.ended([*self.machine.groups])
