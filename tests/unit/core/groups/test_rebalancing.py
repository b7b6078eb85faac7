"""Whatever happens to members, messages and coordinators: no partition has two owners, and in the end each has one."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import AbsenceReceived, LeaveReceived, Request, TargetOffered
from headrace.core.groups.identity import Assignor, GroupSettings
from headrace.core.groups.rebalancing import target_of
from headrace.core.types import Offset, PartitionKey
from tests.support.examples import examples
from tests.support.group_world import Process, World, member, shape

TOPICS = {"flights": shape("flights", 4), "orders": shape("orders", 3)}
NAMES = ["a", "b", "c", "d"]


class Group(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(dict(TOPICS))
        self.late: list[Request] = []
        """Requests that are still on their way."""
        self.positions: dict[PartitionKey, int] = {}
        self.lives = 0

    @initialize(first=st.integers(1, 3))
    def some_join(self, first: int) -> None:
        for name in NAMES[:first]:
            self.world.send(self.world.process(name, *TOPICS))
        self.world.round(600)

    def living(self, which: int) -> Process | None:
        alive = [process for process in self.world.processes if process.alive]
        return alive[which % len(alive)] if alive else None

    @rule(which=st.integers(0, 3), static=st.booleans(), topics=st.sampled_from([["flights"], ["orders"], [*TOPICS]]))
    def start(self, which: int, static: bool, topics: list[str]) -> None:
        if len([p for p in self.world.processes if p.alive]) < 6:
            self.lives += 1
            made = self.world.process(f"{NAMES[which]}-{self.lives}", *topics, instance=NAMES[which] if static else "")
            self.world.send(made)

    @rule(which=st.integers(0, 5), twice=st.booleans())
    def speak(self, which: int, twice: bool) -> None:
        process = self.living(which)
        if process is not None:
            self.world.deliver(self.world.note(process, process.speak()), again=twice)

    @rule(which=st.integers(0, 5))
    def speak_late(self, which: int) -> None:
        process = self.living(which)
        if process is not None:
            self.late.append(self.world.note(process, process.speak()))

    @rule(which=st.integers(0, 5), copies=st.booleans())
    def arrive(self, which: int, copies: bool) -> None:
        if self.late:
            at = which % len(self.late)
            request = self.late[at] if copies else self.late.pop(at)
            self.world.deliver(request)

    @rule(which=st.integers(0, 20), repeats=st.booleans())
    def hear(self, which: int, repeats: bool) -> None:
        told = self.world.told
        if told:
            at = which % len(told)
            self.world.tell(told[at] if repeats else told.pop(at))

    @rule(which=st.integers(0, 20))
    def lose_answer(self, which: int) -> None:
        if self.world.told:
            self.world.told.pop(which % len(self.world.told))

    @rule(which=st.integers(0, 5))
    def give_up(self, which: int) -> None:
        process = self.living(which)
        if process is not None:
            process.give_up()

    @rule(which=st.integers(0, 5))
    def die(self, which: int) -> None:
        process = self.living(which)
        if process is not None:
            process.alive = False

    @rule(which=st.integers(0, 5), for_a_while=st.booleans())
    def stop(self, which: int, for_a_while: bool) -> None:
        process = self.living(which)
        if process is not None:
            process.alive = False
            process.owned = frozenset()
            number = self.world.numbers.next()
            kind = AbsenceReceived if for_a_while else LeaveReceived
            self.late.append(kind(number, process.id))

    @rule(which=st.integers(0, 5), wrong=st.booleans())
    def commit_offsets(self, which: int, wrong: bool) -> None:
        process = self.living(which)
        if process is not None and process.owned:
            offsets = {}
            for partition in process.owned:
                self.positions[partition] = self.positions.get(partition, 0) + 1
                offsets[partition] = OffsetValue(Offset(self.positions[partition]))
            request = process.commit(offsets)
            if wrong:
                self.late.append(request)
            else:
                self.world.deliver(request)

    @rule()
    def commit_log(self) -> None:
        self.world.commit_log()

    @rule(ms=st.sampled_from([10, 300, 600, 7_000, 50_000]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(kept=st.integers(0, 3))
    def crash(self, kept: int) -> None:
        self.world.crash(kept)

    @rule(rounds=st.integers(1, 4), laggard=st.integers(0, 5))
    def work_well(self, rounds: int, laggard: int) -> None:
        for _ in range(rounds):
            self.speak_late(laggard)
            self.world.round(300)

    @rule()
    def all_arrive(self) -> None:
        while self.late:
            self.world.deliver(self.late.pop())
            self.world.check()

    @rule(partitions=st.integers(1, 6), gone=st.booleans())
    def change_topics(self, partitions: int, gone: bool) -> None:
        topics = {"flights": shape("flights", partitions)}
        self.world.see(topics if gone else {**topics, "orders": TOPICS["orders"]})

    @rule(paused=st.booleans(), assignor=st.sampled_from(Assignor))
    def configure(self, paused: bool, assignor: Assignor) -> None:
        until = self.world.now_ms + 5_000 if paused else None
        settings = GroupSettings(assignor, paused_until_ms=until)
        self.world.configure(settings)

    @rule(fits=st.booleans())
    def offer(self, fits: bool) -> None:
        image = self.world.image
        target = target_of(image, image.group.inputs)
        if not fits:
            target[member("nobody")] = frozenset()
        self.world.offer(TargetOffered(image.group.epoch, target))

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """No more faults: everything comes to rest, and what was acknowledged is there."""
        self.world.see(dict(TOPICS))
        self.world.configure(GroupSettings(session_ms=6_000))
        for process in self.world.processes[:-1]:
            # Of two processes with one instance id, one waits for the other as long as that lives.
            later = [each.instance for each in self.world.processes if each.alive and each is not process]
            process.alive = process.alive and (not process.instance or process.instance not in later)
        self.world.commit_log()
        self.world.hear_all()
        self.world.rounds_until(self.world.is_stable)
        committed = self.world.committed_image
        if committed.members:
            wanted = {name for process in self.world.processes if process.alive for name in process.subscription.names}
            assert len(committed.owners) == sum(TOPICS[name].partitions for name in wanted)


TestGroup = Group.TestCase
# A story that fails is told as it was found: to shorten it takes minutes.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
TestGroup.settings = settings(examples(0.4), stateful_step_count=50, phases=_PHASES)
