"""The members of a group: joining, heartbeats, leaving, removal, and giving up before being given (KIP-848).

    unknown ── join ──> in       (the group's epoch rises)            in ── leave, session expired, too slow ──> unknown
    unknown ── join with the instance id of a member that is away or silent ──> in, in its place; the other is unknown
    in ── join ──> in            (its answer was lost, or it lost all: nothing changes, nothing counts as given up)
    in, static ── absence ──> away ── join ──> in                      away ── session expired ──> unknown

    settled ── the target lacks something it has ──> revoking ── it reports that it did, or is away ──> waiting, settled
       └─────── the target has something more ──> waiting (for others to give up) ── each that is free ──> settled

A member that is refused with UnknownMember, FencedMember or FencedInstance must give up all it has: the coordinator
counts on it. A static member that is alive is never replaced: the second process of its instance id waits. A member's
epoch stays while it gives up, so that it can still commit what it has read; it becomes the assignment's epoch with the
next partitions. A heartbeat counts only with the (epoch, revision) of the last answer. Members join and commit to
groups of type Consumer, a Spark query reports to its own type (`type_problem`): the two never mix.

Invariant: a partition that a member may believe to own is in `assigned` or `revoking` of its record, from before it is
answered until after it reports that it gave it up. A `Draft` collects the records of one decision, and applies them to
the image as they are put; `Members` raises before anything is put. Both are owned by one `Group`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.core.errors import (
    FencedInstanceError,
    FencedMemberError,
    GroupFullError,
    InvalidRequestError,
    UnknownMemberError,
    UnreleasedInstanceError,
    WrongGroupTypeError,
)
from headrace.core.groups.assignment import Partitions
from headrace.core.groups.entries import (
    CurrentKey,
    CurrentRecord,
    CurrentValue,
    Entry,
    GroupKey,
    GroupRecord,
    GroupValue,
    Image,
    Key,
    MemberKey,
    MemberRecord,
    MemberValue,
    OffsetRecord,
    TargetKey,
    TargetRecord,
)
from headrace.core.groups.events import (
    AbsenceReceived,
    CommitReceived,
    HeartbeatReceived,
    JoinReceived,
    LeaveReceived,
    ResetResolved,
)
from headrace.core.groups.identity import GroupEpoch, GroupName, GroupSettings, GroupType, MemberId
from headrace.core.groups.sessions import Sessions
from headrace.core.limits import (
    INSTANCE_ID_LENGTH_MAX,
    MEMBER_ID_LENGTH_MAX,
    REBALANCE_TIMEOUT_MS_MAX,
    REBALANCE_TIMEOUT_MS_MIN,
)
from headrace.core.types import PartitionKey

GROUP_MEMBERS_MAX = 1000
CLIENT_ADDRESS_LENGTH_MAX = 253


class Draft:
    def __init__(self, image: Image) -> None:
        self.image = image
        self.regrouped = False
        """True where members, or what they subscribe to, changed: the group's epoch must rise."""
        self.touched = False
        """True where more than offsets changed."""
        self.moved: set[MemberId] = set()
        """The members that have, or are to have, something else now."""
        self._entries: dict[Key, Entry] = {}
        self._reasons: dict[str, None] = {}

    @property
    def next_epoch(self) -> GroupEpoch:
        """Return the group's epoch once this decision is made, where it rises: once a decision, whatever members join
        with it."""
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
        """Put the value with the next revision."""
        raised = replace(value, revision=value.revision + 1)
        self.put(CurrentRecord(CurrentKey(self.image.name, member), raised), reason)

    def remove(self, member: MemberId, reason: str) -> None:
        """Remove a member; all that it had is free now."""
        name = self.image.name
        self.put(MemberRecord(MemberKey(name, member), None), reason)
        self.put(CurrentRecord(CurrentKey(name, member), None), reason)
        if member in self.image.targets:
            self.put(TargetRecord(TargetKey(name, member), None), reason)

    def take(self) -> tuple[tuple[Entry, ...], str]:
        """Return what was put since it was last taken, and why."""
        taken = tuple(self._entries.values()), "; ".join(self._reasons)
        self._entries, self._reasons, self.moved = {}, {}, set()
        self.regrouped = self.touched = False
        return taken


