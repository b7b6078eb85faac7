"""One consumer group, as its coordinator runs it: `step(event, now_ms)` gives what to commit, and whom to tell what.

    dead ── a member joins, or offsets are committed ──> assigning or empty    (with members: `sharing`)
    empty ── a member joins ──> assigning ──> reconciling ──> stable ── the last member goes ──> empty
    empty ── deleted, or its offsets have expired ──> dead

All that must outlive this coordinator is in the image, and changed by records alone; sessions, timers and heartbeats
that wait are in memory. A step makes one decision: its records are one batch, and what it answers is true only once
that batch is committed, so that `Persist` comes first and `coordinator` holds back the rest. Where the batch cannot be
committed, the whole object is thrown away and read again from the log.

Invariants (`checking`): no partition has two owners; epochs and revisions only rise. Called by `coordinator`.
"""

from dataclasses import replace
from typing import assert_never

from headrace.core.coordinating import Refuse, Ticked
from headrace.core.errors import HeadraceError
from headrace.core.groups.draft import Draft
from headrace.core.groups.entries import GroupKey, GroupRecord, OffsetKey, OffsetRecord
from headrace.core.groups.events import (
    AbsenceReceived,
    Answer,
    Changed,
    CommitReceived,
    Configured,
    DeletionReceived,
    Done,
    Effect,
    Event,
    HeartbeatReceived,
    Ignored,
    JoinReceived,
    LeaveReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Persist,
    Request,
    ResetResolved,
    TargetOffered,
    TopicDeleted,
    TopicsSeen,
)
from headrace.core.groups.identity import NO_EPOCH, GroupState, GroupType, MemberId
from headrace.core.groups.image import Image
from headrace.core.groups.members import Members, unknown_member
from headrace.core.groups.offsets import check_commit, check_empty, check_offsets, expired, is_forgotten, of_topic
from headrace.core.groups.sessions import Sessions, Silence, Waiting, heartbeat_ms
from headrace.core.groups.settings import GroupSettings, Retention
from headrace.core.groups.sharing import Sharing
from headrace.core.groups.type_check import type_problem
from headrace.core.limits import GROUP_EXPIRY_INTERVAL_MS, GROUP_HEARTBEAT_MS_RECONCILING
from headrace.core.murmur2 import murmur2


