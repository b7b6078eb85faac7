"""A consumer's membership in its group: every decision of `Consumer(group=...)`. No I/O, no lock.

    `core.groups.membership`   says which requests to send, and which partitions are assigned, to be revoked, lost
    `assigned_partitions`      keeps the partitions that are read, what is committed, and where new ones begin
    `news`                     is set while the reader has something to do: partitions lost, to give up, to take up

Two sides call it, one at a time (the shells bring a lock): the background (`begin`, `answered`, `refused`, `look`,
`to_find`), and the reader (`take_lost`, `gave_up`, `take_up`, commits); `plan` gives the order. A lost partition leaves
`assigned` at once, so that nothing of it is committed any more; the reader hears of it before it is handed anything
else. A user that keeps records for longer than `max_poll_interval_ms` leaves the group; the next reading joins again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from headrace.client.consumer.cursor import Handed
from headrace.client.consumer.options import GroupOptions
from headrace.client.groups.assigned_partitions import (
    Beginning,
    Commit,
    Finding,
    Given,
    MemberPartition,
    MemberPartitions,
    Presence,
)
from headrace.client.groups.requests import Joined
from headrace.client.record import TopicPartition
from headrace.client.transport.retry import Trouble
from headrace.core.errors import (
    FencedMemberError,
    HeadraceError,
    LocalError,
    PollIntervalExceededError,
    StalledError,
    UnknownMemberError,
)
from headrace.core.groups.assignment import keys_of
from headrace.core.groups.events import CommitReceived, HeartbeatReceived, JoinReceived
from headrace.core.groups.identity import GroupState, MemberId
from headrace.core.groups.membership import (
    Assigned,
    Doubted,
    Effect,
    Event,
    GivenUp,
    Identity,
    Left,
    Lost,
    MemberPhase,
    MembershipAnswered,
    MembershipFailed,
    MembershipRefused,
    MembershipTicked,
    MemberState,
    Revoke,
    Send,
    Stopped,
)
from headrace.core.groups.sessions import Silence
from headrace.core.groups.status import GroupReport, MemberReport
from headrace.core.limits import GROUP_LOOK_MS_MAX
from headrace.core.types import PartitionKey, TopicUid

_NAMED_MAX = 5
"""The number of partitions of a topic that a message names."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A request to be sent; `answered` or `refused` takes the outcome."""

    send: Send
    names: Mapping[TopicUid, str]
    state: MemberState
    """The state that sends it: another one may have taken its place by the time of the answer."""

    @property
    def is_answered(self) -> bool:
        """Whether the answer is a membership."""
        return isinstance(self.send.request, JoinReceived | HeartbeatReceived)


