"""One consumer group, as its coordinator runs it: `step(event, now_ms)` gives what to commit, and what to answer.

    dead ── a member joins, or offsets are committed ──> assigning or empty    (with members: `rebalancing`)
    empty ── a member joins ──> assigning ──> reconciling ──> stable ── the last member goes ──> empty
    empty ── deleted, or its offsets have expired ──> dead

All that must outlive this coordinator is in the image, and changed by records alone; sessions, timers and heartbeats
that wait are in memory. A step makes one decision: its records are one batch, and its answers are true only once that
batch is committed, so `Persist` comes first and `core.coordinator` keeps the rest back. If the batch cannot be
committed, the whole object is thrown away and read again from the log.

A commit of a member counts for partitions that it has had without interruption since the epoch in which it made the
commit (KIP-1251); one that comes later is refused, whole. Without a member, only a group that has none takes commits.
Offsets belong to a topic's uid. While a group has members its offsets never age; once it is empty, each is forgotten
`offsetsRetention` after that or after it was committed, whichever is later. A topic that is merely out of sight keeps
its offsets; those of a topic that was deleted go at once.

Invariants: no partition has two owners; epochs and revisions only rise. Called by `group_machine`.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import assert_never

from headrace.core.coordinator import CoordinatorAnswer, Persist, Refuse, Ticked
from headrace.core.errors import (
    BatchTooLargeError,
    FencedMemberError,
    GroupFullError,
    GroupNotEmptyError,
    HeadraceError,
    InvalidRequestError,
)
from headrace.core.groups.entries import GroupKey, GroupRecord, Image, OffsetKey, OffsetRecord, OffsetValue
from headrace.core.groups.events import (
    AbsenceReceived,
    CommitReceived,
    DeletionReceived,
    Done,
    Effect,
    Event,
    GroupChanged,
    HeartbeatReceived,
    Ignored,
    JoinReceived,
    LeaveReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Request,
    ResetResolved,
    SettingsSeen,
    TargetOffered,
    TopicDeleted,
    TopicsSeen,
)
from headrace.core.groups.identity import (
    NO_GROUP_EPOCH,
    GroupSettings,
    GroupState,
    GroupType,
    MemberId,
    OffsetRetention,
)
from headrace.core.groups.members import Draft, Members, may_commit, type_problem, unknown_member
from headrace.core.groups.rebalancing import Sharing
from headrace.core.groups.records import offset_bytes
from headrace.core.groups.sessions import Sessions, Silence, Waiting, heartbeat_ms
from headrace.core.limits import GROUP_HEARTBEAT_MS_RECONCILING, OFFSET_METADATA_BYTES_MAX, OFFSETS_PER_COMMIT_MAX
from headrace.core.murmur2 import murmur2
from headrace.core.types import PartitionKey, TopicUid

OFFSETS_BYTES_PER_COMMIT_MAX = 4 << 20
"""The bytes of their records, which are one batch: below `maxMessageBytes` of the offsets topic, with room for the
group's."""
GROUP_OFFSETS_MAX = 1 << 15
"""The number of partitions of which a group remembers offsets: twice what it may consume, for topics that come and go.
To forget them all is one batch, too."""
GROUP_EXPIRY_INTERVAL_MS = 60_000
"""The interval at which each group searches for offsets that are too old, and forgets OFFSETS_PER_COMMIT_MAX of them at
most."""


def check_commit(image: Image, event: CommitReceived) -> None:
    """Raise InvalidRequestError, BatchTooLargeError, GroupFullError, GroupNotEmptyError, UnknownMemberError or
    FencedMemberError for a bad commit."""
    if len(event.offsets) > OFFSETS_PER_COMMIT_MAX:
        raise InvalidRequestError(
            f"the commit has {len(event.offsets)} offsets: at most {OFFSETS_PER_COMMIT_MAX} in one request, and any"
            " number of requests"
        )
    check_offsets(image, event.offsets)
    if event.member is None:
        check_empty(image, "to commit offsets from outside")
        return
    current = image.currents.get(event.member)
    if current is None:
        raise unknown_member(image.name, event.member)
    late = [partition for partition in event.offsets if not may_commit(current, partition, event.epoch)]
    if late:
        raise FencedMemberError(
            f"nothing is committed: in epoch {event.epoch} member {event.member} did not have {min(late)}, or has not"
            f" had it ever since; it is in {current.epoch} now",
            memberEpoch=current.epoch,
        )