class Group:
    def __init__(self, image: Image, *, now_ms: int, wall_ms: int) -> None:
        """`image` as its log has it: every member gets a whole session, and as long as ever to give up partitions."""
        self.image = image
        self._settings = GroupSettings()
        self._retention = image.group.retention
        """As it was said last, by the log or since."""
        self._draft = Draft(image)
        self._sessions = Sessions()
        self._members = Members(self._draft, self._sessions)
        self._sharing = Sharing(self._draft, self._sessions)
        self.wall_ms = wall_ms
        """Milliseconds since 1970, as its coordinator knows it."""
        # Not all groups of a coordinator at the same time.
        self._expire_at_ms = now_ms + 1 + murmur2(str(image.name).encode()) % GROUP_EXPIRY_INTERVAL_MS
        self._effects: list[Effect] = []
        """Of this step, without its records."""
        self._asking: list[MemberId] = []
        """Members whose heartbeats came with this step."""
        self._sessions.begin(image.members, now_ms, self._settings.session_ms)
        self._sharing.reconcile(now_ms)

    @property
    def due_ms(self) -> int:
        """Until then it need not be told that time goes by."""
        return min(self._sessions.due_ms, self._sharing.due_ms, self._expire_at_ms)

    @property
    def state(self) -> GroupState:
        return self._sharing.state

    def silences(self, now_ms: int) -> dict[MemberId, Silence]:
        """How long its members are silent: known to this coordinator only."""
        return self._sessions.silences(now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What to do about `event`, in this order; requests get one answer each, now or when there is news."""
        match event:
            case TargetOffered(epoch, target):
                problem = self._sharing.offer(epoch, target)
                self._effects += [Ignored(self.image.name, problem)] if problem else []
            case TopicsSeen(topics):
                self._sharing.see_topics(topics)
            case TopicDeleted(uid):
                for partition in of_topic(self.image, uid):
                    self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), None), "its topic was deleted")
            case Configured(settings):
                self._settings = self._members.settings = settings
                self._retention = Retention(settings.offsets_retention_ms)
                self._sharing.configure(settings)
                self._sessions.stretch(settings.session_ms)
            case Ticked(wall_ms):
                self.wall_ms = wall_ms
                self._maybe_forget(now_ms)  # before members go: their group is empty only from then on
                self._members.expire(now_ms)
            case _:
                self._receive(event, now_ms)
        return self._finished(now_ms, time_went_by=isinstance(event, Ticked))

    def _receive(self, event: Request, now_ms: int) -> None:
        try:
            if self.image.is_known and (problem := type_problem(self.image.name, event, self.image.group.type)):
                raise problem
            self._obey(event, now_ms)
        except HeadraceError as error:
            self._effects.append(Refuse(event.request, error, error.code))

    def _obey(self, event: Request, now_ms: int) -> None:
        match event:
            case JoinReceived():
                self._members.join(event, now_ms)
                self._await(event.member, Waiting(event.request, NO_EPOCH, 0, now_ms))
            case HeartbeatReceived():
                self._members.heartbeat(event, now_ms)
                until_ms = now_ms + min(event.wait_ms, heartbeat_ms(self._settings.session_ms))
                self._await(event.member, Waiting(event.request, event.epoch, event.revision, until_ms))
            case LeaveReceived():
                self._members.leave(event)
                self._done(event.request)
            case AbsenceReceived():
                self._members.go_away(event, now_ms)
                self._done(event.request)
            case CommitReceived():
                check_commit(self.image, event)
                self._write_offsets(event, "committed", event.type)
            case OffsetsAsked(request, partitions):
                known = self.image.offsets
                asked = known.keys() if partitions is None else partitions & known.keys()
                found = {partition: known[partition] for partition in asked}
                self._effects.append(Answer(request, Offsets(found), "offsets"))
            case ResetResolved():
                self._reset(event)
            case DeletionReceived(request):
                check_empty(self.image, "to be deleted")
                self._forget_all("deleted")
                self._done(request)
            case _:
                assert_never(event)

    def _await(self, member: MemberId, waiting: Waiting) -> None:
        """Answered at the end of this step, or of a later one. A member waits once: what it asked before is over."""
        session = self._sessions.by_member[member]
        if session.waiting is not None:
            self._answer(member, session.waiting)
        session.waiting = waiting
        self._asking.append(member)

    def abandon(self) -> list[int]:
        """Requests that wait for news and will not get any here."""
        return [session.waiting.request for session in self._sessions.by_member.values() if session.waiting is not None]

    def _write_offsets(
        self, event: CommitReceived | ResetResolved, reason: str, group_type: GroupType = GroupType.CONSUMER
    ) -> None:
        if not self.image.is_known:
            new = replace(self.image.group, empty_since_ms=self.wall_ms, type=group_type)
            self._draft.put_group(new, "the group is new")
        for partition, value in event.offsets.items():
            committed = replace(value, committed_ms=self.wall_ms)
            self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), committed), reason)
        self._done(event.request)

    def _reset(self, event: ResetResolved) -> None:
        if event.id == self.image.group.last_reset:
            self._done(event.request)
            return
        check_empty(self.image, "to be reset")
        check_offsets(self.image, event.offsets)
        self._write_offsets(event, f"reset {event.id}")
        self._draft.put_group(replace(self.image.group, last_reset=event.id), f"reset {event.id}")

    def _maybe_forget(self, now_ms: int) -> None:
        if now_ms < self._expire_at_ms:
            return
        self._expire_at_ms = now_ms + GROUP_EXPIRY_INTERVAL_MS
        for partition in expired(self.image, self.wall_ms):
            self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), None), "expired")
        if is_forgotten(self.image, self.wall_ms):
            self._forget_all("nothing is left of it")

    def _forget_all(self, reason: str) -> None:
        for partition in [*self.image.offsets]:
            self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), None), reason)
        if self.image.is_known:
            self._draft.put(GroupRecord(GroupKey(self.image.name), None), reason)

    def _keep_retention(self) -> None:
        """In the log: whoever coordinates the group next must not guess, if it cannot see the ConsumerGroup."""
        group = self.image.group
        if self.image.is_known and group.retention != self._retention:
            self._draft.put_group(replace(group, retention=self._retention), "offsets are kept for another time")

    def _finished(self, now_ms: int, *, time_went_by: bool) -> list[Effect]:
        self._sharing.settle(now_ms, self.wall_ms)
        self._keep_retention()
        touched = self._draft.touched
        entries, reason = self._draft.take()
        self._answer_who_waits([*self._sessions.by_member] if touched or time_went_by else self._asking, now_ms)
        if time_went_by:
            self._sessions.look_again()
        effects, self._effects, self._asking = self._effects, [], []
        persist: list[Effect] = [Persist(entries, reason)] if entries else []
        return [*persist, *effects, *([Changed(self.image.name, reason)] if touched else [])]

    def _answer_who_waits(self, members: list[MemberId], now_ms: int) -> None:
        for member in members:
            session = self._sessions.by_member[member]
            if session.waiting is None:
                continue
            if self._is_due(member, session.waiting, now_ms):
                self._answer(member, session.waiting)
                session.waiting = None
            else:
                self._sessions.keep_waiting(session.waiting)
        for request, member in self._members.unanswered:
            self._effects.append(Refuse(request, unknown_member(self.image.name, member), "it is no member any more"))
        self._members.unanswered.clear()

    def _is_due(self, member: MemberId, waiting: Waiting, now_ms: int) -> bool:
        current = self.image.currents[member]
        return now_ms >= waiting.until_ms or current.mark != (waiting.epoch, waiting.revision)

    def _answer(self, member: MemberId, waiting: Waiting) -> None:
        current = self.image.currents[member]
        is_known = current.mark == (waiting.epoch, waiting.revision)
        assigned = None if is_known else frozenset(current.assigned)
        session_ms = self._settings.session_ms
        reply = Membership(current.epoch, current.revision, assigned, self._heartbeat_ms(), session_ms)
        self._effects.append(Answer(waiting.request, reply, "as before" if is_known else "there is news"))

    def _heartbeat_ms(self) -> int:
        steady_ms = heartbeat_ms(self._settings.session_ms)
        return steady_ms if self.state is GroupState.STABLE else min(steady_ms, GROUP_HEARTBEAT_MS_RECONCILING)

    def _done(self, request: int) -> None:
        self._effects.append(Answer(request, Done(), "done"))