class GroupMember:
    def __init__(
        self,
        options: GroupOptions,
        handed: Handed,
        new_member: Callable[[], MemberId],
        trouble: Trouble,
        timeout_ms: int,
    ) -> None:
        self.options = options
        self.what = f"group {options.group}"
        """The name of the group, as messages show it."""
        self.what_commits = f"the offsets of {self.what}"
        self.news = False
        self.holds_until_ns = 0
        """The time from which nothing may be handed out any more: a loop looks with each record, without a lock."""
        self.assigned = MemberPartitions()
        self.finding = Finding(timeout_ms)
        self._handed, self._new_member = handed, new_member
        self._trouble, self._timeout_ms = trouble, timeout_ms
        self._state: MemberState | None = None
        """The membership. None: this client is not in the group, and not about to be."""
        self._names: Mapping[TopicUid, str] = {}
        self._lost: list[TopicPartition] = []
        self._why_lost: HeadraceError | None = None
        """The reason of a loss, while the reader has not heard of it."""
        self._revokes: list[Revoke] = []
        self._error: HeadraceError | None = None
        self._failing_since_ms: int | None = None
        self._presence = Presence(handed)
        self._began_ms = 0
        """The time when it came into the group, or began to join."""
        self._told_silent: set[MemberId] = set()
        self._commit_at_ms = 0

    # -- keeping the place -------------------------------------------------------------------------------------------

    @property
    def is_in(self) -> bool:
        return self._state is not None and self._state.phase is MemberPhase.IN

    @property
    def has_failed(self) -> bool:
        """Whether `raise_error` has an error to raise."""
        return self._error is not None

    def begin(self, now_ms: int) -> list[Sending]:
        """Join the group, unless it is in already. A reading begins: the user is there."""
        self._presence.seen(now_ms)
        if self._state is not None:
            return []
        options = self.options
        who = Identity(self._new_member(), options.subscription, options.instance_id, options.max_poll_interval_ms)
        self._state, self._failing_since_ms, self._began_ms = MemberState(who, now_ms), now_ms, now_ms
        self._commit_at_ms = now_ms + (options.auto_commit_interval_ms or 0)
        return self._step(MembershipTicked(), now_ms)

    def answered(self, sending: Sending, joined: Joined | None, now_ms: int) -> list[Sending]:
        if sending.state is not self._state:
            return []
        membership = None
        if joined is not None:
            membership, names = joined
            owned = self._state.owned
            self._names = {uid: name for uid, name in self._names.items() if any(uid == o.uid for o in owned)}
            self._names = {**self._names, **names}
        self._failing_since_ms = None
        return self._step(MembershipAnswered(sending.send.request.request, membership), now_ms)

    def refused(self, sending: Sending, error: HeadraceError, now_ms: int) -> list[Sending]:
        """Take the failure of a request: the coordinator's, one on the way there, or that of the time limit."""
        if sending.state is not self._state:
            return []
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        failing_ms = now_ms - self._failing_since_ms
        if not isinstance(error, FencedMemberError | UnknownMemberError):
            self._trouble.tell(f"the place in {self.what}", error, self._failing_since_ms, now_ms)
        if failing_ms > self._timeout_ms and not self.is_in:
            self._fail(_given_up(self.what, error, failing_ms))
            self._failing_since_ms = now_ms
        return self._step(MembershipRefused(sending.send.request.request, error), now_ms)

    def look(self, now_ms: int) -> list[Sending]:
        """Do what is due by the time."""
        if self._state is None:
            return []
        if not self.is_in:
            self._presence.seen(now_ms)
        if self._presence.away_ms(now_ms) > self.options.max_poll_interval_ms:
            return self._leave_for_him(now_ms)
        return self._step(MembershipTicked(), now_ms)

    def die(self, error: BaseException) -> None:
        """Fail for good: the thread or task that looks after this has ended."""
        self._fail(StalledError(f"what keeps the place in {self.what} ended by {error!r}; make a new consumer"))

    def look_ms(self, now_ms: int) -> int:
        """Return how long it is until `look` is due."""
        due_ms = (None if self._state is None else self._state.next_ms, self.finding.next_ms(now_ms))
        return min([GROUP_LOOK_MS_MAX, *(max(0, each - now_ms) for each in due_ms if each is not None)])

    def leave(self, now_ms: int) -> list[Sending]:
        """Leave for good, with no partition in hand. A static member is only away: its partitions wait."""
        if self._state is None:
            return []
        sendings = self._step(Stopped(for_a_while=bool(self.options.instance_id)), now_ms)
        self._state, self._revokes, self._lost = None, [], []
        self.assigned.drop(self.assigned.held)
        self.finding.clear()
        self._tell()
        return sendings

    def _leave_for_him(self, now_ms: int) -> list[Sending]:
        assert self._state is not None, "only members leave"
        error = PollIntervalExceededError(
            f"{self.what}: what was handed out was kept for longer than max_poll_interval_ms,"
            f" {self.options.max_poll_interval_ms}: its partitions go to other members, and nothing of it is committed"
            " any more; hand out less at once, or allow for more time; iterate again to join again"
        )
        sendings = self._step(Stopped(), now_ms)
        self._state = None
        self._lose(error)
        self._fail(error)
        return sendings

    def _step(self, event: Event, now_ms: int) -> list[Sending]:
        assert self._state is not None, "it is in the group, or about to be"
        state = self._state
        effects = state.step(event, now_ms)
        for effect in effects:
            self._obey(effect)
        self._tell()
        return [Sending(effect, self._names, state) for effect in effects if isinstance(effect, Send)]

    def _obey(self, effect: Effect) -> None:
        match effect:
            case Revoke():
                self._revokes.append(effect)
                self.finding.forget(effect.partitions)
            case Lost(_, reason):
                self._lose(_thrown_out(self.what, reason))
            case MembershipFailed(error, _):
                self._state = None
                self._fail(error)
            case Left():
                self._state = None
            case Send() | Assigned():
                pass
            case _:
                assert_never(effect)

    def _lose(self, error: HeadraceError) -> None:
        self._lost += self.assigned.held
        self.assigned.drop(self.assigned.held)
        self.finding.clear()
        self._revokes = []
        self._why_lost = error if self._lost else None

    def _fail(self, error: HeadraceError) -> None:
        self._error = error
        self._tell()

    def _tell(self) -> None:
        self.news = bool(self._lost or self._revokes or self._error is not None or self.found())
        self.holds_until_ns = 0 if self._state is None else self._state.valid_until_ms * 1_000_000

    # -- where partitions begin --------------------------------------------------------------------------------------

    def to_find(self, now_ms: int) -> Given | None:
        """Return the partitions to look up; `tell_found` takes the outcome. None: there are none."""
        return self.finding.ask(self._new(), now_ms)

    def tell_found(self, given: Given, outcomes: Mapping[PartitionKey, Beginning | HeadraceError], now_ms: int) -> None:
        """Take the outcome of a look-up."""
        error = self.finding.answered(given, outcomes, now_ms)
        if error is not None:
            self._error = error
        self._tell()

    def names(self) -> Mapping[TopicUid, str]:
        return self._names

    def lacks(self) -> bool:
        """Return whether a partition that the group gave is still to be read."""
        return any(self.finding.is_open(key) for key in self._new())

    def missing(self, report: GroupReport) -> list[str] | None:
        """Return the wanted topics that no member reads, where the group is stable; None: it is not.

        The report may know a decision of the coordinator before this member does: the group counts as stable only when
        this member knows of all its partitions, and reads them.
        """
        state = self._state
        me = next((each for each in report.members if state is not None and each.member == state.identity.member), None)
        if report.state is not GroupState.STABLE or state is None or me is None:
            return None
        if self.news or self.lacks() or not keys_of(me.owned) <= state.assigned:
            return None
        read = {topic for member in report.members for topic in member.topics}
        return [name for name in self.options.subscription.names if name not in read]

    def silent(self, report: GroupReport, asked_ms: int) -> tuple[bool, list[str]]:
        """Return whether another member was not heard of since this one came, and has partitions that this one wants.

        A process that was killed is such a member: the group is stable, and nobody reads its partitions. The second
        value has the warnings about it, each once. `asked_ms` is when the report was asked for.
        """
        members = {each.member: each for each in report.members}
        me = None if self._state is None else members.pop(self._state.identity.member, None)
        if me is None:
            return False, []
        since_ms = asked_ms - self._began_ms
        silent = [
            (each, each.silence)
            for each in members.values()
            if each.silence is not None
            and each.silence.silent_ms > since_ms
            and any(listed.topic in me.topics for listed in each.owned)
        ]
        said = [_waits_for(self.what, *each) for each in silent if each[0].member not in self._told_silent]
        self._told_silent |= {each.member for each, _ in silent}
        return bool(silent), said

    # -- the reader --------------------------------------------------------------------------------------------------

    def holds(self, now_ms: int) -> bool:
        """Return whether records of the partitions may be handed out: no other member can have these partitions."""
        return not self.assigned.held or (self._state is not None and self._state.holds(now_ms))

    def take_lost(self) -> tuple[list[TopicPartition], str]:
        """Take the lost partitions, and the reason: the caller drops them, and tells the user."""
        why = "" if self._why_lost is None else self._why_lost.message
        lost, self._lost, self._why_lost = self._lost, [], None
        self._tell()
        return lost, why

    def revoked(self) -> tuple[Revoke, list[TopicPartition]] | None:
        """Return the partitions to commit and drop; the caller then calls `gave_up`."""
        if not self._revokes:
            return None
        revoke = self._revokes[0]
        return revoke, [place for place, assigned in self.assigned.held.items() if assigned.key in revoke.partitions]

    def gave_up(self, revoke: Revoke, partitions: list[TopicPartition], now_ms: int) -> list[Sending]:
        """Tell the coordinator that these are given up; nothing is sent if all was lost meanwhile: the user knows."""
        if revoke not in self._revokes or self._state is None:
            self._lost = [place for place in self._lost if place not in partitions]
            self._why_lost = self._why_lost if self._lost else None
            self._tell()
            return []
        self._revokes.remove(revoke)
        self.assigned.drop(partitions)
        return self._step(GivenUp(revoke.ticket), now_ms)

    def is_asked(self, revoke: Revoke) -> bool:
        """Return whether the partitions are still to be given up: all may be lost meanwhile."""
        return revoke in self._revokes

    def found(self) -> list[Beginning]:
        """Return the partitions to read from now on; the caller calls `take_up`."""
        if not self.finding.found:
            return []
        new = self._new()
        return [beginning for key, beginning in self.finding.found.items() if key in new]

    def take_up(self, taken: list[MemberPartition], now_ms: int) -> None:
        self.assigned.take_up(taken)
        self.finding.forget([assigned.key for assigned in taken])
        if any(assigned.committed is None for assigned in taken):
            self._commit_at_ms = now_ms  # The next member begins there too, whatever `start` means by then.
        self._tell()

    def raise_error(self) -> None:
        """Raise the error, if there is one; each is raised once."""
        error, self._error = self._error, None
        self._tell()
        if error is not None:
            raise error

    def _new(self) -> dict[PartitionKey, TopicPartition]:
        if self._state is None:
            return {}
        held = {assigned.key for assigned in self.assigned.held.values()}
        wanted = ((key, self._place(key)) for key in self._state.assigned - held)
        return {key: place for key, place in wanted if place is not None and place not in self.assigned.held}

    def _place(self, key: PartitionKey) -> TopicPartition | None:
        """Return the partition by its topic's name. None: nobody can name the topic any more."""
        name = self._names.get(key.uid)
        return TopicPartition(name, key.partition) if name else None

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit_of(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> Commit:
        """Return the user's commit. Raises FencedMemberError where the user does not know yet that all was lost."""
        if self._why_lost is not None:
            raise self._why_lost
        if offsets is None:
            return self.assigned.handed_out(self._handed, metadata)
        return self.assigned.named(offsets, self._handed, metadata)

    def passed(self, among: list[TopicPartition] | None = None) -> Commit:
        """Return the automatic commit; it is empty where only the user commits."""
        if self.options.auto_commit_interval_ms is None:
            return Commit(())
        return self.assigned.passed(self._handed, among)

    def commit_due(self, now_ms: int) -> Commit | None:
        interval_ms = self.options.auto_commit_interval_ms
        if interval_ms is None or now_ms < self._commit_at_ms or not self.is_in:
            return None
        self._commit_at_ms = now_ms + interval_ms
        commit = self.passed()
        if not commit.offsets:
            return None
        if self.assigned.first_undone is not None:  # The user goes on, however long a record stays in hand.
            self._presence.seen(now_ms)
        return commit

    def commit_request(self, commit: Commit) -> tuple[CommitReceived, Mapping[TopicUid, str]]:
        """Return the request, and the topics' names. Raises FencedMemberError where a partition went away since."""
        self.assigned.check(commit)
        if self._state is None:
            raise LocalError(f"{self.what}: this consumer is no member just now; iterate it to join again")
        request = CommitReceived(0, commit.values(), self._state.identity.member, self._state.epoch)
        return request, self._names

    def committed(self, commit: Commit, error: HeadraceError | None, now_ms: int) -> list[Sending]:
        """Take the outcome of a commit."""
        if error is None:
            commit.written()
        elif isinstance(error, FencedMemberError | UnknownMemberError) and self._state is not None:
            return self._step(Doubted(error.message), now_ms)
        elif error.retriable and self.options.auto_commit_interval_ms is not None:
            self._commit_at_ms = min(self._commit_at_ms, now_ms + GROUP_LOOK_MS_MAX)
        return []

    def not_committed(self, error: HeadraceError) -> str:
        """Return the sentence for the log."""
        return f"{self.what_commits} were not committed, and some records will be read again: {error.message}"


def _thrown_out(what: str, reason: str) -> FencedMemberError:
    return FencedMemberError(
        f"{what}: this member has lost its partitions ({reason}); nothing that it read since its last commit is"
        " committed, and others read it again; iterate again to go on with what it is given now"
    )


def _waits_for(what: str, member: MemberReport, silence: Silence) -> str:
    who = (member.instance or member.member) + (f" ({member.client_address})" if member.client_address else "")
    owned = ", ".join(f"{each.topic}/{number}" for each in member.owned for number in each.partitions[:_NAMED_MAX])
    return (
        f"{what}: {who} has {owned} and was heard of {silence.silent_ms / 1000:.1f} s ago, before this one came; if it"
        f" is gone it loses them in {silence.expires_in_ms / 1000:.1f} s: waiting for that"
    )


def _given_up(what: str, error: HeadraceError, failing_ms: int) -> HeadraceError:
    message = f"gave up on the place in {what} after {failing_ms / 1000:.1f} s: {error.message}"
    return type(error)(message, **error.details)
