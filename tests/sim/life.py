"""One life of a broker: its own `PartitionShell` on ports of the simulator, and what it does besides.

It writes the PartitionSet through `SetWriter`, tells its reports, and looks at what the shell answers and whom it
wakes: each append is answered once, and readers are woken as soon as there is something new.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from headrace.core.control.broker_reports import BrokerReport, Epochs, HeldLog, PromisedLog, may_promise
from headrace.core.control.liveness import Liveness
from headrace.core.errors import HeadraceError
from headrace.core.log.epochs import Fence
from headrace.core.log.recovery import DiskFacts
from headrace.core.replication import events
from headrace.core.replication.replica import Replica
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import LogFacts, why_void
from headrace.core.replication.set_writer import BrokerSituation, LocalReplica, SetWriter, WantedState, wanted_states
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, PartitionId, PartitionKey, Seat, TopicName
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.partition.shell import PartitionShell, Ports
from tests.sim.disk import Disk, Entry
from tests.sim.network import Network
from tests.sim.ports import SimulatedClock, SimulatedLog, SimulatedStreams
from tests.sim.reign import BrokenPromiseError, Warned
from tests.sim.setting import Clock, Setting

PARTITION = PartitionId(0)
PLACE = Place(TopicName("default", "topic"), PARTITION)
ACKS_ALL = ProduceQuery(Acks.ALL, 5_000, Fence())
TOO_LATE = -1
"""A value that comes when the broker has closed its log."""


class Guest(Protocol):
    """The coordinator of this life of a broker, in runs with a group."""

    def ask(self, request: Any) -> None: ...
    def acknowledged(self, values: Sequence[int]) -> None: ...
    def failed(self, values: Sequence[int]) -> None: ...
    def moved(self) -> None:
        """There is something new to read, or this broker leads, or leads no more."""


class CountedReplica(Replica):
    """It counts what it decides."""

    counts: Counter[str]

    def step(self, event: events.Event, now_ms: int) -> list[events.Effect]:
        effects = super().step(event, now_ms)
        self.counts.update(type(effect).__name__ for effect in effects)
        return effects


class Life:
    """`found`: what the start found on disk."""

    def __init__(self, me: Seat, disk: Disk, found: DiskFacts, setting: Setting, network: Network) -> None:
        self.me, self.broker, self.disk, self.log, self.setting = me, me.broker, disk, disk.log, setting
        self.label = str(me.broker)
        self.clock: Clock = setting.clocks[me.broker]
        end, last_epoch = self.log.log_end_offset, max(self.log.epochs.latest, disk.seen_epoch)
        self.replica = CountedReplica(
            me,
            setting.rules,
            self.log,
            durable_end=end,
            last_epoch=last_epoch,
            high_watermark=Offset(disk.high_watermark),
        )
        self.replica.counts = setting.counts
        self.log_port, self.clock_port = SimulatedLog(disk, setting.checks), SimulatedClock(self.clock)
        self.streams = SimulatedStreams(self, network)
        ports = Ports(self.log_port, self.streams, self.clock_port)
        self.shell = PartitionShell(PartitionKey(setting.topic.uid, PARTITION), PLACE, self.replica, ports)
        self.shell.follow(self._woken)
        self._found = found
        self._facts: LogFacts | None = None
        self.writer: SetWriter | None = None
        """None until the set was read for the first time."""
        self.watch_index = 0
        self.is_doubtful = False
        """A watch showed an older state than is known."""
        self.leases: dict[BrokerId, BrokerLease] = {}
        """As last seen."""
        self.liveness = Liveness()
        self.is_up = True
        self.is_paused = False
        self.is_draining = False
        self._unanswered: set[int] = set()
        """Values that were appended and that nothing was said of yet."""
        self._shown: tuple[LeaderEpoch, Offset] | None = None
        """The epoch and the high watermark that readers were woken with last; None where it does not lead."""
        self.guest: Guest | None = None if setting.host is None else setting.host(self)

    # -- what it is told ---------------------------------------------------------------------------------------------

    def read_first(self, found: PartitionSet, index: int) -> None:
        """The set, for the first time: only now the log is opened."""
        self.writer, self.watch_index = SetWriter(found), index
        damage = self.disk.damage(self._found, self.setting.rules.durability)
        self._facts = LogFacts(max(self.log.epochs.latest, self.disk.seen_epoch), damage, self.disk.void_before)
        self.apply()

    def see(self, tell: Callable[[SetWriter], None]) -> None:
        """The API server said something."""
        assert self.writer is not None, "it has read the set"
        tell(self.writer)
        self.apply()

    def apply(self) -> None:
        assert self.writer is not None, "it has read the set"
        isr = self.writer.isr(PARTITION)
        self.disk.seen_epoch = max(self.disk.seen_epoch, isr.state.leader_epoch)
        self.setting.checks.reign.hears(self.broker, isr.state.leader_epoch)
        self.shell.apply(isr.state)
        self.shell.isr_proposed(isr.pending)

    def checkpoint(self) -> None:
        self.log_port.checkpoint(self.replica.vouched_high_watermark)

    def close(self) -> None:
        """It stops in good order; whoever comes too late is refused."""
        self.shell.close("it stops")
        self.log_port.close()
        with suppress(HeadraceError):
            self.produce(TOO_LATE)
        self.check()

    def stop(self) -> None:
        """The process is gone."""
        self.is_up = False
        self.streams.stop()

    # -- records -----------------------------------------------------------------------------------------------------

    def produce(self, value: int) -> None:
        """Raises what `PartitionShell.append` raises."""
        offset = self.log.log_end_offset

        def write(epoch: LeaderEpoch) -> tuple[None, int, Offset]:
            self._unanswered.add(value)
            self.log_port.append([Entry(epoch, value)])
            return None, 1, self.log.log_end_offset

        self.shell.append(ACKS_ALL, write, partial(self._answered, value, offset))

    def _answered(self, value: int, offset: Offset, error: HeadraceError | None) -> None:
        if value not in self._unanswered:
            raise BrokenPromiseError("OneAnswer", f"{value} was answered before")
        self._unanswered.remove(value)
        if error is None:
            # What is answered is committed by the effect that follows.
            self._raised()
            self.setting.checks.acknowledge(offset, self.log.entries[offset], self.led)
        if self.guest is not None:
            (self.guest.acknowledged if error is None else self.guest.failed)((value,))

    def _woken(self) -> None:
        """There is something new to read, or this broker begins or ceases to lead."""
        replica = self.replica
        if not replica.leads:
            self._shown = None
            self.streams.leave_followers()
        else:
            if self._shown is None or self._shown[0] != replica.leader_epoch:
                self.setting.checks.elected(self.me, self.led, self.log)
            else:
                self._raised()
            self._shown = (replica.leader_epoch, replica.high_watermark)
        if self.guest is not None:
            self.guest.moved()

    def _raised(self) -> None:
        isr = self.replica.isr
        assert isr is not None, "it leads"
        high_watermark = self.replica.high_watermark
        self.setting.checks.raised(self.me, self.replica.leader_epoch, self.log, high_watermark, isr)

    @property
    def led(self) -> PartitionState:
        """The state in which it leads."""
        assert self.replica.state is not None, "it leads"
        return self.replica.state

    def check(self) -> None:
        """Check after every event that nobody waits for what has happened, or for what will not."""
        replica = self.replica
        there = (replica.leader_epoch, replica.high_watermark) if replica.leads else None
        if self._shown != there:
            raise BrokenPromiseError("WokenByNews", f"{self.me} has {there}, readers were woken with {self._shown}")
        if self._unanswered and not replica.waits:
            raise BrokenPromiseError("OneAnswer", f"{self.me} never answers {self._unanswered}")
        if replica.waits and not self.clock_port.calls:
            raise BrokenPromiseError("OneAnswer", f"{self.me} has waiters, and no time goes by for them")

    # -- reports -----------------------------------------------------------------------------------------------------

    def promised(self, asked: Mapping[PartitionKey, Epochs]) -> dict[PartitionKey, PromisedLog]:
        """To lead and vote in no earlier epoch."""
        promised = {}
        for key, epochs in asked.items():
            state, facts = self.replica.state, self._facts
            if may_promise(state, epochs) and state is not None and facts is not None and self.log_port.cutting is None:
                self.disk.seen_epoch = max(self.disk.seen_epoch, epochs.leader_epoch)
                end, on_disk = self.log.log_end_offset, Offset(self.log.on_disk)
                promised[key] = PromisedLog(self.log.epochs.latest, end, on_disk, why_void(state, self.me, facts))
        return promised

    def report(self) -> BrokerReport:
        """What it tells `headrace cluster recover`."""
        key, writer, disk = PartitionKey(self.setting.topic.uid, PARTITION), self.writer, self.disk
        if writer is None:
            known, damage, is_regressed = {}, "", False
        else:
            state = writer.known.partitions[PARTITION]
            known = {key: Epochs(state.leader_epoch, state.partition_epoch)}
            damage = self._facts.damage if self._facts is not None else ""
            is_regressed = self.is_regressed
        last, end = self.log.epochs.latest, self.log.log_end_offset
        log = HeldLog(last, end, self.replica.leads, damage, "", disk.seen_epoch, is_regressed)
        log = replace(log, applied_epoch=self.replica.leader_epoch)
        return BrokerReport(self.me, known, {key: log} if disk.is_there else {})

    @property
    def is_regressed(self) -> bool:
        return bool(self.replica.regressed) or (self.writer is not None and self.writer.is_regressed)

    # -- the PartitionSet --------------------------------------------------------------------------------------------

    def put(self) -> PartitionSet | None:
        """What to PUT now, if anything; the leader knows of it before it is sent."""
        assert self.writer is not None, "it has read the set"
        counts, rewrites = self.setting.counts, self.writer.is_undecided
        wished = self._wishes(self.writer.known)
        put = self.writer.write([wish.state for wish in wished])
        if put is not None:
            counts["written again" if rewrites else "written"] += 1
            state = self.writer.known.partitions[PARTITION]
            counts.update("wish: " + _kind(wish, self.me, state) for wish in wished)
            if any(wish.loss for wish in wished):
                self.setting.checks.reign.warns(put, Warned.MAY_LOSE)
            if any(wish.is_claim and self.me not in wish.state.isr for wish in wished):
                # Whatever the reason: what this disk has counts no more until it is in sync again.
                self.setting.checks.gave_up(self.me)
            self.shell.isr_proposed(self.writer.isr(PARTITION).pending)
        return put

    def _wishes(self, known: PartitionSet) -> list[WantedState]:
        failed = "its disk failed" if self.log_port.is_broken else ""
        leaving = "it stops" if self.is_draining else "its disk is full" if self.disk.is_full else ""
        regressed = frozenset(uid for lease in self._live() for uid in lease.regressed)
        around = BrokerSituation(self.me, self._ready(), self.clock.now_ms, failed, leaving, regressed)
        local = LocalReplica(Holding.OPEN, self._facts, self.setting.rules.min_insync_replicas, self.replica)
        return wanted_states(known, {PARTITION: local}, around)

    def _ready(self) -> list[Seat]:
        ready = (lease for lease in self._live() if not lease.draining and not lease.full and not lease.clean)
        return [Seat(lease.broker, lease.incarnation) for lease in ready]

    def _live(self) -> list[BrokerLease]:
        now_ms = self.clock.now_ms
        return [lease for lease in self.leases.values() if self.liveness.is_live(lease.broker, now_ms)]


def _kind(wish: WantedState, me: Seat, before: PartitionState) -> str:
    """What is counted."""
    if wish.is_claim:
        return "claim renewed" if me in wish.state.isr else "claim given up"
    words = {"its disk failed": "give up", "it stops": "step down", "its disk is full": "step down, full"}
    by_size = "ISR shrinks" if len(wish.state.isr) < len(before.isr) else "ISR grows"
    return next((name for text, name in words.items() if text in wish.reason), by_size)
