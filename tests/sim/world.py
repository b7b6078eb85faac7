"""One run: a seeded scheduler that lets one thing happen at a time, faults among them, and checks everything then.

`run(seed)` plays so many steps with faults, heals everything, and then demands that the cluster comes to rest: every
replica in sync, every log the same, everything committed. The same seed gives the same run, event for event.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from headrace.core.control.changing import Budget, leaders_of
from headrace.core.control.electing import Elections
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.errors import HeadraceError
from headrace.core.limits import LEASE_DURATION_MS, LEASE_RENEW_INTERVAL_MS
from headrace.core.replication.events import Ticked
from headrace.core.replication.followers import InSyncRules
from headrace.core.replication.set_writer import SetWriter
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, PartitionEpoch, Seat, TopicUid
from tests.sim.api import Api, Call, Kind, Lease
from tests.sim.checks import BrokenPromiseError, Checks
from tests.sim.disk import Disk, Log
from tests.sim.life import PARTITION, Life, Stream

BROKERS = tuple(BrokerId(number) for number in range(3))
LEAP_MS_MAX = 2_000
LEAPS = 0.06
RECORDS_MAX = 150
SETTLING_STEPS = 300
SETTLING_ROUNDS = 20
CHANGES_LOGS = frozenset({"message", "cut", "produce", "start"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What kind of run it is."""

    durability: Durability = Durability.FSYNC
    min_insync_replicas: int = 2
    steps: int = 1_000
    power_failures: bool = True
    """Under `Replicated` only one machine at a time may lose what is in memory."""
    lost_disks: int = 1


