"""Members with clocks: `MemberState` driven over a network that delays and loses, against `group_world.World`.

Time is a number, and everything that is to happen has one. What must never be: two processes that would both hand out
records of one partition at the same moment, judged by their own deadlines and by nothing that they cannot know.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random

from headrace.core.coordinator import Answer, Refuse
from headrace.core.errors import NotCoordinatorError
from headrace.core.groups.assignment import Partitions
from headrace.core.groups.events import Membership, Reply
from headrace.core.groups.identity import MemberId, TopicShape
from headrace.core.groups.membership import (
    Effect,
    Event,
    GivenUp,
    Identity,
    MemberPhase,
    MembershipAnswered,
    MembershipRefused,
    MembershipTicked,
    MemberState,
    Revoke,
    Send,
    Stopped,
)
from headrace.core.types import PartitionKey
from tests.support.group_invariants import OwnershipClaim
from tests.support.group_world import World


@dataclass
class Attendee:
    """A process: its state, and what it did."""

    state: MemberState
    work_ms: int = 20
    """What it takes to finish with partitions that are to be given up."""
    frozen_until_ms: int = 0
    """A process that stands still sends nothing and hears nothing."""
    alive: bool = True
    happened: list[Effect] = field(default_factory=list)

    @property
    def id(self) -> MemberId:
        return self.state.identity.member

    def reads(self, now_ms: int) -> Partitions:
        return self.state.owned if self.alive and self.state.holds(now_ms) else frozenset()


@dataclass
class Network:
    """How bad it is."""

    delay_ms: int = 2
    loss: float = 0.0
    doubled: float = 0.0


class MemberWorld:
    def __init__(self, topics: dict[str, TopicShape], seed: int = 0) -> None:
        self.world = World(topics)
        self.random = Random(seed)
        self.network = Network()
        self.commit_ms = 3
        self.attendees: list[Attendee] = []
        self.is_up = True
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._asked: dict[int, tuple[Attendee, int]] = {}
        self._at(100, self._tick_coordinator)

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def start(self, identity: Identity) -> Attendee:
        attendee = Attendee(MemberState(identity, self.now_ms))
        self.attendees.append(attendee)
        self.tell(attendee, MembershipTicked())
        return attendee

    def stop(self, attendee: Attendee, *, for_a_while: bool = False) -> None:
        self.tell(attendee, Stopped(for_a_while))

    def tell(self, attendee: Attendee, event: Event) -> None:
        """As its own process would: later, where it stands still."""
        if not attendee.alive:
            return
        if self.now_ms < attendee.frozen_until_ms:
            self._at(attendee.frozen_until_ms - self.now_ms, lambda: self.tell(attendee, event))
            return
        for effect in attendee.state.step(event, self.now_ms):
            attendee.happened.append(effect)
            match effect:
                case Send():
                    self._send(attendee, effect)
                case Revoke(ticket):
                    self._at(attendee.work_ms, lambda ticket=ticket: self.tell(attendee, GivenUp(ticket)))  # type: ignore[misc]
        next_ms = attendee.state.next_ms
        if next_ms is not None:
            self._at(next_ms - self.now_ms, lambda: self._maybe_tick(attendee, next_ms))

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self._agenda[0][0] <= until_ms:
            self.world.now_ms, _, what = heappop(self._agenda)
            what()
            self.check()
        self.world.now_ms = until_ms

    def run_until(self, what: Callable[[], bool], most_ms: int = 120_000) -> int:
        """How long it took."""
        began_ms = self.now_ms
        while not what():
            assert self.now_ms < began_ms + most_ms, f"not in {most_ms} ms: {self.world.machine.groups}"
            self.run(10)
        return self.now_ms - began_ms

    def crash(self, kept: int, down_ms: int) -> None:
        self.world.crash(kept)
        self._asked.clear()
        self.is_up = False
        self._at(down_ms, self._come_up)

    def is_stable(self) -> bool:
        living = {a.id: a.reads(self.now_ms) for a in self.attendees if a.alive and a.state.phase is MemberPhase.IN}
        image = self.world.image
        if living.keys() != image.members.keys() or image.group.epoch != image.group.assignment_epoch:
            return False
        return all(
            owned == image.target(each) == image.currents[each].assigned.keys() for each, owned in living.items()
        )

    def check(self) -> None:
        readers: dict[PartitionKey, MemberId] = {}
        for attendee in self.attendees:
            for partition in attendee.reads(self.now_ms):
                assert partition not in readers, f"{partition}: {readers[partition]} and {attendee.id}"
                readers[partition] = attendee.id
        states = [attendee.state for attendee in self.attendees if attendee.alive]
        claims = [OwnershipClaim(state.identity.member, state.seen, state.owned) for state in states]
        self.world.claims = claims
        self.world.check()

    def _come_up(self) -> None:
        self.is_up = True

    def _at(self, in_ms: int, what: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._agenda, (self.now_ms + max(0, in_ms), self._count, what))

    def _maybe_tick(self, attendee: Attendee, at_ms: int) -> None:
        if attendee.state.next_ms == at_ms:
            self.tell(attendee, MembershipTicked())

    def _tick_coordinator(self) -> None:
        self._at(100, self._tick_coordinator)
        self.world.pass_time(0)
        self._after()

    def _send(self, attendee: Attendee, send: Send) -> None:
        for _ in range(1 + (self.random.random() < self.network.doubled)):
            if self.random.random() >= self.network.loss:
                self._at(self._delay(), lambda: self._deliver(attendee, send))

    def _deliver(self, attendee: Attendee, send: Send) -> None:
        if not self.is_up:
            error = NotCoordinatorError("there is none")
            self._at(self._delay(), lambda: self.tell(attendee, MembershipRefused(send.request.request, error)))
            return
        number = self.world.numbers.next()
        self._asked[number] = (attendee, send.request.request)
        self.world.deliver(replace(send.request, request=number))
        self._after()

    def _after(self) -> None:
        """What is decided is committed soon, and then told."""
        if len(self.world.log) > self.world.committed:
            self._at(self.commit_ms, self._commit)
        told, self.world.told = self.world.told, []
        for each in told:
            if self.random.random() >= self.network.loss and each.request in self._asked:
                attendee, number = self._asked.pop(each.request)
                event = _event(each, number)
                self._at(self._delay(), lambda attendee=attendee, event=event: self.tell(attendee, event))  # type: ignore[misc]

    def _commit(self) -> None:
        self.world.commit_log()
        self._after()

    def _delay(self) -> int:
        return self.random.randint(self.network.delay_ms // 2, self.network.delay_ms)


def _event(told: Answer[Reply] | Refuse, number: int) -> Event:
    if isinstance(told, Refuse):
        return MembershipRefused(number, told.error)
    return MembershipAnswered(number, told.reply if isinstance(told.reply, Membership) else None)
