"""One run: a seeded scheduler that lets one thing happen at a time, faults among them, and checks everything then.

`run(plan)` plays so many steps with faults, heals everything, and then demands that the cluster comes to rest: every
replica in sync, every log the same, everything committed. The same plan gives the same run, event for event, and
`replay` plays the steps of a run again, or some of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from headrace.core.replication.isr import InSyncRules
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, PartitionEpoch, Seat, TopicUid
from tests.sim.api import Api
from tests.sim.brokers import Brokers
from tests.sim.calling import Calling
from tests.sim.checks import Checks
from tests.sim.consumers import Consumers
from tests.sim.disasters import Disasters
from tests.sim.disk import Disk
from tests.sim.groups.group import NOT_AT_REST, GroupPart
from tests.sim.life import PARTITION
from tests.sim.moods import Moods, leaps
from tests.sim.operating import Operating
from tests.sim.people import People
from tests.sim.plans import Plan
from tests.sim.reign import BrokenPromiseError, Reign
from tests.sim.schedule import WHOLE, Kind, Step, Table, Target, find, name_of
from tests.sim.setting import UID, Clock, Setting, Time, topic_of
from tests.sim.shorthand import Shorthand

LEAP_MS_MAX = 2_000
SETTLING_STEPS = 100
SETTLING_ROUNDS = 120
SETTLING_LEAPS = 0.08
SETTLING_LEAP_MS_MAX = 600
HEAL = "heal"


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.time = Time()
        ids = [BrokerId(number) for number in range(plan.brokers)]
        disks = {broker: Disk() for broker in ids}
        self.checks = Checks(disks, plan.durability, plan.min_insync_replicas, Reign(may_lose_all=plan.perils))
        rules = InSyncRules(plan.durability, plan.min_insync_replicas)
        topic = topic_of(plan, plan.replicas, plan.min_insync_replicas)
        self.setting = Setting(plan, self.time, self._clocks(ids), disks, self.checks, topic, rules)
        replicas = tuple(ids[: plan.replicas])
        first = tuple(Seat(broker, Incarnation(0)) for broker in replicas)
        state = PartitionState(PARTITION, None, LeaderEpoch(0), PartitionEpoch(0), replicas, first)
        metadata = Metadata(name="topic-0", namespace="default", resource_version="1")
        self.api = Api([PartitionSet(metadata, "topic", TopicUid(UID), (state,))], self.checks)
        self.checks.landed(state)
        self.calling = Calling(self.setting, self.api)
        self.brokers = Brokers(self.setting, self.api, self.calling)
        self.operating = Operating(self.setting, self.api, self.brokers, self.calling)
        self.people = People(self.setting, self.api, self.brokers, self.calling)
        consumers = Consumers(self.setting, self.brokers)
        parts: list[Any] = [self.brokers, consumers, self.calling, self.operating, self.people]
        self.group = GroupPart(self.setting, self.api, self.brokers, self._group_clocks()) if plan.members else None
        if self.group is not None:
            self.setting.host = self.group.host
            parts.append(self.group)
        self._set_tables(parts)
        self.trace: list[Step] = []
        for machine in self.brokers.machines.values():
            self.brokers.start(machine)

    def _set_tables(self, parts: Sequence[Any]) -> None:
        """Of what may happen, with or without faults, and what scripts may ask for."""
        plan, shorthand = self.plan, Shorthand(self.brokers, self.calling, self.operating)
        work = [kind for part in parts for kind in part.kinds()]
        faults = [kind for part in parts if not isinstance(part, Consumers) for kind in part.faults()]
        if self.group is not None:
            work, faults = self.group.among(work), self.group.among(faults)
            work += self.group.well(shorthand)
        healing = Kind(HEAL, 0, lambda: WHOLE, lambda _, __: self.heal())
        drawn = {kind.name: kind for kind in (*work, *faults, healing)}
        scripted = [*shorthand.kinds(), *Disasters(self.api, self.brokers).kinds()]
        self.kinds = drawn | {kind.name: kind for kind in scripted}
        moods = Moods(plan, self.random)
        drawn_moods = {} if plan.calm else {name: moods.of(kind) for name, kind in drawn.items()}
        self._leaps = leaps(plan, self.random)
        # At rest nobody writes any more: all that is there has to reach everybody.
        resting = [kind for kind in work if kind.name not in ("produce", "delete records", *NOT_AT_REST)]
        self._stormy, self._calm = Table([*work, *faults], drawn_moods), Table(resting, {})

    @property
    def counts(self) -> Counter[str]:
        return self.setting.counts

    def _clocks(self, brokers: Sequence[BrokerId]) -> dict[BrokerId, Clock]:
        clocks = {}
        for reader in (*brokers, *(BrokerId(-1 - number) for number in range(self.plan.operators))):
            rate = 2 ** self.random.uniform(-0.6, 0.6) if self.plan.skew and not self.plan.members else 1.0
            clocks[reader] = Clock(self.time, rate, self.random.randrange(10**6))
        return clocks

    def _group_clocks(self) -> list[Clock]:
        """Brokers' run alike then; those of processes that read need not."""
        rates = [2 ** self.random.uniform(-0.6, 0.6) if self.plan.skew else 1.0 for _ in range(self.plan.members)]
        return [Clock(self.time, rate, self.random.randrange(10**6)) for rate in rates]

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self, table: Table, leaps: float, leap_ms_max: int) -> None:
        """The next event that can happen."""
        random = self.random
        kind = table.draw(random)
        while not (targets := kind.targets()):
            kind = table.draw(random)
        index = int(random.random() * len(targets)) if len(targets) > 1 else 0
        wait_ms = random.randrange(leap_ms_max) if random.random() < leaps else 1
        step = Step(kind.name, name_of(targets, index), random.getrandbits(30), wait_ms)
        self._happen(step, kind, targets[index])

    def _happen(self, step: Step, kind: Kind, target: Target) -> None:
        self.time.now_ms += step.wait_ms
        self.setting.counts[step.kind] += 1
        self.trace.append(step)
        kind.act(target, step.draw)
        self.brokers.check()
        if self.group is not None:
            self.group.check()

    def replay(self, steps: Iterable[Step], *, left_out: Callable[[Step], None] = lambda _: None) -> None:
        """Those that can happen; the others are left out."""
        for step in steps:
            kind = self.kinds[step.kind]
            target = find(kind.targets(), step.target)
            if target is not None:
                self._happen(step, kind, target)
            else:
                left_out(step)

    def storm(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self._stormy, self._leaps, LEAP_MS_MAX)

    # -- the end -----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.brokers.heal()
        self.calling.cut_off.clear()
        self.operating.heal()
        if self.group is not None:
            self.group.heal()

    def settle(self) -> None:
        """Raises BrokenPromiseError where the cluster does not come to rest though nothing fails any more."""
        self.replay([Step(HEAL)])
        for _ in range(SETTLING_ROUNDS):
            for _ in range(SETTLING_STEPS):
                self.step(self._calm, SETTLING_LEAPS, SETTLING_LEAP_MS_MAX)
            if self.is_at_rest():
                return
        raise BrokenPromiseError("Liveness", f"no rest though nothing fails any more: {self.api.state}")

    def is_at_rest(self) -> bool:
        state, topic = self.api.state, self.setting.topic
        if self.group is not None and not self.group.is_at_rest():
            return False
        if state.leader is None or state.adding or state.removing or len(state.isr) != topic.spec.replicas:
            return False
        leader = self.brokers.machines[state.leader.broker].life
        if self.checks.reign.is_back or leader is None or not leader.replica.leads:
            return False
        known = leader.replica.high_watermark
        logs = (self.setting.disks[broker].log for broker in state.replicas)
        return all(self.checks.is_at_rest(leader.log, known, log) for log in logs)


def run(plan: Plan) -> World:
    """Raises FailedRunError."""
    world = World(plan)
    return finish(world, lambda: world.storm(plan.steps))


def finish(world: World, begin: Callable[[], None], *, rests: bool = True) -> World:
    """Raises FailedRunError."""
    try:
        begin()
        if rests:
            world.settle()
    except AssertionError as error:
        raise FailedRunError(world, error) from error
    return world


class FailedRunError(AssertionError):
    """A promise is broken, as the checks or an assertion in the core say."""

    def __init__(self, world: World, error: AssertionError) -> None:
        super().__init__(f"{world.plan}: {error}")
        self.world = world
        self.rule = rule_of(error)


def rule_of(error: AssertionError) -> str:
    """Its name; that of an assertion of the core is what it says."""
    return error.rule if isinstance(error, BrokenPromiseError) else str(error) or type(error).__name__
