"""The events of brokers, their disks and the network between them, and what clients do there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.core.errors import HeadraceError
from headrace.core.replication import events
from headrace.core.replication.seats import greatest_incarnation
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, Incarnation, Seat
from tests.sim.api import Api
from tests.sim.calling import Calling
from tests.sim.disk import Disk
from tests.sim.life import Life
from tests.sim.network import Network, Stream
from tests.sim.schedule import WHOLE, Kind, Target
from tests.sim.setting import Setting

RECORDS_MAX = 1_000


@dataclass(eq=False, slots=True)
class Pair:
    brokers: frozenset[BrokerId]
    label: str


@dataclass(eq=False, slots=True)
class Machine:
    """The machine on which lives of one broker come and go."""

    broker: BrokerId
    label: str
    life: Life | None = None


class Brokers:
    def __init__(self, setting: Setting, api: Api, calling: Calling) -> None:
        self.setting, self.api, self.calling = setting, api, calling
        self.network = Network()
        self.machines = {broker: Machine(broker, str(broker)) for broker in setting.brokers}
        ids = setting.brokers
        self.pairs = [Pair(frozenset((a, b)), f"{a}-{b}") for a in ids for b in ids if a < b]
        self.values = 0
        self.old_disks: dict[BrokerId, Disk] = {}
        """Lost once; they may turn up again."""
        self.gone: dict[BrokerId, Incarnation] = {}
        """Lives whose pods were seen to go."""

    def kinds(self) -> list[Kind]:
        return [
            Kind("message up", 15, self.network.upward, lambda stream, _: stream.leader.streams.serve(stream)),
            Kind("message down", 15, self.network.downward, lambda stream, _: stream.follower.streams.take(stream)),
            Kind("push", 12, self.network.pushable, lambda stream, _: stream.leader.streams.push(stream)),
            Kind("connect", 6, self.connectable, self.connect),
            Kind("sync", 12, self.syncing, lambda life, _: life.log_port.synced()),
            Kind("cut", 3, self.cutting, lambda life, _: life.log_port.cut_done()),
            Kind("produce", 10, self.producible, self.produce),
            Kind("delete records", 0.6, self.leaders, self.delete_records),
            Kind("checkpoint", 0.7, self.awake, lambda life, _: life.checkpoint()),
            Kind("tick", 1, self.waited_for, lambda life, _: life.clock_port.tick()),
            Kind("start", 6, self.startable, self.start),
            Kind("drained", 0.35, self.drained, self.stop_cleanly),
            Kind("stop broken", 0.4, lambda: [x for x in self.awake() if x.log_port.is_broken], self.stop_broken),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("kill", 0.7, self.alive, self.kill),
            Kind("kill leader", 0.5, self.leaders, self.kill),
            Kind("pause", 0.6, self.awake, self.pause),
            Kind("resume", 1.2, self.paused, self.resume),
            Kind("drain", 2.6, self.drainable, self.drain),
            Kind("drain leader", 2, lambda: [x for x in self.drainable() if x.replica.leads], self.drain),
            Kind("part", 0.4, lambda: self.pairs, lambda pair, _: self.network.apart.add(pair.brokers)),
            Kind("join", 1, self.parted, lambda pair, _: self.network.apart.discard(pair.brokers)),
            Kind("break stream", 0.6, lambda: self.network.streams, self.break_stream),
            Kind("power failure", 0.4, self.powered, self.power_failure),
            Kind("all lose power", 0.1, self.powered_together, self.all_lose_power),
            Kind("disk lost", 0.5, self.losable, self.disk_lost),
            Kind("any disk lost", 1, self.perilled, self.disk_lost),
            Kind("old disk is back", 0.5, self.with_old_disks, self.old_disk_is_back),
            Kind("sync fails", 14, self.failable, self.sync_fails),
            Kind("disk full", 1.5, self.with_room, self.disk_full),
            Kind("disk freed", 0.6, self.full, self.disk_freed),
        ]
        return [replace(kind, is_fault=True) for kind in kinds]

    # -- who ---------------------------------------------------------------------------------------------------------

    def alive(self) -> list[Life]:
        return [machine.life for machine in self.machines.values() if machine.life is not None]

    def awake(self) -> list[Life]:
        return [life for life in self.alive() if not life.is_paused]

    def paused(self) -> list[Life]:
        return [life for life in self.alive() if life.is_paused]

    def leaders(self) -> list[Life]:
        return [life for life in self.awake() if life.replica.leads]

    def producible(self) -> list[Life]:
        if self.values >= RECORDS_MAX:
            return []
        return [life for life in self.leaders() if not life.disk.is_full and not life.log_port.is_broken]

    def waited_for(self) -> list[Life]:
        return [life for life in self.awake() if life.clock_port.calls]

    def startable(self) -> list[Machine]:
        """Return the machines that may start a broker; it takes its life by compare-and-set on its Lease."""
        down = (machine for machine in self.machines.values() if machine.life is None)
        return [machine for machine in down if machine.broker not in self.calling.cut_off]

    def connectable(self) -> list[Life]:
        return [life for life in self.awake() if life.streams.to_leader is None and life.streams.wants is not None]

    def syncing(self) -> list[Life]:
        return [life for life in self.awake() if life.log_port.syncs]

    def cutting(self) -> list[Life]:
        return [life for life in self.awake() if life.log_port.cutting is not None]

    def parted(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.brokers in self.network.apart] if self.network.apart else []

    def with_room(self) -> list[Life]:
        return [life for life in self.alive() if not life.disk.is_full]

    def full(self) -> list[Life]:
        return [life for life in self.alive() if life.disk.is_full]

    def drainable(self) -> list[Life]:
        return [life for life in self.calling.connected() if not life.is_draining]

    def drained(self) -> list[Life]:
        """Return the lives that have drained: a broker that leads waits until another does; how long is drawn."""
        idle = (life for life in self.awake() if life.log_port.cutting is None and not life.log_port.is_broken)
        return [life for life in idle if life.is_draining]

    def powered(self) -> list[Life]:
        if self.setting.plan.durability is Durability.FSYNC:
            return self.alive()
        return self.losable()

    def powered_together(self) -> Sequence[Target]:
        return WHOLE if self.setting.plan.durability is Durability.FSYNC else ()

    def failable(self) -> list[Life]:
        return [life for life in self.syncing() if life in self.losable() or self.is_last(life)]

    def is_last(self, life: Life) -> bool:
        """Return whether its entry is the last of the ISR, which stays: all that it vouched for is on its disk, and
        read again."""
        plan = self.setting.plan
        return plan.durability is Durability.FSYNC and not plan.unclean and self.api.state.isr == (life.me,)

    def with_old_disks(self) -> list[Life]:
        return [life for life in self.losable() if life.broker in self.old_disks]

    def losable(self) -> list[Life]:
        """Return the lives whose disk may be lost: `minInsyncReplicas - 1` may, until they are in sync again.

        After `recover` one alone is in sync, whatever the topic asks for: its disk is the last.
        """
        checks = self.setting.checks
        plan, lost = self.setting.plan, checks.unreplaced
        allowed = 0 if plan.unclean else plan.min_insync_replicas - 1
        within = [life for life in self.alive() if len({*lost, life.broker}) <= allowed]
        return [life for life in within if checks.is_spare(life.broker)] if plan.restores else within

    def perilled(self) -> list[Life]:
        return self.alive() if self.setting.plan.perils else []

    # -- lives -------------------------------------------------------------------------------------------------------

    def start(self, machine: Machine, _: int = 0) -> None:
        broker, disk = machine.broker, self.setting.disks[machine.broker]
        lease = self.api.leases.get(broker)
        on_lease = lease.incarnation if lease is not None else Incarnation(0)
        found = disk.start(greatest_incarnation(broker, on_lease, [self.api.get()]), self.setting.plan.durability)
        self.api.take_lease(broker, disk.incarnation)
        machine.life = Life(Seat(broker, disk.incarnation), disk, found, self.setting, self.network)
        self.calling.began(machine.life)

    def stop(self, life: Life, draw: int) -> None:
        life.stop()
        machine = self.machines[life.broker]
        machine.life = None
        self.calling.ended(life)
        cut = life.log_port.cutting.effect if life.log_port.cutting is not None else None
        if isinstance(cut, events.Truncate):  # It is torn.
            end = cut.end
            life.log.lose_from(end + draw % (len(life.log.entries) - end + 1))
            life.disk.high_watermark = min(life.disk.high_watermark, end)
        elif cut is not None and draw % 2:  # The log is what it was, or empty where it begins anew.
            life.log.start_at(cut.offset)
            life.disk.high_watermark = min(life.disk.high_watermark, cut.offset)
        if draw % 5 < 4:  # Its pod is seen to go; else its Lease runs out.
            self.gone[life.broker] = life.me.incarnation

    def kill(self, life: Life, draw: int) -> None:
        self.stop(life, draw)

    def power_failure(self, life: Life, draw: int) -> None:
        self.stop(life, draw)
        log = life.log
        kept = log.on_disk + (draw >> 8) % (len(log.entries) - log.on_disk + 1)
        log.lose_from(kept)
        life.disk.power_failed = True
        if self.setting.plan.durability is Durability.REPLICATED:
            self._lost(life)

    def all_lose_power(self, _: object, draw: int) -> None:
        for life in self.alive():
            self.power_failure(life, draw)
            draw = draw * 31 + 7

    def disk_lost(self, life: Life, draw: int) -> None:
        self.stop(life, draw)
        self.old_disks[life.broker] = self.setting.disks[life.broker]
        self.setting.disks[life.broker] = Disk(is_there=False)
        self.setting.checks.reign.forgets(life.broker)
        self._lost(life)

    def old_disk_is_back(self, life: Life, draw: int) -> None:
        """Bring an old disk back as it was: it knows nothing of the lives since. That of the present life is lost in
        its place."""
        self.stop(life, draw)
        self.setting.disks[life.broker] = self.old_disks.pop(life.broker)
        self.setting.checks.reign.forgets(life.broker)
        self._lost(life)

    def _lost(self, life: Life) -> None:
        self.setting.checks.lost(life.me)

    def sync_fails(self, life: Life, _: int) -> None:
        self.setting.checks.unreplaced[life.broker] = life.me.incarnation
        life.log_port.sync_fails()

    def stop_broken(self, life: Life, draw: int) -> None:
        """Stop a broken broker at once, or after it gave up its seats; the next start cuts the log to the recovery
        point."""
        self.stop(life, draw)
        if self.setting.plan.durability is Durability.REPLICATED and len(life.log.entries) > life.log.on_disk:
            life.disk.power_failed = True
            self._lost(life)
        life.log.lose_from(life.log.on_disk)

    def pause(self, life: Life, _: int) -> None:
        life.is_paused = True

    def resume(self, life: Life, _: int) -> None:
        life.is_paused = False

    def drain(self, life: Life, _: int) -> None:
        life.is_draining = True
        self.api.renew(replace(self.api.leases[life.broker], draining=True))

    def stop_cleanly(self, life: Life, draw: int) -> None:
        if life.replica.leads and draw % 4:
            return
        life.close()
        life.disk.stopped_cleanly = True
        self.stop(life, draw)
        if life.broker not in self.calling.cut_off:
            self.api.renew(replace(self.api.leases[life.broker], clean=True))

    def disk_full(self, life: Life, _: int) -> None:
        life.disk.is_full = True

    def disk_freed(self, life: Life, _: int) -> None:
        life.disk.is_full = False

    def check(self) -> None:
        for machine in self.machines.values():
            if machine.life is not None:
                machine.life.check()

    def heal(self) -> None:
        self.network.apart.clear()
        for machine in self.machines.values():
            if machine.life is not None and machine.life.is_draining:
                self.stop_cleanly(machine.life, 0)
            self.setting.disks[machine.broker].is_full = False
            if machine.life is None:
                self.start(machine)
            else:
                machine.life.is_paused = False

    # -- the network -------------------------------------------------------------------------------------------------

    def connect(self, life: Life, _: int) -> None:
        wants = life.streams.wants
        assert wants is not None, "it follows somebody"
        leader = self.machines[wants.leader.broker].life
        if leader is not None and leader.me == wants.leader and self.network.joins(life.broker, leader.broker):
            life.streams.connect(leader)

    def break_stream(self, stream: Stream, draw: int) -> None:
        """Break a stream: a part of what is on its way is lost."""
        for queue in (stream.to_leader, stream.to_follower):
            for _ in range(draw % (len(queue) + 1)):
                queue.pop()
        if not stream.left_by_follower:
            stream.follower.streams.lose()
        elif not stream.left_by_leader:
            self.network.leave(stream.leader, stream)

    # -- clients -----------------------------------------------------------------------------------------------------

    def produce(self, life: Life, _: int) -> None:
        self.values += 1
        try:
            life.produce(self.values)
        except HeadraceError:
            self.setting.counts["refused"] += 1

    def delete_records(self, life: Life, draw: int) -> None:
        """People or retention ask for it: only what is committed goes."""
        length = life.replica.high_watermark - life.log.start
        if length > 0:
            start = life.log.start + 1 + draw % length
            life.log.delete_below(start)
            self.setting.checks.deleted_below = max(self.setting.checks.deleted_below, start)
