"""The groups of one partition of the offsets topic on this broker: how they are asked, and who hears of them.

    coordinators ── wanted, began, changed, ignored, committed, ended ──> GroupsListener    (reports, metrics, lag)
    CoordinatedGroups    <── configure, offer, find, all ────────────────

All of it on the event loop. Everything that a listener is told is committed in the offsets topic; the groups that it
looks at may be ahead of that by what is being written (`is_settled`). The mechanism of a coordinator whose partition is
led here is in `log_coordinator`.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any, Protocol, assert_never

from headrace.core.coordinator_events import CoordinatorState
from headrace.core.errors import CoordinatorLoadingError, HeadraceError
from headrace.core.groups.assignment import Topics
from headrace.core.groups.coordinator import Coordinator, ForGroup
from headrace.core.groups.entries import Entry
from headrace.core.groups.events import (
    CommitReceived,
    Done,
    GroupAnswer,
    GroupChanged,
    Ignored,
    Reply,
    Request,
    TargetOffered,
)
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupName, GroupSettings, GroupType
from headrace.core.groups.records import decode, encode
from headrace_broker.coordinators.coordinator_log import EntryCodec
from headrace_broker.coordinators.log_coordinator import LogCoordinating, WaitingRequests
from headrace_broker.partition.partition import Partition


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


_log = logging.getLogger(__name__)
OFFSETS_LOG = EntryCodec(encode, decode, leaves_out=True)


class GroupCoordinating(LogCoordinating[Entry, Reply]):
    def __init__(
        self, partition: Partition, requests: WaitingRequests[Reply], listeners: Sequence[GroupsListener]
    ) -> None:
        self.coordinator = Coordinator()
        super().__init__(partition, self.coordinator, OFFSETS_LOG, requests)
        self._listeners = listeners
        self._commits: dict[int, tuple[GroupName, int]] = {}
        """Those that are not answered yet, and how many offsets each has."""
        self._ending: list[GroupName] = []

    def ask(self, group: GroupName, request: Request) -> "asyncio.Future[Reply]":
        """The answer, once it may be told. Raises what it is refused with."""
        if isinstance(request, CommitReceived):
            self._commits[request.request] = (group, len(request.offsets))
        return self.ask_machine(request.request, ForGroup(group, request), str(group))

    def find(self, group: GroupName) -> Group | None:
        """For reading; None where it has no record. Raises NotCoordinatorError, CoordinatorLoadingError."""
        if self.coordinator.state is CoordinatorState.LOADING:
            raise CoordinatorLoadingError(f"this broker has just become the coordinator of {group}: try again")
        self.check_sure()
        return self.coordinator.groups.get(group)

    @property
    def has_work(self) -> bool:
        return bool(self.coordinator.groups)

    @property
    def holds(self) -> str:
        return f"{len(self.coordinator.groups)} groups"

    def _tell(self, order: GroupAnswer | GroupChanged | Ignored, problem: HeadraceError | None) -> None:
        match order:
            case GroupAnswer(request, reply) if problem is None:
                self._answer(request, reply)
            case GroupAnswer(request):
                assert problem is not None, "else it is answered"
                self.requests.refuse(request, problem)
            case GroupChanged(group, reason):
                _log.debug("%s: %s", group, reason)
                for listener in self._listeners:
                    listener.changed(group)
            case Ignored(group, reason):
                for listener in self._listeners:
                    listener.ignored(group, reason)
            case _:
                assert_never(order)

    def _answer(self, request: int, reply: Reply) -> None:
        self.requests.answer(request, reply)
        commit = self._commits.pop(request, None)
        if commit is not None and isinstance(reply, Done):
            for listener in self._listeners:
                listener.committed(*commit)

    def _is_answer(self, order: Any) -> bool:
        return isinstance(order, GroupAnswer)

    def _began(self, took_s: float) -> None:
        for listener in self._listeners:
            listener.began([*self.coordinator.groups], took_s)

    def _ends(self) -> None:
        self._ending = [*self.coordinator.groups]

    def _ended(self) -> None:
        self._commits.clear()
        for listener in self._listeners:
            listener.ended(self._ending)
