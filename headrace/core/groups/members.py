"""Who is in a group: joining, heartbeats, leaving, and being thrown out.

    unknown ── join ──> in       (the group's epoch rises)            in ── leave, session expired, too slow ──> unknown
    unknown ── join with the instance id of a member that is away or silent ──> in, in its place; the other is unknown
    in ── join ──> in            (its answer was lost, or it lost all: nothing changes, nothing counts as given up)
    in, static ── absence ──> away ── join ──> in                      away ── session expired ──> unknown

Whoever is refused with UnknownMember, FencedMember or FencedInstance must give up all it has: the coordinator counts
on it, and whatever it sends later is refused. A static member that is alive is never replaced: the second process of
its instance id waits. A join that comes late, of a process that is gone, is a member for one session at most.

Raises before anything is put into the draft. Owned by one `Group`.
"""

from dataclasses import replace

from headrace.core.errors import (
    FencedInstanceError,
    FencedMemberError,
    GroupFullError,
    InvalidRequestError,
    UnknownMemberError,
    UnreleasedInstanceError,
)
from headrace.core.groups.draft import Draft
from headrace.core.groups.entries import (
    CurrentKey,
    CurrentRecord,
    CurrentValue,
    MemberKey,
    MemberRecord,
    MemberValue,
    TargetKey,
    TargetRecord,
)
from headrace.core.groups.events import AbsenceReceived, HeartbeatReceived, JoinReceived, LeaveReceived
from headrace.core.groups.identity import GroupName, MemberId
from headrace.core.groups.member import has_given_up
from headrace.core.groups.sessions import Sessions
from headrace.core.groups.settings import GroupSettings
from headrace.core.limits import (
    CLIENT_ADDRESS_LENGTH_MAX,
    GROUP_MEMBERS_MAX,
    INSTANCE_ID_LENGTH_MAX,
    MEMBER_ID_LENGTH_MAX,
    REBALANCE_TIMEOUT_MS_MAX,
    REBALANCE_TIMEOUT_MS_MIN,
)