def check_offsets(image: Image, offsets: Mapping[PartitionKey, OffsetValue]) -> None:
    """Raise InvalidRequestError, BatchTooLargeError or GroupFullError for bad offsets."""
    for partition, value in offsets.items():
        if value.offset < 0:
            raise InvalidRequestError(f"offset {value.offset} of {partition}: offsets begin at 0")
        if len(value.metadata.encode(errors="surrogatepass")) > OFFSET_METADATA_BYTES_MAX:
            raise InvalidRequestError(f"the metadata of {partition} has more than {OFFSET_METADATA_BYTES_MAX} bytes")
    if len(image.offsets) + sum(partition not in image.offsets for partition in offsets) > GROUP_OFFSETS_MAX:
        raise GroupFullError(
            f"{image.name} remembers the offsets of {GROUP_OFFSETS_MAX} partitions, and no more: use a second group",
            limit=GROUP_OFFSETS_MAX,
        )
    size_bytes = sum(offset_bytes(image.name, partition, value) for partition, value in offsets.items())
    if size_bytes > OFFSETS_BYTES_PER_COMMIT_MAX:
        raise BatchTooLargeError(
            f"{len(offsets)} offsets take {size_bytes} bytes with their metadata, and at most"
            f" {OFFSETS_BYTES_PER_COMMIT_MAX} are taken at once: send them in several requests, or with less metadata",
            limit=OFFSETS_BYTES_PER_COMMIT_MAX,
        )


def check_empty(image: Image, what_for: str) -> None:
    """Raise GroupNotEmptyError where it has members."""
    if image.members:
        raise GroupNotEmptyError(
            f"{image.name} has {len(image.members)} members; {what_for} it must have none: stop them, or wait for their"
            " sessions to expire",
            members=len(image.members),
        )


def expired_offsets(image: Image, wall_ms: int) -> list[PartitionKey]:
    """Return what to forget now: not everything at once where it is much."""
    before_ms = _forgotten_before_ms(image, wall_ms)
    if image.members or before_ms is None:
        return []
    since = image.group.empty_since_ms
    old = (partition for partition, value in image.offsets.items() if max(since, value.committed_ms) <= before_ms)
    return list(islice(old, OFFSETS_PER_COMMIT_MAX))


def is_forgotten(image: Image, wall_ms: int) -> bool:
    """Return whether nothing of the group is left to ask for. One that was reset stays: the same reset must not be
    carried out again."""
    before_ms = _forgotten_before_ms(image, wall_ms)
    old = before_ms is not None and image.group.empty_since_ms <= before_ms
    return image.is_known and old and not (image.members or image.offsets or image.group.last_reset)


def _forgotten_before_ms(image: Image, wall_ms: int) -> int | None:
    """Return the time before which offsets are forgotten; None: none are."""
    retention = image.group.retention
    return None if retention is None or retention.ms is None else wall_ms - retention.ms


def offsets_of_topic(image: Image, uid: TopicUid) -> list[PartitionKey]:
    return [partition for partition in image.offsets if partition.uid == uid]


