"""A member step by step: `tests/golden/membership/*.txt`, what happens and, indented, what the member makes of it.

    TIME polls|waits NAME [instance=I] [rebalance=MS]                         it begins
    TIME answered REQUEST EPOCH.REVISION [0,1|same] [session=MS] [heartbeat=MS]    partitions of `flights`
    TIME refused REQUEST CODE [retryAfterMs=MS] | left REQUEST | given up TICKET | subscribed TOPIC | doubted | tick
    TIME stopped [for a while] | holds

To record what members make of it again, after a deliberate change:

    HEADRACE_REWRITE_GOLDEN=1 pytest tests/unit/core/groups/test_membership.py

Members with clocks, on a bad network, with coordinators that die: no two read one partition at the same time.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import errors
from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.events import HeartbeatReceived, JoinReceived, Membership, TargetOffered
from headrace.core.groups.identity import GroupEpoch, GroupSettings
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
from headrace.core.groups.rebalancing import target_of
from tests.support.examples import examples
from tests.support.group_world import member, parts, shape
from tests.support.member_world import Attendee, MemberWorld, Network

FOLDER = Path(__file__).parents[3] / "golden" / "membership"
REWRITE = os.environ.get("HEADRACE_REWRITE_GOLDEN") == "1"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_should_do_what_the_script_says(path: Path) -> None:
    text = path.read_text()
    told = "".join(line + "\n" for line in played(text.splitlines()))
    if REWRITE:
        path.write_text(told)
    assert told == text


def played(lines: list[str]) -> list[str]:
    told: list[str] = []
    state: MemberState | None = None
    for line in lines:
        if line.startswith("    "):
            continue
        told.append(line)
        if not line or line.startswith("#"):
            continue
        at_ms, what, *words = line.split()
        if what in ("polls", "waits"):
            state = MemberState(identity(what == "waits", words), int(at_ms))
            what, words = "tick", []
        assert state is not None
        told += [f"    {each}" for each in done(state, int(at_ms), what, words)]
    return told


def identity(waits: bool, words: list[str]) -> Identity:
    options = dict(word.split("=") for word in words[1:])
    return Identity(
        member(words[0]),
        Subscription.parse(["flights"]),
        options.get("instance", ""),
        int(options.get("rebalance", "60000")),
        waits,
    )


def done(state: MemberState, at_ms: int, what: str, words: list[str]) -> list[str]:
    if what == "holds":
        return [f"{'holds' if state.holds(at_ms) else 'holds no more'} {named(state.owned)}, epoch {state.epoch}"]
    effects = state.step(EVENTS[what](words), at_ms)
    until = "never" if state.next_ms is None else state.next_ms
    return [*map(shown, effects), f"{state.phase.value}, until {until}"]


def answered(words: list[str]) -> MembershipAnswered:
    options = dict(word.split("=") for word in words[2:] if "=" in word)
    epoch, revision = words[1].split(".")
    listed = [word for word in words[2:] if "=" not in word] or [""]
    assigned = None if listed[0] == "same" else parts("flights", *map(int, filter(None, listed[0].split(","))))
    session_ms, heartbeat_ms = int(options.get("session", "45000")), int(options.get("heartbeat", "3000"))
    return MembershipAnswered(
        int(words[0]), Membership(GroupEpoch(int(epoch)), int(revision), assigned, heartbeat_ms, session_ms)
    )


def refused(words: list[str]) -> MembershipRefused:
    kind: type[HeadraceError] = getattr(errors, f"{words[1]}Error")
    details = {name: int(value) for name, value in (word.split("=") for word in words[2:])}
    return MembershipRefused(int(words[0]), kind(f"it says {words[1]}", **details))


EVENTS: dict[str, Callable[[list[str]], Event]] = {
    "answered": answered,
    "refused": refused,
    "left": lambda words: MembershipAnswered(int(words[0]), None),
    "given": lambda words: GivenUp(int(words[1])),
    "subscribed": lambda words: Subscribed(Subscription.parse(words)),
    "doubted": lambda words: Doubted("a commit was refused"),
    "stopped": lambda words: Stopped(for_a_while=bool(words)),
    "tick": lambda words: MembershipTicked(),
}


def shown(effect: Effect) -> str:
    match effect:
        case Send(request, timeout_ms, reason):
            text = f"send {request.request}, {timeout_ms} ms: {type(request).__name__.removesuffix('Received')}"
            if isinstance(request, HeartbeatReceived):
                text += f" {request.epoch}.{request.revision} owns {named(request.owned)}, waits {request.wait_ms} ms"
            if isinstance(request, HeartbeatReceived | JoinReceived) and request.subscription is not None:
                text += f", wants {','.join(request.subscription.names)}"
            return f"{text} ({reason})"
        case Assigned(partitions, reason):
            return f"assigned {named(partitions)} ({reason})"
        case Revoke(ticket, partitions, by_ms, reason):
            return f"revoke {ticket}: {named(partitions)} by {by_ms} ({reason})"
        case Lost(partitions, reason):
            return f"lost {named(partitions)} ({reason})"
        case MembershipFailed(error, reason):
            return f"failed: {error.code} ({reason})"
        case Left(reason):
            return f"left ({reason})"


def named(partitions: Partitions) -> str:
    return ",".join(str(partition.partition) for partition in sorted(partitions)) or "nothing"


def test_should_leave_at_once_where_it_has_never_asked_for_anything() -> None:
    state = MemberState(Identity(member("a"), Subscription.parse(["flights"])), 0)
    assert [type(effect) for effect in state.step(Stopped(), 0)] == [Left]


def test_should_have_all_requests_answered_that_are_worth_it() -> None:
    """So many are remembered; what is older says nothing new."""
    state = MemberState(Identity(member("a"), Subscription.parse(["flights"])), 0)
    effects = [effect for at_ms in range(0, 300_000, 100) for effect in state.step(MembershipTicked(), at_ms)]
    last = max(effect.request.request for effect in effects if isinstance(effect, Send))
    assert last > 20
    membership = Membership(GroupEpoch(1), 0, parts("flights", 0), 3_000, 1 << 30)
    assert state.step(MembershipAnswered(1, membership), 300_000) == []
    assert not state.holds(300_000)
    assert any(isinstance(effect, Assigned) for effect in state.step(MembershipAnswered(last, membership), 300_000))


def test_should_not_try_again_all_at_once() -> None:
    times = set()
    for number in range(50):
        state = MemberState(Identity(member(f"m{number}"), Subscription.parse(["flights"])), 0)
        state.step(MembershipTicked(), 0)
        state.step(MembershipRefused(1, errors.CoordinatorLoadingError("it loads")), 0)
        assert state.next_ms is not None
        times.add(state.next_ms)
    assert min(times) >= 50
    assert max(times) <= 100
    assert len(times) > 20


TOPICS = {"flights": shape("flights", 4), "orders": shape("orders", 3)}
SUBSCRIPTIONS = [Subscription.parse(names) for names in (["flights"], ["orders"], [*TOPICS])]


@dataclass
class Story:
    """What a seed does to a group for some minutes."""

    seed: int
    random: Random = field(init=False)
    world: MemberWorld = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.world = MemberWorld(dict(TOPICS), self.seed)
        self.world.world.configure(GroupSettings(session_ms=self.random.choice([1_000, 6_000, 45_000])))

    def living(self) -> list[Attendee]:
        return [each for each in self.world.attendees if each.alive and each.state.phase is not MemberPhase.GONE]

    def one(self, what: Callable[[Attendee], None]) -> None:
        if self.living():
            what(self.random.choice(self.living()))

    def join(self) -> None:
        if len(self.living()) < 5:
            self.lives += 1
            made = self.world.start(
                Identity(
                    member(f"m{self.lives}"),
                    self.random.choice(SUBSCRIPTIONS),
                    rebalance_timeout_ms=self.random.choice([1_000, 5_000, 60_000]),
                    waits=self.random.random() < 0.7,
                )
            )
            made.work_ms = self.random.choice([0, 20, 900, 4_000])

    def leave(self) -> None:
        self.one(self.world.stop)

    def die(self) -> None:
        self.one(lambda attendee: setattr(attendee, "alive", False))

    def freeze(self) -> None:
        until_ms = self.world.now_ms + self.random.choice([300, 3_000, 60_000])
        self.one(lambda each: setattr(each, "frozen_until_ms", max(until_ms, each.frozen_until_ms)))

    def subscribe(self) -> None:
        self.one(lambda attendee: self.world.tell(attendee, Subscribed(self.random.choice(SUBSCRIPTIONS))))

    def offer(self) -> None:
        image = self.world.world.image
        self.world.world.offer(TargetOffered(image.group.epoch, target_of(image, image.group.inputs)))

    def grow(self) -> None:
        self.world.world.see({**TOPICS, "orders": shape("orders", self.random.randint(3, 6))})

    def crash(self) -> None:
        self.world.crash(self.random.randint(0, 3), self.random.choice([0, 500, 8_000]))

    def worsen(self) -> None:
        choose = self.random.choice
        self.world.network = Network(choose([2, 50, 2_000]), choose([0.0, 0.1, 0.5, 1.0]), choose([0.0, 0.3]))
        self.world.commit_ms = choose([3, 700])

    def mend(self) -> None:
        self.world.network, self.world.commit_ms = Network(), 3

    def run(self, steps: int) -> None:
        faults = [self.leave, self.die, self.freeze, self.subscribe, self.offer, self.grow, self.crash, self.worsen]
        for _ in range(steps):
            self.random.choice([self.join, self.join, self.mend, self.mend, *faults])()
            self.world.run(self.random.choice([10, 300, 3_000, 20_000]))

    def calm_down(self) -> None:
        self.mend()
        self.world.world.see(dict(TOPICS))
        for each in self.world.attendees:
            each.work_ms = min(each.work_ms, 100)
        self.world.run_until(lambda: all(each.frozen_until_ms <= self.world.now_ms for each in self.living()))
        self.world.run(10_000)  # whatever was sent before has arrived
        self.world.run_until(self.is_shared)

    def is_shared(self) -> bool:
        return all(each.state.phase is MemberPhase.IN for each in self.living()) and self.world.is_stable()


@examples(0.3)
@given(st.integers(0, 1 << 32))
def test_should_never_have_two_readers_of_a_partition(seed: int) -> None:
    story = Story(seed)
    story.join()
    story.run(25)
    story.calm_down()
    wanted = {name for each in story.living() for name in each.state.identity.subscription.names}
    read = [partition for each in story.living() for partition in each.reads(story.world.now_ms)]
    assert len(read) == sum(TOPICS[name].partitions for name in wanted)
    before = [len(each.happened) for each in story.living()]
    story.world.run(30_000)
    sent = [len(each.happened) - count for each, count in zip(story.living(), before, strict=True)]
    assert all(8 <= count <= 120 for count in sent), "heartbeats, and nothing else"
    assert not any(isinstance(effect, Lost) for each in story.living() for effect in each.happened[-8:])
