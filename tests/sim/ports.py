"""The ports that a broker's own `PartitionShell` has in a run: a disk, streams and a clock that are the simulator's.

Whatever takes time (a sync, a cut, a message, a tick) is left lying for the world to let happen, late or never.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from headrace.core.errors import DiskFullError, DivergedLogError, HeadraceError
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.replication import events
from headrace.core.replication.isr import Ends
from headrace.core.replication.leadership import Contact
from headrace.core.types import LeaderEpoch, Offset, Seat
from headrace_broker.partition.shell import CutDone, PartitionShell, SyncDone
from tests.sim.checks import Checks
from tests.sim.disk import Disk, Entry
from tests.sim.network import Hello, Network, Push, Reported, Stream
from tests.sim.reign import BrokenPromiseError
from tests.sim.setting import Clock

if TYPE_CHECKING:
    from tests.sim.life import Life

PUSH_MAX = 8


@dataclass(frozen=True, slots=True)
class PendingSync:
    end: int
    cuts: int
    done: SyncDone


@dataclass(frozen=True, slots=True)
class PendingCut:
    effect: events.Truncate | events.StartAnew
    done: CutDone


class SimulatedLog:
    """The log of one life of a broker."""

    def __init__(self, disk: Disk, checks: Checks) -> None:
        self._disk, self._log, self._checks = disk, disk.log, checks
        self.syncs: deque[PendingSync] = deque()
        self.cutting: PendingCut | None = None
        self.is_broken = False
        """The disk failed: the broker gives up what it has, and stops."""
        self.is_closed = False

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def epochs(self) -> LeaderEpochs:
        return self._log.epochs

    def append(self, entries: Sequence[Entry]) -> None:
        self._check_open()
        for entry in entries:
            self._log.append(entry)
            self._checks.appended(self._log)

    def taken(self, data: Sequence[Push]) -> tuple[Offset | None, Callable[[], int]]:
        """A leader sends one piece, or nothing but news."""
        if not data:
            return None, lambda: 0
        (push,) = data

        def append() -> int:
            if self._disk.is_full:
                raise DiskFullError("there is no room")
            if push.base != self.log_end_offset:
                raise DivergedLogError("it does not follow")
            self.append(push.entries)
            return len(push.entries)

        return push.base, append

    def sync(self, done: SyncDone) -> None:
        self._check_open()
        self.syncs.append(PendingSync(len(self._log.entries), self._log.cuts, done))

    def cut(self, effect: events.Truncate | events.StartAnew, done: CutDone) -> None:
        self._check_open()
        self.cutting = PendingCut(effect, done)

    def delete_below(self, offset: Offset, failed: Callable[[events.WriteFailed], None]) -> None:
        self._check_open()
        self._log.delete_below(offset)

    def failed(self, reason: str) -> None:
        self.is_broken = True

    # -- what the world lets happen ----------------------------------------------------------------------------------

    def synced(self) -> None:
        """The oldest sync comes back; what was cut meanwhile it does not cover."""
        sync = self.syncs.popleft()
        self._log.synced(sync.end, sync.cuts)
        sync.done(events.Synced(Offset(sync.end)))

    def sync_fails(self) -> None:
        self.syncs.popleft().done(events.SyncFailed("I/O error"))

    def cut_done(self) -> None:
        assert self.cutting is not None, "one has begun"
        (effect, done), self.cutting = (self.cutting.effect, self.cutting.done), None
        if isinstance(effect, events.Truncate):
            self._log.truncate(effect.end)
        else:
            self._log.start_at(effect.offset)
        self._disk.high_watermark = min(self._disk.high_watermark, self.log_end_offset)
        self._checks.kept()
        done(events.Truncated())

    def checkpoint(self, high_watermark: Offset) -> None:
        """Remember it on disk."""
        if self.cutting is None:
            self._checks.remembered(self._log, high_watermark)
            self._disk.high_watermark = max(self._disk.high_watermark, high_watermark)

    def close(self) -> None:
        """All that was begun comes to its end, and all that is there goes to disk."""
        self.is_closed = True
        while self.syncs:
            self.synced()
        self._log.on_disk = len(self._log.entries)

    def _check_open(self) -> None:
        if self.is_closed:
            raise BrokenPromiseError("NothingAfterClose", "its log is closed")


class SimulatedClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.renewed_ms = clock.now_ms
        """When the Lease was renewed last."""
        self.calls: list[Callable[[], None]] = []
        """They are due."""

    def now_ms(self) -> int:
        return self._clock.now_ms

    def contact(self) -> Contact:
        return Contact(self.now_ms(), self.renewed_ms)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def tick(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class SimulatedStreams:
    """One life's end of its streams: the one to its leader, and those of its followers."""

    def __init__(self, life: "Life", network: Network) -> None:
        self._life, self._network = life, network
        self.to_leader: Stream | None = None
        self.wants: events.Follow | None = None
        """Whom to connect to."""

    def follow(self, partition: PartitionShell, leader: Seat, leader_epoch: LeaderEpoch) -> None:
        self.unfollow(partition)
        self.wants = events.Follow(leader, leader_epoch)

    def unfollow(self, partition: PartitionShell) -> None:
        self._leave_leader()
        self.wants = None

    def ask_epoch_end(self, partition: PartitionShell, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        if self.to_leader is not None:
            self.to_leader.to_leader.append(events.AskEpochEnd(leader_epoch, epoch))

    def fetch(self, partition: PartitionShell, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        if self.to_leader is not None:
            self.to_leader.to_leader.append(events.Fetch(leader_epoch, offset))

    def report(self, partition: PartitionShell, leader_epoch: LeaderEpoch, ends: Ends) -> None:
        stream = self.to_leader
        if stream is not None:
            stream.to_leader.append(Reported(events.Report(leader_epoch, ends), stream.heard_ms))

    # -- the follower's side -----------------------------------------------------------------------------------------

    def connect(self, leader: "Life") -> None:
        assert self.wants is not None, "it follows somebody"
        self.to_leader = self._network.open(self._life, leader)
        self.to_leader.to_leader.append(Hello(self.wants.leader_epoch))

    def lose(self) -> None:
        if self.to_leader is not None:
            self._leave_leader()
            self._life.shell.stream_lost()

    def take(self, stream: Stream) -> None:
        """The next message of the leader, or the end of the stream."""
        if not stream.to_follower:
            self.lose()
            return
        message, stream.heard_ms = stream.to_follower.popleft()
        try:
            self._take(message)
        except HeadraceError:
            self._life.setting.counts["diverged"] += 1
            self.lose()

    def _take(self, message: Hello | Push | events.EpochAnswered) -> None:
        """Raises HeadraceError where the stream is of no use."""
        shell = self._life.shell
        match message:
            case Hello(leader_epoch):
                shell.stream_opened(leader_epoch)
            case Push(leader_epoch, _, entries, high_watermark, log_start):
                shell.received(leader_epoch, [message] if entries else [], high_watermark, log_start)
            case events.EpochAnswered(leader_epoch, answer):
                shell.epoch_answered(leader_epoch, answer)

    def _leave_leader(self) -> None:
        if self.to_leader is not None:
            self._network.leave(self._life, self.to_leader)
            self.to_leader = None

    # -- the leader's side -------------------------------------------------------------------------------------------

    def push(self, stream: Stream) -> None:
        """Send what is next, if only the high watermark."""
        assert stream.next_offset is not None, "it was asked"
        replica, log = self._life.replica, self._life.log
        if not replica.leads:
            self._network.leave(self._life, stream)
            return
        base = Offset(max(stream.next_offset, log.start))
        entries = tuple(log.entries[base : base + PUSH_MAX])
        stream.next_offset = Offset(base + len(entries))
        stream.send(Push(replica.leader_epoch, base, entries, replica.high_watermark, log.log_start_offset))

    def serve(self, stream: Stream) -> None:
        """The next message of a follower, or the end of its stream."""
        if not stream.to_leader:
            self._network.leave(self._life, stream)
            return
        message = stream.to_leader.popleft()
        shell = self._life.shell
        try:
            shell.check_serves(message.leader_epoch)
        except HeadraceError:
            self._network.leave(self._life, stream)
            return
        match message:
            case Hello():
                stream.send(message)
            case events.AskEpochEnd(leader_epoch, epoch):
                stream.send(events.EpochAnswered(leader_epoch, shell.epoch_end(leader_epoch, epoch)))
            case events.Fetch(_, offset):
                stream.next_offset = offset
            case Reported(report, heard_ms):
                shell.follower_reported(stream.follower.me, report.leader_epoch, report.ends, heard_ms)
            case _:
                assert_never(message)

    def leave_followers(self) -> None:
        for stream in [s for s in self._network.streams if s.leader is self._life and not s.left_by_leader]:
            self._network.leave(self._life, stream)

    def stop(self) -> None:
        """The process is gone; what it sent may still arrive."""
        for stream in [s for s in self._network.streams if self._life in (s.leader, s.follower)]:
            self._network.leave(self._life, stream)