class Members:
    def __init__(self, draft: Draft, sessions: Sessions) -> None:
        self._draft = draft
        self._image = draft.image
        self._sessions = sessions
        self.settings = GroupSettings()
        self.unanswered: list[tuple[int, MemberId]] = []
        """Heartbeats that wait for news, of members that are none any more."""

    def join(self, event: JoinReceived, now_ms: int) -> None:
        """Raises InvalidRequestError, GroupFullError and UnreleasedInstanceError."""
        _check(event)
        known = self._image.members.get(event.member)
        holder = self._image.instances.get(event.instance)
        if known is not None:
            self._join_again(known, event)
        elif holder is not None:
            self._take_over(holder, event, now_ms)
        else:
            self._enter(event)
        session = self._sessions.hear(event.member, now_ms, self.settings.session_ms)
        session.unaware_until_ms = session.expires_ms

    def heartbeat(self, event: HeartbeatReceived, now_ms: int) -> None:
        """Raises UnknownMemberError, FencedInstanceError and FencedMemberError."""
        current = self._checked(event)
        session = self._sessions.hear(event.member, now_ms, self.settings.session_ms)
        if event.subscription is not None:
            self._describe(event.member, replace(self._image.members[event.member], subscription=event.subscription))
        if (event.epoch, event.revision) != current.mark:
            return
        self._sessions.knows(session)
        if current.revoking.keys() - event.owned:
            session.revoke_by_ms = None
            given_up = has_given_up(current, event.owned)
            self._draft.put_current(event.member, given_up, f"{event.member} gave partitions up")

    def leave(self, event: LeaveReceived) -> None:
        """Nothing where there is no such member: it may say so again."""
        self._remove(event.member, "left")

    def go_away(self, event: AbsenceReceived, now_ms: int) -> None:
        """As `leave`, for who is not static."""
        member = self._image.members.get(event.member)
        if member is None or not member.instance:
            self._remove(event.member, "left")
            return
        current = self._image.currents[event.member]
        self._sessions.hear(event.member, now_ms, self.settings.session_ms)
        if not current.away:
            self._draft.put_current(
                event.member, replace(current, revoking={}, away=True), f"{event.member} is away for a while"
            )

    def expire(self, now_ms: int) -> None:
        for member, reason in self._sessions.overdue(now_ms):
            self._remove(member, reason)

    def _checked(self, event: HeartbeatReceived) -> CurrentValue:
        current = self._image.currents.get(event.member)
        holder = self._image.instances.get(event.instance, event.member)
        if holder != event.member:
            raise FencedInstanceError(
                f"the instance {event.instance} is {holder} now, no longer {event.member}: give up all partitions; two"
                " processes run with one instance id, or this one was taken for dead",
                holder=holder,
            )
        if current is None:
            raise unknown_member(self._image.name, event.member)
        said = (event.epoch, event.revision)
        if not current.joined <= said <= current.mark or current.away:
            raise FencedMemberError(
                f"member {event.member} says it is in epoch and revision {said}, its coordinator knows"
                f" {'that it is away' if current.away else f'{current.joined} to {current.mark}'}: give up all"
                " partitions and join again"
            )
        owns_more = event.owned - current.assigned.keys() - current.revoking.keys()
        if said == current.mark and owns_more:
            raise FencedMemberError(
                f"member {event.member} says that it owns {min(owns_more)}, which it was not given: give up all"
                " partitions and join again"
            )
        return current

    def _enter(self, event: JoinReceived) -> None:
        if len(self._image.members) >= GROUP_MEMBERS_MAX:
            raise GroupFullError(
                f"{self._image.name} has {GROUP_MEMBERS_MAX} members, and takes no more: let fewer read more partitions"
                " each, or use a second group",
                limit=GROUP_MEMBERS_MAX,
            )
        reason = f"{event.member} joined"
        name = self._image.name
        self._draft.put(MemberRecord(MemberKey(name, event.member), _described(event)), reason)
        # An epoch that no member of this id has had before: whatever it said in an earlier life is late.
        current = CurrentValue(self._draft.next_epoch, joined=(self._draft.next_epoch, 0))
        self._draft.put(CurrentRecord(CurrentKey(name, event.member), current), reason)
        self._draft.regrouped = True

    def _join_again(self, known: MemberValue, event: JoinReceived) -> None:
        if known.instance != event.instance:
            raise InvalidRequestError(
                f"member {event.member} joined with the instance id {known.instance!r} and now says {event.instance!r}:"
                " a process that changes it takes another member id"
            )
        self._describe(event.member, _described(event))
        current = self._image.currents[event.member]
        if current.away:
            self._draft.put_current(event.member, replace(current, away=False), f"{event.member} is back")
        elif current.revoking:
            # It may have lost all, and not know that it is to give something up: what it said before is late.
            self._draft.put_current(event.member, current, f"{event.member} begins again")

    def _take_over(self, holder: MemberId, event: JoinReceived, now_ms: int) -> None:
        current = self._image.currents[holder]
        if not current.away and not self._sessions.is_silent(holder, now_ms, self.settings.session_ms):
            raise UnreleasedInstanceError(
                f"the instance {event.instance} is {holder}, which is alive: two processes run with one instance id, or"
                " the first has just died; try again",
                holder=holder,
            )
        reason = f"{event.member} takes the place of {holder}"
        before, target = self._image.members[holder], self._image.targets.get(holder)
        self._draft.remove(holder, reason)
        self._forget(holder)
        name = self._image.name
        self._draft.put(MemberRecord(MemberKey(name, event.member), before), reason)
        joined = (current.epoch, current.revision + 1)
        self._draft.put_current(event.member, replace(current, revoking={}, away=False, joined=joined), reason)
        if target is not None:
            self._draft.put(TargetRecord(TargetKey(name, event.member), target), reason)
        self._describe(event.member, _described(event))

    def _describe(self, member: MemberId, value: MemberValue) -> None:
        before = self._image.members[member]
        if before != value:
            self._draft.put(MemberRecord(MemberKey(self._image.name, member), value), f"{member} describes itself anew")
            self._draft.regrouped |= before.subscription != value.subscription

    def _remove(self, member: MemberId, reason: str) -> None:
        if member in self._image.members:
            self._draft.remove(member, f"{member}: {reason}")
            self._draft.regrouped = True
            self._forget(member)

    def _forget(self, member: MemberId) -> None:
        waiting = self._sessions.by_member.pop(member).waiting
        if waiting is not None:
            self.unanswered.append((waiting.request, member))


def unknown_member(group: GroupName, member: MemberId) -> UnknownMemberError:
    return UnknownMemberError(
        f"{group} has no member {member}: it left, was not heard from within its session, or was too slow to give"
        " partitions up; give up all partitions and join again"
    )


def _described(event: JoinReceived) -> MemberValue:
    return MemberValue(event.subscription, event.instance, event.client_address, event.rebalance_timeout_ms)


def _check(event: JoinReceived) -> None:
    for what, text, length in (
        ("member id", event.member, MEMBER_ID_LENGTH_MAX),
        ("instance id", event.instance, INSTANCE_ID_LENGTH_MAX),
        ("client address", event.client_address, CLIENT_ADDRESS_LENGTH_MAX),
    ):
        if len(text) > length:
            raise InvalidRequestError(f"the {what} has {len(text)} characters: at most {length}")
    if not event.member:
        raise InvalidRequestError("the member id is empty: make one up, as a random UUID, and keep it while you run")
    if not REBALANCE_TIMEOUT_MS_MIN <= event.rebalance_timeout_ms <= REBALANCE_TIMEOUT_MS_MAX:
        raise InvalidRequestError(
            f"the rebalance timeout is {event.rebalance_timeout_ms} ms: from {REBALANCE_TIMEOUT_MS_MIN} to"
            f" {REBALANCE_TIMEOUT_MS_MAX}"
        )
