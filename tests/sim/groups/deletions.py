"""The replacements of rules of groups that are deleted (`groups.mutations`), each as small as can be."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.core.coordinator import Backlog, Coordinator, CoordinatorState, Told
from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import Partitions
from headrace.core.groups.entries import CurrentValue, Entry, Image
from headrace.core.groups.events import HeartbeatReceived, Notice, Reply, ResetResolved
from headrace.core.groups.group import Group
from headrace.core.groups.group_machine import GroupConfigured, GroupEffect, GroupEvent, GroupMachine
from headrace.core.groups.identity import GroupEpoch, GroupName, GroupSettings, MemberId, OffsetRetention
from headrace.core.groups.members import Members, advance, has_given_up
from headrace.core.groups.membership import MemberPhase, MemberState
from headrace.core.groups.rebalancing import misfit
from headrace.core.groups.sessions import Sessions
from headrace.core.resources.consumer_group import ConsumerGroupSpec
from headrace.core.types import PartitionKey
from tests.sim.groups.coordinating import Coordinating
from tests.sim.groups.shared import GROUP
from tests.support.group_world import GroupOrder

_next_request = MemberState._next_request
_forget = MemberState._forget
_checked = Members._checked
_init = Group.__init__
_act = GroupMachine.act


def everything_is_free(
    current: CurrentValue, target: Partitions, assignment_epoch: GroupEpoch, _: Callable[[PartitionKey], bool]
) -> CurrentValue:
    return advance(current, target, assignment_epoch, lambda _: True)


def taken_away(
    current: CurrentValue, target: Partitions, assignment_epoch: GroupEpoch, is_free: Callable[[PartitionKey], bool]
) -> CurrentValue:
    """Take partitions away at once, whatever the member reports."""
    ahead = advance(current, target, assignment_epoch, is_free)
    return replace(ahead, revoking={}) if ahead.revoking else ahead


def may_always_commit(current: CurrentValue, partition: PartitionKey, epoch: GroupEpoch) -> bool:
    return True


def commits_of_anybody(image: Image, event: object) -> None:
    pass


def never_overdue(self: Sessions, now_ms: int) -> list[tuple[MemberId, str]]:
    return []


def no_session(self: Sessions, members: Iterable[MemberId], now_ms: int, session_ms: int) -> None:
    """Begin short sessions in a coordinator that has just read its log: heartbeats must come by the next tick."""
    for member in members:
        self.refresh(member, now_ms, 0)


def may_always_be_shown(self: GroupMachine, group: GroupName) -> bool:
    return True


def takes_the_default(self: Group, image: Image, *, now_ms: int, wall_ms: int) -> None:
    """Take the default until the ConsumerGroup has how long offsets are kept."""
    _init(self, image, now_ms=now_ms, wall_ms=wall_ms)
    self._retention = OffsetRetention(ConsumerGroupSpec().offsets_retention_ms)


def gone_means_the_defaults(
    self: GroupMachine, event: GroupEvent, now_ms: int, backlog: Backlog
) -> Sequence[GroupEffect]:
    is_gone = isinstance(event, GroupConfigured) and event.settings is None
    return _act(self, GroupConfigured(GROUP, GroupSettings()) if is_gone else event, now_ms, backlog)


def is_always_silent(self: Sessions, member: MemberId, now_ms: int, session_ms: int) -> bool:
    return True


def gives_up_whenever_it_said_so(self: Members, event: HeartbeatReceived, now_ms: int) -> None:
    current = self._checked(event)
    session = self._sessions.refresh(event.member, now_ms, self.settings.session_ms)
    self._sessions.knows(session)
    if current.revoking.keys() - event.owned:
        session.revoke_by_ms = None
        self._draft.put_current(event.member, has_given_up(current, event.owned), "gave up")


def whatever_life_it_is_of(self: Members, event: HeartbeatReceived) -> CurrentValue:
    """Accept a member's heartbeat, of any life, as long as it has no more than it was sent."""
    current = self._image.currents.get(event.member)
    if current is None or (event.epoch, event.revision) >= current.joined:
        return _checked(self, event)
    return current


def remembers_what_it_asked(self: MemberState) -> None:
    """Lose everything, but remember what was asked in the life before."""
    sent = self._sent
    _forget(self)
    self._sent = sent


def always_sure(self: Coordinating, orders: Sequence[GroupOrder]) -> HeadraceError | None:
    return None


def told_at_once(self: Coordinator[Entry, GroupEvent, Reply, Notice]) -> list[Told[Reply, Notice]]:
    told = [each for _, each in self._untold]
    self._untold.clear()
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
    """Report partitions as given up while they are still read."""
    request, reason = _next_request(self)
    return (replace(request, owned=self.assigned) if isinstance(request, HeartbeatReceived) else request), reason


def reads_what_is_not_committed(self: Coordinating) -> bool:
    return self.coordinator.state is CoordinatorState.LOADING
