"""What takes the place of rules of groups that are deleted (`groups.mutations`), each as small as can be."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.core.groups.assigning import Partitions
from headrace.core.groups.coordinator import Coordinator, CoordinatorState, Told
from headrace.core.groups.entries import CurrentValue
from headrace.core.groups.events import HeartbeatReceived, ResetResolved
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupEpoch, MemberId
from headrace.core.groups.image import Image
from headrace.core.groups.member import advance
from headrace.core.groups.membership import MemberPhase, MemberState
from headrace.core.groups.sessions import Sessions
from headrace.core.groups.targets import misfit
from headrace.core.types import PartitionKey
from tests.sim.groups.coordinating import Coordinating

_next_request = MemberState._next_request


def everything_is_free(
    current: CurrentValue, target: Partitions, assignment_epoch: GroupEpoch, _: Callable[[PartitionKey], bool]
) -> CurrentValue:
    return advance(current, target, assignment_epoch, lambda _: True)


def taken_away(
    current: CurrentValue, target: Partitions, assignment_epoch: GroupEpoch, is_free: Callable[[PartitionKey], bool]
) -> CurrentValue:
    """At once, whatever the member says."""
    ahead = advance(current, target, assignment_epoch, is_free)
    return replace(ahead, revoking={}) if ahead.revoking else ahead


def may_always_commit(current: CurrentValue, partition: PartitionKey, epoch: GroupEpoch) -> bool:
    return True


def commits_of_anybody(image: Image, event: object) -> None:
    pass


def never_overdue(self: Sessions, now_ms: int) -> list[tuple[MemberId, str]]:
    return []


def no_session(self: Sessions, members: Iterable[MemberId], now_ms: int, session_ms: int) -> None:
    """Of a coordinator that has just read its log: members have to be heard from by the next tick."""
    for member in members:
        self.hear(member, now_ms, 0)


def told_at_once(self: Coordinator) -> list[Told]:
    told = [each for _, each in self._held]
    self._held.clear()
    return told


def fits_whoever_has_members(offered: Mapping[MemberId, Partitions], epoch: GroupEpoch, image: Image) -> str:
    why = misfit(offered, epoch, image)
    return why if offered.keys() != image.members.keys() else ""


def whoever_is_in_it(image: Image, what_for: str) -> None:
    pass


def resets_again(self: Group, event: ResetResolved) -> None:
    if not self.image.members:
        self._write_offsets(event, "reset")
        self._draft.put_group(replace(self.image.group, last_reset=event.id), "reset")
    else:
        self._done(event.request)


def holds_for_ever(self: MemberState) -> int:
    return 1 << 60 if self.phase is MemberPhase.IN else 0


def says_it_gave_up(self: MemberState) -> tuple[Any, str]:
    """While it still reads."""
    request, reason = _next_request(self)
    return (replace(request, owned=self.assigned) if isinstance(request, HeartbeatReceived) else request), reason


def reads_what_is_not_committed(self: Coordinating) -> bool:
    return self.coordinator.state is CoordinatorState.LOADING