class World:
    def __init__(self, seed: int, plan: Plan) -> None:
        self.random = Random(seed)
        self.plan = plan
        self.now_ms = 0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.moods: dict[str, float] = {}
        self.checks = Checks()
        self.rules = InSyncRules(plan.durability, plan.min_insync_replicas)
        first = tuple(Seat(broker, Incarnation(0)) for broker in BROKERS)
        state = PartitionState(PARTITION, None, LeaderEpoch(0), PartitionEpoch(0), BROKERS, first)
        metadata = Metadata(name="topic-0", namespace="default", resource_version="1")
        self.api = Api([PartitionSet(metadata, "topic", TopicUid("uid"), (state,))])
        self.disks = {broker: Disk() for broker in BROKERS}
        self.lives: dict[BrokerId, Life] = {}
        self.calls: list[Call] = []
        self.apart: set[frozenset[BrokerId]] = set()
        """Pairs of brokers that cannot reach each other."""
        self.without_api: set[BrokerId] = set()
        self.operator_index = 0
        """What the operator's watch has shown: an index in the history."""
        self.values = 0
        self.disks_lost = 0
        spec = TopicSpec.parse(
            {"partitions": 1, "replicas": len(BROKERS), "minInsyncReplicas": plan.min_insync_replicas}
        )
        self.spec: TopicSpec = spec
        for broker in BROKERS:
            self.start(broker)

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self, *, faults: bool) -> None:
        kinds = [*self.work(), *(self.faults() if faults else [])]
        weights = [weight * (self.mood(name) if faults else 1) for name, weight, _ in kinds]
        name, _, act = self.random.choices(kinds, weights)[0]
        self.now_ms += self.random.randrange(LEAP_MS_MAX) if self.random.random() < LEAPS else 1
        self.counts[name] += 1
        self.trace.append(name)
        act()
        self.checks.stored(self.api.state())
        if name in CHANGES_LOGS:
            self.checks.logs_match([disk.log for disk in self.disks.values()])

    def mood(self, name: str) -> float:
        """Of this run: how much more, or less, often than usual something happens (swarm testing)."""
        if name not in self.moods:
            self.moods[name] = 10 ** self.random.uniform(-0.5, 0.5)
        return self.moods[name]

    def work(self) -> list[tuple[str, float, Callable[[], None]]]:
        return [
            ("message", 30, self.message),
            ("push", 12, self.push),
            ("connect", 6, self.connect),
            ("sync", 10, self.sync),
            ("cut", 3, self.cut),
            ("produce", 15, self.produce),
            ("read", 2, self.read),
            ("tick", 3, self.tick),
            ("lease", 10, self.renew_leases),
            ("coordinate", 8, self.coordinate),
            ("watch", 8, self.watch),
            ("api acts", 12, self.api_acts),
            ("api answers", 12, self.api_answers),
            ("operator watches", 6, self.operator_watches),
            ("operator", 6, self.operate),
        ]

    def faults(self) -> list[tuple[str, float, Callable[[], None]]]:
        kinds: list[tuple[str, float, Callable[[], None]]] = [
            ("kill", 0.5, self.kill),
            ("start", 4, self.start_one),
            ("pause", 0.4, self.pause),
            ("resume", 1.2, self.resume),
            ("part", 0.5, self.part),
            ("join", 1, self.join),
            ("lose api", 0.3, self.lose_api),
            ("find api", 1, self.find_api),
            ("break stream", 0.5, self.break_stream),
            ("call lost", 0.7, self.call_lost),
            ("call given up", 1.5, self.call_given_up),
        ]
        if self.plan.power_failures:
            kinds += [("power failure", 0.5, self.power_failure), ("all lose power", 0.1, self.all_lose_power)]
        if self.disks_lost < self.plan.lost_disks:
            kinds.append(("disk lost", 0.1, self.disk_lost))
        return kinds

    def awake(self) -> list[Life]:
        return [life for life in self.lives.values() if not life.is_paused]

    def one_of(self, lives: list[Life]) -> Life | None:
        return self.random.choice(lives) if lives else None

    def connected_to_api(self) -> list[Life]:
        return [life for life in self.awake() if life.me.broker not in self.without_api]

    # -- brokers -----------------------------------------------------------------------------------------------------

    def start(self, broker: BrokerId) -> None:
        disk, lease = self.disks[broker], self.api.leases.get(broker)
        in_set = [seat.incarnation for seat in self.api.state().isr if seat.broker == broker]
        known = max([lease.incarnation if lease is not None else Incarnation(0), *in_set])
        damage = self.damage(disk, known)
        disk.incarnation = Incarnation(max(disk.incarnation, known) + 1)
        disk.power_failed = False
        disk.log.recover()
        self.api.leases[broker] = Lease(disk.incarnation, self.now_ms)
        life = Life(Seat(broker, disk.incarnation), disk, self.rules, damage, self.checks)
        self.lives[broker] = life
        self.calls.append(Call(life, Kind.GET, ""))

    def damage(self, disk: Disk, known: Incarnation) -> str:
        if known > disk.incarnation:
            return "this disk missed a life"
        if self.plan.durability is Durability.REPLICATED and disk.power_failed:
            return "what was in memory is gone"
        return ""

    def start_one(self) -> None:
        down = [broker for broker in BROKERS if broker not in self.lives]
        # A broker takes its life by compare-and-set on its Lease.
        startable = [broker for broker in down if broker not in self.without_api]
        if startable:
            self.start(self.random.choice(startable))

    def stop(self, life: Life) -> None:
        del self.lives[life.me.broker]
        if self.random.random() < 0.6:  # Its pod is seen to go; else its Lease runs out.
            self.api.leases[life.me.broker].renewed_ms = -LEASE_DURATION_MS
        for stream in list(life.followers):
            life.close(stream)
        if life.stream is not None and life.stream in life.stream.leader.followers:
            life.stream.leader.followers.remove(life.stream)
        for call in self.calls:
            call.is_given_up = call.is_given_up or call.caller is life

    def kill(self) -> None:
        life = self.one_of(list(self.lives.values()))
        if life is not None:
            self.stop(life)

    def lose_power(self, life: Life) -> None:
        self.stop(life)
        life.log.lose_unsynced(self.random)
        life.disk.power_failed = True

    def power_failure(self) -> None:
        may = self.plan.durability is Durability.FSYNC or not any(disk.power_failed for disk in self.disks.values())
        life = self.one_of(list(self.lives.values()))
        if life is not None and may:
            self.lose_power(life)

    def all_lose_power(self) -> None:
        if self.plan.durability is Durability.FSYNC:
            for life in list(self.lives.values()):
                self.lose_power(life)

    def disk_lost(self) -> None:
        life = self.one_of(list(self.lives.values()))
        if life is not None:
            self.stop(life)
            self.disks[life.me.broker] = Disk(Log())
            self.disks_lost += 1

    def pause(self) -> None:
        life = self.one_of(self.awake())
        if life is not None:
            life.is_paused = True

    def resume(self) -> None:
        life = self.one_of([life for life in self.lives.values() if life.is_paused])
        if life is not None:
            life.is_paused = False

    def sync(self) -> None:
        life = self.one_of([life for life in self.awake() if life.syncs])
        if life is not None:
            life.synced(self.now_ms)

    def cut(self) -> None:
        life = self.one_of([life for life in self.awake() if life.cut is not None])
        if life is not None:
            life.cut_done()

    def tick(self) -> None:
        life = self.one_of(self.awake())
        if life is not None:
            life.step(Ticked(), self.now_ms)

    # -- the network -------------------------------------------------------------------------------------------------

    def are_apart(self, one: Life, other: Life) -> bool:
        return frozenset((one.me.broker, other.me.broker)) in self.apart

    def streams(self) -> list[Stream]:
        streams = [life.stream for life in self.lives.values() if life.stream is not None]
        return [stream for stream in streams if not self.are_apart(stream.follower, stream.leader)]

    def connect(self) -> None:
        life = self.one_of([life for life in self.awake() if life.stream is None and life.wants is not None])
        if life is None or life.wants is None:
            return
        leader = self.lives.get(life.wants[0].broker)
        if leader is not None and leader.me == life.wants[0] and not self.are_apart(life, leader):
            life.connect(leader)

    def message(self) -> None:
        moving: list[Callable[[], None]] = []
        for stream in self.streams():
            if stream.to_leader and not stream.leader.is_paused:
                moving.append(partial(stream.leader.serve, stream, self.now_ms))
            if stream.to_follower and not stream.follower.is_paused:
                moving.append(partial(stream.follower.take, stream))
        if moving:
            self.random.choice(moving)()

    def push(self) -> None:
        ready = [stream for stream in self.streams() if not stream.leader.is_paused]
        if ready:
            stream = self.random.choice(ready)
            stream.leader.push(stream)

    def break_stream(self) -> None:
        streams = [life.stream for life in self.lives.values() if life.stream is not None]
        if streams:
            stream = self.random.choice(streams)
            stream.follower.close(stream)

    def part(self) -> None:
        self.apart.add(frozenset(self.random.sample(BROKERS, 2)))

    def join(self) -> None:
        if self.apart:
            self.apart.discard(self.random.choice(sorted(self.apart, key=sorted)))

    # -- clients -----------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        life = self.one_of([life for life in self.awake() if life.leads])
        if life is None or self.values >= RECORDS_MAX:
            return
        self.values += 1
        try:
            life.produce(self.values, self.now_ms)
        except HeadraceError:
            self.counts["refused"] += 1

    def read(self) -> None:
        life = self.one_of([life for life in self.awake() if life.leads])
        if life is not None:
            self.checks.read(life.me, life.log, life.leadership.high_watermark)

    # -- the API server ----------------------------------------------------------------------------------------------

    def lose_api(self) -> None:
        self.without_api.add(self.random.choice(BROKERS))

    def find_api(self) -> None:
        if self.without_api:
            self.without_api.discard(self.random.choice(sorted(self.without_api)))

    def renew_leases(self) -> None:
        for life in self.connected_to_api():
            lease = self.api.leases[life.me.broker]
            if lease.incarnation == life.me.incarnation and self.now_ms - lease.renewed_ms >= LEASE_RENEW_INTERVAL_MS:
                lease.renewed_ms = self.now_ms

    def live_seats(self) -> list[Seat]:
        fresh = [(b, at) for b, at in self.api.leases.items() if self.now_ms - at.renewed_ms < LEASE_DURATION_MS]
        return [Seat(broker, lease.incarnation) for broker, lease in fresh]

    def coordinate(self) -> None:
        life = self.one_of([life for life in self.connected_to_api() if life.writer is not None])
        if life is None or life.writer is None:
            return
        put = life.wishes(self.live_seats(), self.now_ms)
        if put is not None:
            self.calls.append(Call(life, Kind.PUT, put.metadata.resource_version, put))
        elif life.writer.is_undecided and self.random.random() < 0.3:
            self.calls.append(Call(life, Kind.GET, life.writer.known.metadata.resource_version))

    def watch(self) -> None:
        behind = [life for life in self.connected_to_api() if life.watch_index < len(self.api.history) - 1]
        life = self.one_of([life for life in behind if life.writer is not None])
        if life is not None:
            life.watch_index = self.random.randint(life.watch_index + 1, len(self.api.history) - 1)
            shown = self.api.history[life.watch_index]
            life.see(lambda writer: writer.seen(shown), self.now_ms)

    def api_acts(self) -> None:
        waiting = [call for call in self.calls if not call.is_answered]
        if waiting:
            self.api.act(self.random.choice(waiting))

    def api_answers(self) -> None:
        answered = [call for call in self.calls if call.is_answered]
        if not answered:
            return
        call = self.random.choice(answered)
        caller = call.caller
        assert isinstance(caller, Life), "brokers call"
        if not call.is_given_up and (caller.is_paused or caller.me.broker in self.without_api):
            return
        self.calls.remove(call)
        if not call.is_given_up:
            self.answer(caller, call)

    def answer(self, life: Life, call: Call) -> None:
        if call.kind is Kind.GET:
            assert call.content is not None, "it is there"
            self.got(life, call.content, call.based_on)
        elif call.content is not None:
            landed = call.content
            life.see(lambda writer: writer.landed(landed), self.now_ms)
        else:
            self.counts["conflict"] += 1
            life.see(SetWriter.unanswered, self.now_ms)
            assert life.writer is not None, "it wrote"
            self.calls.append(Call(life, Kind.GET, life.writer.known.metadata.resource_version))

    def got(self, life: Life, found: PartitionSet, based_on: str) -> None:
        if life.writer is None:
            life.writer = SetWriter(found)
            life.watch_index = self.api.history.index(found)
            life.apply(self.now_ms)
        else:
            life.see(lambda writer: writer.read(found, based_on=based_on), self.now_ms)

    def call_lost(self) -> None:
        """On its way to the server."""
        waiting = [call for call in self.calls if not call.is_answered]
        if waiting:
            call = self.random.choice(waiting)
            self.calls.remove(call)
            self.give_up(call)

    def call_given_up(self) -> None:
        """By its caller: it may land, and its answer reaches nobody."""
        pending = [call for call in self.calls if not call.is_given_up]
        if pending:
            self.give_up(self.random.choice(pending))

    def give_up(self, call: Call) -> None:
        if call.is_given_up:
            return
        call.is_given_up, life = True, call.caller
        assert isinstance(life, Life), "brokers call"
        if self.lives.get(life.me.broker) is not life:
            return
        if call.kind is Kind.PUT:
            life.see(SetWriter.unanswered, self.now_ms)
        elif life.writer is None:
            self.calls.append(Call(life, Kind.GET, ""))

    # -- the operator ------------------------------------------------------------------------------------------------

    def operator_watches(self) -> None:
        self.operator_index = self.random.randint(self.operator_index, len(self.api.history) - 1)

    def operate(self) -> None:
        known = self.api.history[self.operator_index]
        state = known.partitions[0]
        live = {seat.broker: seat for seat in self.live_seats()}
        brokers = {
            broker: Broker(broker, lease.incarnation, "", BrokerState.READY if broker in live else BrokerState.LOST)
            for broker, lease in self.api.leases.items()
        }
        observed = Observed("default", (known,), brokers)
        elections = Elections(self.spec, observed, Budget.of([state], observed), leaders_of([state], observed))
        change = elections.look_at(state)
        if change is None:
            return
        if self.api.put(known.with_partitions(change.state)) is None:
            self.counts["operator conflicts"] += 1
            self.operator_index = len(self.api.history) - 1
        elif self.random.random() < 0.8:  # Else its answer is lost, and the watch tells.
            self.counts["elections"] += change.state.leader is not None
            self.operator_index = len(self.api.history) - 1

    # -- what must hold ----------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.apart.clear()
        self.without_api.clear()
        for broker in BROKERS:
            if broker in self.lives:
                self.lives[broker].is_paused = False
            else:
                self.start(broker)

    def is_at_rest(self) -> bool:
        state = self.api.state()
        logs = [disk.log.entries for disk in self.disks.values()]
        leader = self.lives[state.leader.broker] if state.leader is not None else None
        same = all(log == logs[0] for log in logs)
        done = leader is not None and leader.leads and leader.leadership.high_watermark == len(logs[0])
        return len(state.isr) == len(BROKERS) and same and done and self.checks.committed == logs[0]


def run(seed: int, plan: Plan) -> World:
    """Raises BrokenPromiseError, with the seed and the last events."""
    world = World(seed, plan)
    try:
        for _ in range(plan.steps):
            world.step(faults=True)
        world.heal()
        for _ in range(SETTLING_ROUNDS):
            for _ in range(SETTLING_STEPS):
                world.step(faults=False)
            if world.is_at_rest():
                return world
        raise BrokenPromiseError(f"Liveness: no rest though nothing fails any more: {world.api.state()}")
    except AssertionError as error:
        raise BrokenPromiseError(f"seed {seed}, {plan}: {error}\n  ... {', '.join(world.trace[-12:])}") from error
