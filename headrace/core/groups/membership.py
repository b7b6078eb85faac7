"""A member of a group as its own process sees it: `step(event, now_ms)` returns what to send, read and stop reading.

    joining ── answered ──> in       joining ── refused for now, or not answered ──> joining, after a pause
    in ── answered: the same ──> in, heartbeats on
    in ── answered: more ──> in, reads it        in ── answered: less ──> in, gives it up, then reports it at once
    in ── UnknownMember, FencedMember; a session without an answer; too slow to give up ──> all lost, joining
    joining, in ── FencedInstance, or refused for good ──> all lost, gone
    joining, in ── stopped ──> leaving ── answered, refused, or not answered in time ──> gone

Everything is measured from when a request was sent, which is before the coordinator got it: so the member knows that it
has lost everything before the coordinator gives it to others, as long as it is ticked at `next_ms`, or `holds` is
checked before records are handed out. Only a static member that is silent is replaced sooner; then epochs fence
commits.

An answer counts if its request is of this life (since all was lost last), and brings news if its (epoch, revision) is
above what was seen. So answers and requests may be lost, late and doubled. Heartbeats wait at the coordinator for news
(`waits`), one after the other; an urgent message overtakes the one that waits. One consumer owns it. It bounds the
requests on their way. Only members of groups load it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from headrace.core.errors import (
    FencedInstanceError,
    FencedMemberError,
    HeadraceError,
    UnknownMemberError,
    UntrustedBrokerError,
)
from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.entries import Mark
from headrace.core.groups.events import AbsenceReceived, HeartbeatReceived, JoinReceived, LeaveReceived, Membership
from headrace.core.groups.identity import NO_GROUP_EPOCH, GroupEpoch, MemberId
from headrace.core.limits import (
    GROUP_HEARTBEAT_MS_MAX,
    GROUP_HEARTBEAT_MS_RECONCILING,
    GROUP_REQUEST_TIMEOUT_MS,
    MEMBER_REQUESTS_MAX,
    REBALANCE_TIMEOUT_MS_DEFAULT,
)
from headrace.core.murmur2 import murmur2

GROUP_RETRY_MS_MIN = 100
GROUP_RETRY_MS_MAX = 2_000
"""The longest pause of a member between requests that are refused for now."""
GROUP_LEAVE_MS_MAX = 5_000
"""The time in which a member tries to report that it leaves; later its session ends by itself."""
_NOWHERE: Mark = (NO_GROUP_EPOCH, 0)
_NOTHING: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class MembershipAnswered:
    request: int
    membership: Membership | None
    """The membership; None: of a request to leave."""


@dataclass(frozen=True, slots=True)
class MembershipRefused:
    """The request was refused, by the coordinator or a broker on the way, or failed, by connections and time limits."""

    request: int
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class MembershipTicked:
    """The time `MemberState.next_ms` is reached; an earlier tick does no harm."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The partitions of a `Revoke` are read no more, and what was read of them is committed."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Doubted:
    """A commit was refused as late: the coordinator is to send the present state."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing is read any more, and all is committed."""

    for_a_while: bool = False
    """True where another process of the same instance id will take over: partitions wait for it."""


Event: TypeAlias = MembershipAnswered | MembershipRefused | MembershipTicked | Subscribed | GivenUp | Doubted | Stopped


@dataclass(frozen=True, slots=True)
class Send:
    """The effect: send to the coordinator, beside the requests that are on their way: an answer to an earlier one may
    be waited for or not."""

    request: JoinReceived | HeartbeatReceived | LeaveReceived | AbsenceReceived
    timeout_ms: int
    """The time after which the sender may stop waiting: the request is sent again."""
    reason: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """The effect: read these as well, from what the group has committed."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """The effect: stop reading these, commit what was read, and send the event `GivenUp`; until then heartbeats list
    them as owned."""

    ticket: int
    partitions: Partitions
    by_ms: int
    """The time after which all is lost."""
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The effect: all that was owned, and what was to be given up, may be another member's; stop reading at once,
    commit nothing."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class MembershipFailed:
    """The effect of a permanent failure: this member will not be in the group again."""

    error: HeadraceError
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """The effect of the end that was asked for."""

    reason: str


Effect: TypeAlias = Send | Assigned | Revoke | Lost | MembershipFailed | Left


class MemberPhase(StrEnum):
    JOINING = "joining"
    IN = "in"
    LEAVING = "leaving"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a member, and what it joins for."""

    member: MemberId
    """The member's id, made up at random; another one for each `MemberState`."""
    subscription: Subscription
    instance: str = ""
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS_DEFAULT
    waits: bool = True
    """True where its heartbeats may wait for news."""