def type_problem(group: GroupName, event: Any, said: GroupType) -> WrongGroupTypeError | None:
    """Return the error of a use that does not suit the group; `said` is the type in the group's log, or in its
    ConsumerGroup; a use must suit both. None: it suits this."""
    wanted = _wanted(event)
    if wanted is None or wanted is said:
        return None
    if wanted is GroupType.SPARK:
        return WrongGroupTypeError(
            f"{group} is of type Consumer, and its members commit its offsets: let the query report to a group of"
            " another name, or delete this one first"
        )
    if isinstance(event, ResetResolved):
        return WrongGroupTypeError(
            f"{group} is of type Spark, whose query has its position in a checkpoint of its own: start the query with"
            " another checkpoint"
        )
    return WrongGroupTypeError(
        f"{group} is of type Spark: it shows how far a query is, which shares partitions out itself; take another name"
        " for the group"
    )


def _wanted(event: Any) -> GroupType | None:
    """Return what the group must be; None: either will do."""
    match event:
        case CommitReceived():
            return event.type
        case JoinReceived() | ResetResolved():
            return GroupType.CONSUMER
        case _:
            return None


def has_given_up(current: CurrentValue, owned: Partitions) -> CurrentValue:
    """Return the state once the member has seen `current`, and owns this: the part of `revoking` that it does not own
    is free."""
    left = {partition: epoch for partition, epoch in current.revoking.items() if partition in owned}
    return replace(current, revoking=left)


def advance(
    current: CurrentValue, target: Partitions, assignment_epoch: GroupEpoch, is_free: Callable[[PartitionKey], bool]
) -> CurrentValue:
    """Return the next step, or `current` where there is none. `is_free`: no other member has it."""
    if current.revoking:
        return current
    kept = {partition: epoch for partition, epoch in current.assigned.items() if partition in target}
    if len(kept) < len(current.assigned) and not current.away:
        given_up = {partition: epoch for partition, epoch in current.assigned.items() if partition not in target}
        return replace(current, assigned=kept, revoking=given_up)
    epoch = max(current.epoch, assignment_epoch)
    given = {partition: epoch for partition in target if partition not in kept and is_free(partition)}
    if epoch == current.epoch and not given and len(kept) == len(current.assigned):
        return current
    return replace(current, epoch=epoch, assigned=kept | given)


def may_commit(current: CurrentValue, partition: PartitionKey, epoch: GroupEpoch) -> bool:
    """Return whether a commit that the member made in `epoch` is no late one: it has had the partition without
    interruption since (KIP-1251)."""
    since = current.assigned.get(partition, current.revoking.get(partition))
    return since is not None and since <= epoch <= current.epoch


class Members:
    def __init__(self, draft: Draft, sessions: Sessions) -> None:
        self._draft = draft
        self._image = draft.image
        self._sessions = sessions
        self.settings = GroupSettings()
        self.unanswered: list[tuple[int, MemberId]] = []
        """The heartbeats that wait for news, of former members."""

    def join(self, event: JoinReceived, now_ms: int) -> None:
        """Let a member join. Raises InvalidRequestError, GroupFullError and UnreleasedInstanceError."""
        _check(event)
        known = self._image.members.get(event.member)
        holder = self._image.instances.get(event.instance)
        if known is not None:
            self._join_again(known, event)
        elif holder is not None:
            self._take_over(holder, event, now_ms)
        else:
            self._enter(event)
        session = self._sessions.refresh(event.member, now_ms, self.settings.session_ms)
        session.unaware_until_ms = session.expires_ms

    def heartbeat(self, event: HeartbeatReceived, now_ms: int) -> None:
        """Take a heartbeat. Raises UnknownMemberError, FencedInstanceError and FencedMemberError."""
        current = self._checked(event)
        session = self._sessions.refresh(event.member, now_ms, self.settings.session_ms)
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
        """Remove the member; does nothing where there is none, so that it may be repeated."""
        self._remove(event.member, "left")

    def go_away(self, event: AbsenceReceived, now_ms: int) -> None:
        """Note that a static member is away; for another member it is `leave`."""
        member = self._image.members.get(event.member)
        if member is None or not member.instance:
            self._remove(event.member, "left")
            return
        current = self._image.currents[event.member]
        self._sessions.refresh(event.member, now_ms, self.settings.session_ms)
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
        # No member of this id has had this epoch before: its requests of an earlier life are late.
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
            # The member may have lost all, and not know that it is to give something up: its earlier requests are late.
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
