"""One life of a broker: the shell that the real broker is, reduced to one partition, around the very same core.

It carries out what `Replica` decides, keeps one stream to its leader and serves those of others, and writes the
PartitionSet through `SetWriter`. Whatever takes time (a sync, a cut, a call, a message) is left lying for the world to
let happen, late or never.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, assert_never

from headrace.core.control.broker_reports import BrokerReport, Epochs, HeldLog, PromisedLog, may_promise
from headrace.core.control.liveness import Liveness
from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import Fence
from headrace.core.log.group_commit import Sync
from headrace.core.log.recovery import DiskFacts
from headrace.core.replication import events
from headrace.core.replication.events import Waiter
from headrace.core.replication.replica import Replica
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import LogFacts, why_void
from headrace.core.replication.set_writer import BrokerSituation, LocalReplica, SetWriter, WantedState, wanted_states
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, PartitionId, PartitionKey, Seat
from tests.sim.disk import Disk, Entry
from tests.sim.network import Hello, Network, Push, Reported, Stream
from tests.sim.reign import Warned
from tests.sim.setting import Clock, Setting

PARTITION = PartitionId(0)
PUSH_MAX = 8
WAIT_MS = 5_000


@dataclass(frozen=True, slots=True)
class PendingSync:
    end: int
    cuts: int


class Guest(Protocol):
    """The coordinator of this life of a broker, in runs with a group."""

    def ask(self, request: Any) -> None: ...
    def acknowledged(self, values: Sequence[int]) -> None: ...
    def failed(self, values: Sequence[int]) -> None: ...
    def moved(self) -> None:
        """The replica took a step."""


class Life:
    """`found`: what the start found on disk."""

    def __init__(self, me: Seat, disk: Disk, found: DiskFacts, setting: Setting, network: Network) -> None:
        self.me, self.broker, self.disk, self.log, self.setting = me, me.broker, disk, disk.log, setting
        self.label = str(me.broker)
        self.network = network
        self.clock: Clock = setting.clocks[me.broker]
        end, last_epoch = self.log.log_end_offset, max(self.log.epochs.latest, disk.seen_epoch)
        self.replica = Replica(
            me,
            setting.rules,
            self.log,
            durable_end=end,
            last_epoch=last_epoch,
            high_watermark=Offset(disk.high_watermark),
        )
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
        self.renewed_ms = self.clock.now_ms
        self.is_up = True
        self.is_paused = False
        self.is_broken = False
        """Its disk failed: it gives up what it has, and stops."""
        self.is_draining = False
        self.stream: Stream | None = None
        self.wants: events.Follow | None = None
        """Whom to connect to."""
        self.syncs: deque[PendingSync] = deque()
        self.cut: events.Truncate | events.StartAnew | None = None
        self._produced: dict[int, Offset] = {}
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
        self.step(events.StateApplied(isr.state))
        self.step(events.IsrProposed(isr.pending))

    def step(self, event: events.Event) -> None:
        for effect in self.replica.step(event, self.clock.now_ms):
            self.setting.counts[type(effect).__name__] += 1
            self._carry_out(effect)
        if self.guest is not None:
            self.guest.moved()

    def produce(self, value: int) -> None:
        """Raises what `check_writable` raises."""
        epoch = self.replica.check_writable("topic/0", Fence(), Acks.ALL)
        self._produced[value] = self.log.log_end_offset
        self._append((Entry(epoch, value),))
        waiter = Waiter(value, Acks.ALL, self.clock.now_ms + WAIT_MS)
        self.step(events.Appended(self.log.log_end_offset, 1, waiter))

    def synced(self) -> None:
        """The oldest sync comes back; what was cut meanwhile it does not cover."""
        done = self.syncs.popleft()
        self.log.synced(done.end, done.cuts)
        self.step(events.Synced(Offset(done.end)))

    def cut_done(self) -> None:
        assert self.cut is not None, "one has begun"
        cut, self.cut = self.cut, None
        if isinstance(cut, events.Truncate):
            self.log.truncate(cut.end)
        else:
            self.log.start_at(cut.offset)
        self.disk.high_watermark = min(self.disk.high_watermark, self.log.log_end_offset)
        self.setting.checks.kept()
        self.step(events.Truncated())

    def promised(self, asked: Mapping[PartitionKey, Epochs]) -> dict[PartitionKey, PromisedLog]:
        """To lead and vote in no earlier epoch."""
        promised = {}
        for key, epochs in asked.items():
            state, facts = self.replica.state, self._facts
            if may_promise(state, epochs) and state is not None and facts is not None and self.cut is None:
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
            self.step(events.IsrProposed(self.writer.isr(PARTITION).pending))
        return put

    def _wishes(self, known: PartitionSet) -> list[WantedState]:
        failed = "its disk failed" if self.is_broken else ""
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

    # -- streams -----------------------------------------------------------------------------------------------------

    def connect(self, leader: "Life") -> None:
        assert self.wants is not None, "it follows somebody"
        self.stream = self.network.open(self, leader)
        self.stream.to_leader.append(Hello(self.wants.leader_epoch))

    def lose_stream(self) -> None:
        if self.stream is not None:
            self._leave_leader()
            self.step(events.Disconnected())

    def _leave_leader(self) -> None:
        if self.stream is not None:
            self.network.leave(self, self.stream)
            self.stream = None

    def push(self, stream: Stream) -> None:
        """Send what is next, if only the high watermark."""
        assert stream.next_offset is not None, "it was asked"
        if not self.replica.leads:
            self.network.leave(self, stream)
            return
        base = Offset(max(stream.next_offset, self.log.start))
        entries = tuple(self.log.entries[base : base + PUSH_MAX])
        stream.next_offset = Offset(base + len(entries))
        replica, start = self.replica, self.log.log_start_offset
        stream.send(Push(replica.leader_epoch, base, entries, replica.high_watermark, start))

    def serve(self, stream: Stream) -> None:
        """The leader's side: the next message of a follower, or the end of its stream."""
        if not stream.to_leader:
            self.network.leave(self, stream)
            return
        message = stream.to_leader.popleft()
        if not self._serves(message.leader_epoch):
            self.network.leave(self, stream)
            return
        match message:
            case Hello():
                stream.send(message)
            case events.AskEpochEnd(leader_epoch, epoch):
                answer = self.log.epochs.end_of(epoch, self.log.log_end_offset)
                stream.send(events.EpochAnswered(leader_epoch, answer))
            case events.Fetch(_, offset):
                stream.next_offset = offset
            case Reported(report, heard_ms):
                told = events.FollowerReported(stream.follower.me, report.leader_epoch, report.ends, heard_ms)
                self.step(told)
            case _:
                assert_never(message)

    def _serves(self, leader_epoch: LeaderEpoch) -> bool:
        return self.replica.leads and leader_epoch == self.replica.leader_epoch

    def take(self, stream: Stream) -> None:
        """The follower's side: the next message of its leader, or the end of the stream."""
        if not stream.to_follower:
            self.lose_stream()
            return
        message, stream.heard_ms = stream.to_follower.popleft()
        match message:
            case Hello(leader_epoch):
                self.step(events.Connected(leader_epoch))
            case Push():
                self._receive(message)
            case events.EpochAnswered():
                self._try(message)

    def _receive(self, push: Push) -> None:
        base = push.base if push.entries else None
        follows = self._try(events.Offered(push.leader_epoch, base, push.high_watermark, push.log_start))
        if not follows or not self.replica.accepts(push.leader_epoch):
            return
        if push.entries and (self.disk.is_full or push.base != self.log.log_end_offset):
            self.lose_stream()
            return
        self._append(push.entries)
        self.step(events.Received(push.leader_epoch, len(push.entries), push.high_watermark, push.log_start))

    def _try(self, event: events.Event) -> bool:
        try:
            self.step(event)
        except DivergedLogError:
            self.setting.counts["diverged"] += 1
            self.lose_stream()
            return False
        return True

    def _append(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self.log.append(entry)
            self.setting.checks.appended(self.log)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: events.Effect) -> None:
        match effect:
            case Sync():
                self.syncs.append(PendingSync(len(self.log.entries), self.log.cuts))
            case events.Truncate() | events.StartAnew():
                self.cut = effect
            case events.DeleteBelow(offset):
                self.log.delete_below(offset)
            case events.GiveUp():
                self.is_broken = True
            case events.AskEpochEnd() | events.Fetch() | events.Report():
                self._send(effect)
            case events.Follow() | events.Unfollow():
                self._leave_leader()
                self.wants = effect if isinstance(effect, events.Follow) else None
            case _:
                self._lead(effect)

    def _send(self, effect: events.AskEpochEnd | events.Fetch | events.Report) -> None:
        """To the leader, where there is a stream."""
        stream = self.stream
        if stream is not None:
            message = Reported(effect, stream.heard_ms) if isinstance(effect, events.Report) else effect
            stream.to_leader.append(message)

    def _lead(self, effect: events.Effect) -> None:
        match effect:
            case events.RaiseHighWatermark(high_watermark):
                self._raised(high_watermark)
            case events.Acknowledge(waiters):
                # Those that are answered are committed by the effect that follows.
                self._raised(self.replica.high_watermark)
                for value in waiters:
                    offset = self._produced[value]
                    self.setting.checks.acknowledge(offset, self.log.entries[offset], self.led)
                if self.guest is not None:
                    self.guest.acknowledged(waiters)
            case events.Expire(waiters) | events.Abandon(waiters):
                if self.guest is not None:
                    self.guest.failed(waiters)
            case events.Lead():
                self.setting.checks.elected(self.me, self.led, self.log)
            case events.Resign():
                self._leave_followers()

    def _raised(self, high_watermark: Offset) -> None:
        isr = self.replica.isr
        assert isr is not None, "it leads"
        self.setting.checks.raised(self.me, self.replica.leader_epoch, self.log, high_watermark, isr)

    @property
    def led(self) -> PartitionState:
        """In which it leads."""
        assert self.replica.state is not None, "it leads"
        return self.replica.state

    def _leave_followers(self) -> None:
        for stream in [s for s in self.network.streams if s.leader is self and not s.left_by_leader]:
            self.network.leave(self, stream)

    def stop(self) -> None:
        """The process is gone; what it sent may still arrive."""
        self.is_up = False
        for stream in [s for s in self.network.streams if self in (s.leader, s.follower)]:
            self.network.leave(self, stream)


def _kind(wish: WantedState, me: Seat, before: PartitionState) -> str:
    """What is counted."""
    if wish.is_claim:
        return "claim renewed" if me in wish.state.isr else "claim given up"
    words = {"its disk failed": "give up", "it stops": "step down", "its disk is full": "step down, full"}
    by_size = "ISR shrinks" if len(wish.state.isr) < len(before.isr) else "ISR grows"
    return next((name for text, name in words.items() if text in wish.reason), by_size)