class MemberState:
    def __init__(self, identity: Identity, now_ms: int) -> None:
        self.phase = MemberPhase.JOINING
        self.identity = identity
        self.seen: Mark = _NOWHERE
        """The (epoch, revision) of the newest answer."""
        self.assigned: Partitions = _NOTHING
        self.owned: Partitions = _NOTHING
        """The partitions that are owned, those that are being given up included."""
        self._revoking: dict[int, Partitions] = {}
        """The partitions to give up, by ticket."""
        self._revoke_by_ms: int | None = None
        """The time until which its coordinator must have got the report that it gave up what it was asked to."""
        self._gave_up_in = 0
        """The number of the first request that reports it."""
        self._valid_until_ms = 0
        """The end of its validity, while it is in."""
        self._session_ms = 3 * GROUP_REQUEST_TIMEOUT_MS
        """The session of the last answer; before the first, so that a request has its usual time."""
        self._ticket = 0
        self._request = 0
        self._sent: dict[int, int] = {}
        """The send times of the requests of this life that are not answered."""
        self._answered_ms = now_ms
        """The send time of the newest request that is answered."""
        self._send_at_ms: int | None = now_ms
        """The time of the next request; None: the last one is on its way."""
        self._answer_by_ms = 0
        self._failures = 0
        """The failures in a row."""
        self._leave: type[LeaveReceived | AbsenceReceived] = LeaveReceived
        self._leave_by_ms = 0
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> GroupEpoch:
        """Return the epoch for commits."""
        return self.seen[0]

    @property
    def next_ms(self) -> int | None:
        """Return when to tick; None: never again."""
        if self.phase is MemberPhase.GONE:
            return None
        times = [self._answer_by_ms if self._send_at_ms is None else self._send_at_ms]
        if self.phase is MemberPhase.IN:
            times.append(self.valid_until_ms)
        if self.phase is MemberPhase.LEAVING:
            times.append(self._leave_by_ms)
        return min(times)

    @property
    def valid_until_ms(self) -> int:
        """Return the time from which on all that it owned may be another member's."""
        by_ms = self._valid_until_ms if self._revoke_by_ms is None else self._revoke_by_ms
        return min(self._valid_until_ms, by_ms) if self.phase is MemberPhase.IN else 0

    def holds(self, now_ms: int) -> bool:
        """Return whether records of what it owns may be handed out."""
        return now_ms < self.valid_until_ms

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Return what to do, in this order."""
        sent_ms = self._heard(event) if isinstance(event, MembershipAnswered | MembershipRefused) else None
        if self.phase is MemberPhase.IN and now_ms >= self.valid_until_ms:
            self._lose(self._why_over(now_ms), now_ms)
            sent_ms = None
        if not isinstance(event, MembershipAnswered | MembershipRefused):
            self._follow(event, now_ms)
        elif sent_ms is not None:
            self._hear(event, sent_ms, now_ms)
        if self.phase is not MemberPhase.GONE:
            self._maybe_send(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _follow(self, event: MembershipTicked | GivenUp | Subscribed | Doubted | Stopped, now_ms: int) -> None:
        match event:
            case GivenUp(ticket):
                self._give_up(ticket, now_ms)
            case Subscribed(subscription):
                self.identity = replace(self.identity, subscription=subscription)
                self._hurry(now_ms)
            case Doubted():
                self._hurry(now_ms)
            case Stopped(for_a_while):
                self._stop(for_a_while, now_ms)
            case MembershipTicked():
                pass
            case _:
                assert_never(event)

    def _hear(self, event: MembershipAnswered | MembershipRefused, sent_ms: int, now_ms: int) -> None:
        if isinstance(event, MembershipRefused):
            self._endure(event.request, event.error, now_ms)
        elif event.membership is None:
            self._end(Left("its coordinator knows it"))
        elif now_ms < self._valid_until_ms:
            self._take(event.request, event.membership, sent_ms, now_ms)

    def _heard(self, event: MembershipAnswered | MembershipRefused) -> int | None:
        """Return when the answer's request was sent; None: it is of an earlier life, or was answered before."""
        sent_ms = self._sent.pop(event.request, None)
        if sent_ms is not None and isinstance(event, MembershipAnswered) and event.membership is not None:
            self._session_ms = event.membership.session_ms
            self._valid_until_ms = max(self._valid_until_ms, sent_ms + self._session_ms)
        return sent_ms

    def _take(self, request: int, membership: Membership, sent_ms: int, now_ms: int) -> None:
        known_ms, self._answered_ms = self._answered_ms, max(self._answered_ms, sent_ms)
        if self.phase is MemberPhase.IN:
            self._failures = 0
        if request >= self._gave_up_in and not self._revoking:
            self._revoke_by_ms = None
        mark, pause_ms = (membership.epoch, membership.revision), self._pause_ms(membership)
        if mark > self.seen and membership.assigned is not None:
            self.phase, self.seen, self.assigned = MemberPhase.IN, mark, membership.assigned
            # The partitions that are taken away now were not yet when the one before was answered.
            self._share(known_ms + self.identity.rebalance_timeout_ms, f"epoch {mark[0]}, revision {mark[1]}")
            pause_ms = 0 if self.identity.waits else pause_ms
        if request == self._request:
            self._send_at_ms = max(now_ms, sent_ms + pause_ms)

    def _pause_ms(self, membership: Membership) -> int:
        """Return the pause between two heartbeats. Where they wait for news, that is the pause."""
        if self.identity.waits:
            return GROUP_HEARTBEAT_MS_RECONCILING
        return min(membership.heartbeat_ms, self._longest_pause_ms)

    @property
    def _longest_pause_ms(self) -> int:
        """Return the longest pause, so that a third of each of its deadlines is enough to get news."""
        return min(GROUP_HEARTBEAT_MS_MAX, self._session_ms // 3, self.identity.rebalance_timeout_ms // 3)

    def _share(self, by_ms: int, reason: str) -> None:
        """Go from what it owns to what it is assigned."""
        leaving = frozenset(partition for partitions in self._revoking.values() for partition in partitions)
        gone = self.owned - self.assigned - leaving
        if gone:
            self._ticket += 1
            self._revoking[self._ticket] = gone
            self._revoke_by_ms = min(by_ms, self._revoke_by_ms or by_ms)
            self._effects.append(Revoke(self._ticket, gone, by_ms, reason))
        self._begin(reason)

    def _begin(self, reason: str) -> None:
        new = self.assigned - self.owned
        if new:
            self.owned |= new
            self._effects.append(Assigned(new, reason))

    def _give_up(self, ticket: int, now_ms: int) -> None:
        """Note what was given up; does nothing where all was lost in between: then it is of an earlier life."""
        given_up = self._revoking.pop(ticket, None)
        if given_up is not None:
            self.owned -= given_up
            self._gave_up_in = self._request + 1
            self._begin("it was given back meanwhile")
            self._hurry(now_ms)

    def _hurry(self, now_ms: int) -> None:
        if self.phase is MemberPhase.IN:
            self._send_at_ms = now_ms

    def _endure(self, request: int, error: HeadraceError, now_ms: int) -> None:
        is_final = not error.retriable and (error.status < 500 or isinstance(error, UntrustedBrokerError))
        if self.phase is MemberPhase.LEAVING:
            if is_final:
                self._end(Left(f"its coordinator will not hear of it: {error.message}"))
            elif request == self._request:
                self._try_again(error, now_ms)
        elif self.phase is MemberPhase.IN and isinstance(error, UnknownMemberError | FencedMemberError):
            self._lose(error.message, now_ms)
        elif is_final and not isinstance(error, UnknownMemberError | FencedMemberError):
            self._lose(error.message, now_ms)
            words = "another process has its instance id" if isinstance(error, FencedInstanceError) else "refused"
            self._end(MembershipFailed(error, words))
        elif request == self._request:
            self._try_again(error, now_ms)

    def _try_again(self, error: HeadraceError | None, now_ms: int) -> None:
        after_ms = 0 if error is None else error.details.get("retryAfterMs", 0)
        self._failures += 1
        ceiling_ms = min(GROUP_RETRY_MS_MAX, GROUP_RETRY_MS_MIN << min(self._failures - 1, 16))
        # Members that failed together do not try again together; the same ones do the same in every run.
        share = murmur2(f"{self.identity.member}/{self._request}".encode()) % 512
        pause_ms = ceiling_ms * (512 + share) // 1024
        self._send_at_ms = now_ms + max(pause_ms, after_ms if isinstance(after_ms, int) else 0)

    def _why_over(self, now_ms: int) -> str:
        if now_ms >= self._valid_until_ms:
            return f"its coordinator has not answered for a whole session, {self._session_ms} ms"
        return f"its coordinator has not heard in {self.identity.rebalance_timeout_ms} ms that partitions were given up"

    def _lose(self, reason: str, now_ms: int) -> None:
        """Lose everything; and join again, at once the first time."""
        if self.owned:
            self._effects.append(Lost(self.owned, reason))
        self._forget()
        self.phase = MemberPhase.JOINING
        if self._failures:
            self._try_again(None, now_ms)
        else:
            self._failures, self._send_at_ms = 1, now_ms

    def _forget(self) -> None:
        self.seen, self.assigned, self.owned = _NOWHERE, _NOTHING, _NOTHING
        self._revoking, self._revoke_by_ms = {}, None
        self._valid_until_ms = 0
        self._sent = {}

    def _stop(self, for_a_while: bool, now_ms: int) -> None:
        if self.phase not in (MemberPhase.JOINING, MemberPhase.IN):
            return
        self._forget()
        self._failures = 0
        if self._request == 0:
            self._end(Left("it never was a member"))
            return
        self.phase = MemberPhase.LEAVING
        self._leave = AbsenceReceived if for_a_while else LeaveReceived
        self._leave_by_ms, self._send_at_ms = now_ms + GROUP_LEAVE_MS_MAX, now_ms

    def _end(self, effect: Left | MembershipFailed) -> None:
        self._forget()
        self.phase = MemberPhase.GONE
        self._effects.append(effect)

    def _maybe_send(self, now_ms: int) -> None:
        if self.phase is MemberPhase.LEAVING and now_ms >= self._leave_by_ms:
            self._end(Left("nobody answered: its session ends by itself"))
            return
        if self._send_at_ms is None and now_ms >= self._answer_by_ms:
            self._try_again(None, now_ms)
        if self._send_at_ms is not None and now_ms >= self._send_at_ms:
            self._send(now_ms)

    def _send(self, now_ms: int) -> None:
        self._request += 1
        while len(self._sent) >= MEMBER_REQUESTS_MAX:
            del self._sent[min(self._sent)]
        self._sent[self._request] = now_ms
        request, reason = self._next_request()
        timeout_ms = min(GROUP_REQUEST_TIMEOUT_MS, self._session_ms // 3)
        if isinstance(request, HeartbeatReceived):
            timeout_ms += request.wait_ms
        self._send_at_ms, self._answer_by_ms = None, now_ms + timeout_ms
        self._effects.append(Send(request, timeout_ms, reason))

    def _next_request(self) -> tuple[JoinReceived | HeartbeatReceived | LeaveReceived | AbsenceReceived, str]:
        number, who = self._request, self.identity
        if self.phase is MemberPhase.LEAVING:
            return self._leave(number, who.member), "it stops"
        if self.phase is MemberPhase.JOINING:
            join = JoinReceived(
                number,
                who.member,
                who.subscription,
                who.instance,
                rebalance_timeout_ms=who.rebalance_timeout_ms,
            )
            return join, "it is no member"
        return HeartbeatReceived(
            number,
            who.member,
            *self.seen,
            self.owned,
            # This is done each time: a request with an older one may still be on its way, and be the last to arrive
            # otherwise.
            subscription=who.subscription,
            instance=who.instance,
            wait_ms=self._longest_pause_ms if who.waits else 0,
        ), "heartbeat"
