"""Members with clocks, on a bad network, with coordinators that die: no two read one partition at the same time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.groups.assignment import Subscription
from headrace.core.groups.events import TargetOffered
from headrace.core.groups.identity import GroupSettings
from headrace.core.groups.membership import Identity, Lost, MemberPhase, Subscribed
from headrace.core.groups.rebalancing import target_of
from tests.support.examples import examples
from tests.support.group_world import member, shape
from tests.support.member_world import Attendee, MemberWorld, Network

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
