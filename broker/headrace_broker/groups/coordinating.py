"""The groups of one partition of the offsets topic on this broker: how they are asked, and who hears of them.

What makes a coordinator of a partition that is led here is `internal_topics.coordinating`'s.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, assert_never

from headrace.core.coordinator_events import CoordinatorState
from headrace.core.errors import CoordinatorLoadingError, HeadraceError
from headrace.core.groups.coordinator import Coordinator, ForGroup
from headrace.core.groups.entries import Entry
from headrace.core.groups.events import Answer, Changed, CommitReceived, Done, Ignored, Reply, Request
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupName
from headrace.core.groups.records import decode, encode
from headrace_broker.groups.ports import GroupsListener
from headrace_broker.internal_topics.coordinating import LogCoordinating
from headrace_broker.internal_topics.log import Codec
from headrace_broker.internal_topics.requests import Requests
from headrace_broker.partition import Partition

_log = logging.getLogger(__name__)
OFFSETS_LOG = Codec(encode, decode, leaves_out=True)


class Coordinating(LogCoordinating[Entry, Reply]):
    def __init__(self, partition: Partition, requests: Requests[Reply], listeners: Sequence[GroupsListener]) -> None:
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

    def _tell(self, order: Answer | Changed | Ignored, problem: HeadraceError | None) -> None:
        match order:
            case Answer(request, reply) if problem is None:
                self._answer(request, reply)
            case Answer(request):
                assert problem is not None, "else it is answered"
                self.requests.refuse(request, problem)
            case Changed(group, reason):
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
        return isinstance(order, Answer)

    def _began(self, took_s: float) -> None:
        for listener in self._listeners:
            listener.began([*self.coordinator.groups], took_s)

    def _ends(self) -> None:
        self._ending = [*self.coordinator.groups]

    def _ended(self) -> None:
        self._commits.clear()
        for listener in self._listeners:
            listener.ended(self._ending)
