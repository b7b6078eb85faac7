"""Processes that read: each a real `MemberState`, positions in its partitions, and requests of its own numbers.

A process commits what it has delivered, now and then and where it gives a partition up; it may die, stop for longer
than its session, hear late, and a second process may run with its instance id. What it reads begins where the group is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from headrace.core.coordinator import Answer, Refuse
from headrace.core.errors import FencedMemberError, NotCoordinatorError, UnknownMemberError
from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived, Membership, Offsets, OffsetsAsked, Reply, Request
from headrace.core.groups.identity import MemberId
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
    Subscribed,
)
from headrace.core.groups.sessions import STATIC_SILENT_HEARTBEATS
from headrace.core.limits import GROUP_HEARTBEAT_MS_MAX
from headrace.core.types import BrokerId, Offset, PartitionKey
from tests.sim.groups.post import Post
from tests.sim.groups.promises import Promises
from tests.sim.groups.shared import Sent, Shared
from tests.sim.setting import Clock, Setting
from tests.support.group_invariants import OwnershipClaim

SUBSCRIPTIONS = (
    Subscription.parse(["flights"]),
    Subscription.parse(["flights", "trains"]),
    Subscription.parse([], "flights|tra.*"),
)
READ_MAX = 4
SILENT_MS = STATIC_SILENT_HEARTBEATS * GROUP_HEARTBEAT_MS_MAX
"""The longest silence before a replacement: no session of a run is so short that heartbeats come more often."""


@dataclass(frozen=True, slots=True)
class Around:
    """The surroundings of a process."""

    setting: Setting
    shared: Shared
    promises: Promises
    post: Post
    find: Callable[[int], BrokerId]
    """A function that returns the presumed coordinator."""


class Member:
    """One process, from its start to its end."""

    def __init__(self, label: str, identity: Identity, clock: Clock, around: Around) -> None:
        self.label, self.id, self.clock = label, identity.member, clock
        self.state = MemberState(identity, clock.now_ms)
        self.is_paused = False
        self.positions: dict[PartitionKey, int] = {}
        """The positions of what it reads; a partition that it owns and that is not here waits for where to begin."""
        self.committed: dict[PartitionKey, int] = {}
        self.tenures: dict[PartitionKey, int] = {}
        self.to_give_up: dict[int, Partitions] = {}
        """The partitions to give up, by ticket."""
        self.is_over = False
        self._setting, self._shared, self._promises = around.setting, around.shared, around.promises
        self._post, self._find = around.post, around.find
        self._broker: BrokerId | None = None
        """The presumed coordinator."""
        self._numbers: dict[int, int] = {}
        """The numbers of requests in the run, and its own."""
        self._heard_ms = 0
        """The send time of the newest of its requests that was answered."""
        self._sent_ms: dict[int, int] = {}
        self._asked: dict[int, Partitions] = {}
        """The requests for offsets; the partitions that are still to be begun."""

    @property
    def claim(self) -> OwnershipClaim:
        return OwnershipClaim(self.id, self.state.seen, self.state.owned)

    @property
    def is_due(self) -> bool:
        next_ms = self.state.next_ms
        return next_ms is not None and self.clock.now_ms >= next_ms

    @property
    def idle_ms(self) -> int:
        next_ms = self.state.next_ms
        is_busy = self.readable() or self.unbegun() or self.to_give_up or next_ms is None
        return 0 if is_busy or next_ms is None else int((next_ms - self.clock.now_ms) / self.clock.rate) + 1

    # -- what it does ------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        for effect in self.state.step(event, self.clock.now_ms):
            self._setting.counts[f"member: {type(effect).__name__}"] += 1
            self._carry_out(effect)

    def tick(self) -> None:
        self.step(MembershipTicked())

    def readable(self) -> list[PartitionKey]:
        ends, reading = self._shared.ends, self.state.assigned
        return [each for each, at in self.positions.items() if at < ends.get(each, 0) and each in reading]

    def read(self, draw: int) -> None:
        """Read as a consumer does: only after a check that it may."""
        if not self.state.holds(self.clock.now_ms):
            self._setting.counts["member: may not read"] += 1
            return
        readable = sorted(self.readable())
        partition = readable[draw % len(readable)]
        at = self.positions[partition]
        end = min(self._shared.ends[partition], at + 1 + (draw >> 8) % READ_MAX)
        self._promises.delivers(partition, self.id, at, end)
        if self._is_alone():
            self._promises.check_alone(partition, self.id)
        self.positions[partition] = end

    def _is_alone(self) -> bool:
        """Return whether it is alone by its clock, where that is as good as any. A static one may be replaced once it
        was silent for long."""
        is_heard = self.clock.now_ms < self._heard_ms + SILENT_MS
        return not self._setting.plan.skew and (is_heard or not self.state.identity.instance)

    def to_commit(self) -> dict[PartitionKey, int]:
        return {each: at for each, at in self.positions.items() if at != self.committed.get(each)}

    def commit(self, draw: int, partitions: Partitions | None = None) -> None:
        known = self.to_commit()
        offsets = {each: OffsetValue(Offset(at)) for each, at in known.items() if not partitions or each in partitions}
        if offsets:
            request = CommitReceived(self._shared.next_request(), offsets, self.id, self.state.epoch)
            self._shared.commits[request.request] = Sent(
                self, {each: self.tenures[each] for each in offsets}, {each: known[each] for each in offsets}
            )
            self._setting.counts["member: Commit"] += 1
            self._send(request, draw)

    def ask_offsets(self, draw: int) -> None:
        wanted = self.unbegun()
        request = OffsetsAsked(self._shared.next_request(), wanted)
        self._asked[request.request] = wanted
        self._send(request, draw)

    def unbegun(self) -> Partitions:
        return (self.state.owned & self.state.assigned) - self.positions.keys()

    def give_up(self, draw: int) -> None:
        """Give partitions up: mostly, what it has read is committed before; the commit may come too late."""
        ticket = min(self.to_give_up)
        partitions = self.to_give_up.pop(ticket)
        if draw % 4:
            self.commit(draw, partitions)
        self._drop(partitions)
        self.step(GivenUp(ticket))

    def subscribe(self, draw: int) -> None:
        self.step(Subscribed(SUBSCRIPTIONS[draw % len(SUBSCRIPTIONS)]))

    def stop(self, draw: int) -> None:
        self.commit(draw)
        self._drop(frozenset(self.positions))
        self.to_give_up.clear()
        self.step(Stopped(for_a_while=bool(self.state.identity.instance) and draw % 3 > 0))

    # -- what it is told ---------------------------------------------------------------------------------------------

    def missed(self) -> None:
        """Note that there is no process where it wrote to."""
        self._broker = None

    def hear(self, told: Answer[Reply] | Refuse) -> None:
        if self.is_over:
            return
        if isinstance(told, Refuse):
            self._setting.counts[f"refused: {told.error.code}"] += 1
            if isinstance(told.error, NotCoordinatorError):
                self._broker = None
        sent = self._shared.commits.get(told.request)
        if sent is not None:
            self._hear_of_commit(told, sent)
        elif told.request in self._asked:
            self._hear_of_offsets(told)
        else:
            self._hear_of_membership(told)

    def _hear_of_membership(self, told: Answer[Reply] | Refuse) -> None:
        number = self._numbers.get(told.request)
        if number is None:
            return
        if isinstance(told, Refuse):
            self.step(MembershipRefused(number, told.error))
        else:
            self._heard_ms = max(self._heard_ms, self._sent_ms.pop(told.request, 0))
            reply = told.reply
            self.step(MembershipAnswered(number, reply if isinstance(reply, Membership) else None))

    def _hear_of_commit(self, told: Answer[Reply] | Refuse, sent: Sent) -> None:
        if isinstance(told, Answer):
            self.committed |= {each: at for each, at in sent.offsets.items() if each in self.committed}
        if isinstance(told, Refuse) and isinstance(told.error, FencedMemberError | UnknownMemberError):
            self.step(Doubted(told.error.message))

    def _hear_of_offsets(self, told: Answer[Reply] | Refuse) -> None:
        asked = self._asked.pop(told.request)
        if isinstance(told, Answer) and isinstance(told.reply, Offsets):
            for partition in asked & self.unbegun():
                found = told.reply.offsets.get(partition)
                self.positions[partition] = found.offset if found is not None else 0
                self.committed[partition] = self.positions[partition]

    # -- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(request):
                number = self._shared.next_request()
                self._numbers[number], self._sent_ms[number] = request.request, self.clock.now_ms
                self._send(replace(request, request=number), number * 7919)
            case Assigned(partitions):
                for partition in partitions:
                    self.tenures[partition] = self._promises.takes(partition, self.id)
            case Revoke(ticket, partitions):
                self.to_give_up[ticket] = partitions
            case Lost(partitions):
                self._heard_ms, self._sent_ms = 0, {}
                self._drop(partitions)
                self.to_give_up.clear()
            case Left() | MembershipFailed():
                self.is_over = True
                self._drop(frozenset(self.positions))
            case _:
                assert_never(effect)

    def _drop(self, partitions: Partitions) -> None:
        """Drop partitions: what was asked about them before is of another time."""
        for partition in partitions:
            self.positions.pop(partition, None)
            self.committed.pop(partition, None)
        self._asked = {request: asked - partitions for request, asked in self._asked.items()}

    def _send(self, request: Request, draw: int) -> None:
        if self._broker is None or (draw % 5 == 0 and not self._setting.plan.calm):
            self._broker = self._find(draw >> 3)
        self._shared.askers[request.request] = self
        self._post.send(self, self._broker, request)


def is_settled(member: Member, targets: Mapping[MemberId, Partitions], ends: Mapping[PartitionKey, int]) -> bool:
    """Return whether it has what it is to have, has read all of that, and got the answers to its commits."""
    owned = member.state.owned
    if member.state.phase is not MemberPhase.IN or owned != targets.get(member.id, frozenset()):
        return False
    is_read = all(member.positions.get(each) == ends.get(each, 0) for each in owned)
    return is_read and not member.to_commit() and not member.to_give_up