class Group:
    def __init__(self, image: Image, *, now_ms: int, wall_ms: int) -> None:
        """Take `image` as its log has it: every member gets a whole session, and the usual time to give up
        partitions."""
        self.image = image
        self._settings = GroupSettings()
        self._retention = image.group.retention
        """The last known retention, from the log or since."""
        self._draft = Draft(image)
        self._sessions = Sessions()
        self._members = Members(self._draft, self._sessions)
        self._sharing = Sharing(self._draft, self._sessions)
        self.wall_ms = wall_ms
        """The time in milliseconds since 1970, as its coordinator knows it."""
        # The groups of a coordinator should not all do it at the same time.
        self._expire_at_ms = now_ms + 1 + murmur2(str(image.name).encode()) % GROUP_EXPIRY_INTERVAL_MS
        self._effects: list[Effect] = []
        """The effects of this step, without its records."""
        self._asking: list[MemberId] = []
        """The members whose heartbeats came with this step."""
        self._sessions.begin(image.members, now_ms, self._settings.session_ms)
        self._sharing.reconcile(now_ms)

    @property
    def due_ms(self) -> int:
        """Return until when it need not be ticked."""
        return min(self._sessions.due_ms, self._sharing.due_ms, self._expire_at_ms)

    @property
    def state(self) -> GroupState:
        return self._sharing.state

    def silences(self, now_ms: int) -> dict[MemberId, Silence]:
        """Return how long its members are silent: known to this coordinator only."""
        return self._sessions.silences(now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Return what to do about `event`, in this order; requests get one answer each, now or when there is news."""
        match event:
            case TargetOffered(epoch, target):
                problem = self._sharing.offer(epoch, target)
                self._effects += [Ignored(self.image.name, problem)] if problem else []
            case TopicsSeen(topics):
                self._sharing.see_topics(topics)
            case TopicDeleted(uid):
                for partition in offsets_of_topic(self.image, uid):
                    self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), None), "its topic was deleted")
            case SettingsSeen(settings):
                self._settings = self._members.settings = settings
                self._retention = OffsetRetention(settings.offsets_retention_ms)
                self._sharing.configure(settings)
                self._sessions.stretch(settings.session_ms)
            case Ticked(wall_ms):
                self.wall_ms = wall_ms
                self._maybe_forget(now_ms)  # This comes before members go: their group is empty only from then on.
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
                self._await(event.member, Waiting(event.request, NO_GROUP_EPOCH, 0, now_ms))
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
                self._effects.append(CoordinatorAnswer(request, Offsets(found), "offsets"))
            case ResetResolved():
                self._reset(event)
            case DeletionReceived(request):
                check_empty(self.image, "to be deleted")
                self._forget_all("deleted")
                self._done(request)
            case _:
                assert_never(event)

    def _await(self, member: MemberId, waiting: Waiting) -> None:
        """Answer at the end of this step, or of a later one. A member waits once: its earlier request is over."""
        session = self._sessions.by_member[member]
        if session.waiting is not None:
            self._answer(member, session.waiting)
        session.waiting = waiting
        self._asking.append(member)

    def abandon(self) -> list[int]:
        """Return the requests that wait for news and will not get any here."""
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
        for partition in expired_offsets(self.image, self.wall_ms):
            self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), None), "expired")
        if is_forgotten(self.image, self.wall_ms):
            self._forget_all("nothing is left of it")

    def _forget_all(self, reason: str) -> None:
        for partition in [*self.image.offsets]:
            self._draft.put(OffsetRecord(OffsetKey(self.image.name, partition), None), reason)
        if self.image.is_known:
            self._draft.put(GroupRecord(GroupKey(self.image.name), None), reason)

    def _keep_retention(self) -> None:
        """Put the retention in the log: the group's next coordinator must not guess it, if it cannot see the
        ConsumerGroup."""
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
            self._sessions.recompute_due()
        effects, self._effects, self._asking = self._effects, [], []
        persist: list[Effect] = [Persist(entries, reason)] if entries else []
        return [*persist, *effects, *([GroupChanged(self.image.name, reason)] if touched else [])]

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
        self._effects.append(CoordinatorAnswer(waiting.request, reply, "as before" if is_known else "there is news"))

    def _heartbeat_ms(self) -> int:
        steady_ms = heartbeat_ms(self._settings.session_ms)
        return steady_ms if self.state is GroupState.STABLE else min(steady_ms, GROUP_HEARTBEAT_MS_RECONCILING)

    def _done(self, request: int) -> None:
        self._effects.append(CoordinatorAnswer(request, Done(), "done"))
