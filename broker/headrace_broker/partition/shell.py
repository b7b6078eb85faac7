"""The shell of one partition: it feeds the replica events, carries out the effects, and answers everybody who waits.

The core decides (`Replica.step`); this module carries out, in the order given and through plain ports, and waits for
nothing: what takes time is begun, and told when it is done. `Partition` drives it with a real log and an event loop,
the simulator with ports of its own (`tests/sim/ports.py`), so that a fault in here is found there.

    LogPort       appends, syncs, cuts, deletes      ClockPort   says the time, and calls back later
    StreamsPort   follows a leader                   Waiters     those who wait for an append, or for something new

What comes back on a stream is told by the methods of the shell:

    on the follower's side    stream_opened, stream_lost, epoch_answered, received
    on the leader's side      check_serves, epoch_end, follower_reported, follower_left, follow_appends

A partition follows one leader in one epoch at a time: `follow` takes the place of an earlier one, whose stream is over
for this partition without `stream_lost`. If `received` raises, the stream is over for this partition, and another one
is opened later: the partition reconciles its log again.

Invariants: nothing happens between the check of the epoch and the append, so that no append carries an epoch that is
over. Each waiter is answered once, after what it waits for: all is on disk that the core counts before an
acknowledgement, and readers are woken after the high watermark has moved. A follower reports what the core says, after
the append or the sync that it reports. Nothing is begun after `close`; what was begun before is still told.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headrace.core.errors import (
    HeadraceError,
    NotLeaderError,
    RequestTimedOutError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.log.epochs import EpochEnd, Fence
from headrace.core.log.group_commit import Sync
from headrace.core.replication.events import (
    Abandon,
    Acknowledge,
    Appended,
    AskEpochEnd,
    Closed,
    Configured,
    Connected,
    CutRefused,
    DeleteBelow,
    Disconnected,
    Effect,
    EpochAnswered,
    Event,
    Expire,
    Fetch,
    Follow,
    FollowerLeft,
    FollowerReported,
    GiveUp,
    IsrProposed,
    Lead,
    Offered,
    RaiseHighWatermark,
    Received,
    Repeated,
    ReplicaTicked,
    Report,
    Resign,
    StartAnew,
    StateApplied,
    Synced,
    SyncFailed,
    Truncate,
    Truncated,
    Unfollow,
    Waiter,
    WriteFailed,
)
from headrace.core.replication.following import LogView
from headrace.core.replication.isr import Ends, InSyncRules, PendingIsr
from headrace.core.replication.leadership import Contact
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionKey, Seat
from headrace_broker.partition.queries import Place, ProduceQuery

APPENDS_WAITING_MAX = 10_000
"""Appends of one partition that wait for their acknowledgement; above it clients are told to wait (429)."""
PARTITION_TICK_MS = 100
"""How often a partition with waiters looks at the time: expiry is this exact."""

_UNKNOWN = "whether the records are written is not known"
_log = logging.getLogger(__name__)
T = TypeVar("T")

Answered = Callable[[HeadraceError | None], None]
"""A callback that is told what became of an append."""
Wake = Callable[[], None]
SyncDone = Callable[[Synced | SyncFailed], None]
CutDone = Callable[[Truncated | CutRefused | WriteFailed], None]


class LogPort(LogView, Protocol):
    """The log, and the disk below it. What takes time tells `done` once, and never before it has returned."""

    def taken(self, data: Sequence[Any]) -> tuple[Offset | None, Callable[[], int]]:
        """Check what a leader sent. Returns where it begins, and what appends it and returns its bytes.

        The latter raises DivergedLogError, DiskFullError, ThrottledError and StorageFailedError. Raises
        CorruptBatchError.
        """

    def sync(self, done: SyncDone) -> None:
        """Begin to put on disk what was appended so far."""

    def cut(self, effect: Truncate | StartAnew, done: CutDone) -> None:
        """Begin to cut the log, or to start it anew, and put that on disk."""

    def delete_below(self, offset: Offset, failed: Callable[[WriteFailed], None]) -> None:
        """Begin to delete what the leader has deleted; only a disk that fails is told."""

    def failed(self, reason: str) -> None:
        """The disk failed: the broker surrenders all its seats, and stops."""


class StreamsPort(Protocol):
    def follow(self, partition: "PartitionShell", leader: Seat, leader_epoch: LeaderEpoch) -> None:
        """Open a stream for `partition` to `leader` in this epoch, again and again until told otherwise."""

    def unfollow(self, partition: "PartitionShell") -> None:
        """End its stream without `stream_lost`. Nothing happens where nobody is followed."""

    def ask_epoch_end(self, partition: "PartitionShell", leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        """Ask the leader where `epoch` ends in its log. Answered by `epoch_answered`."""

    def fetch(self, partition: "PartitionShell", leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """Have the leader send everything from `offset` on; answered by `received`, again and again."""

    def report(self, partition: "PartitionShell", leader_epoch: LeaderEpoch, ends: Ends) -> None:
        """This replica holds so much. Where an older report still waits to be sent, this one takes its place."""


class ClockPort(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def contact(self) -> Contact:
        """Now, and when the broker's Lease was last renewed."""

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None: ...


class Waiters:
    """Everybody who waits: for the result of an append, or for something new to read."""

    def __init__(self) -> None:
        self._answers: dict[int, Answered] = {}
        """The appends that are not acknowledged yet, by waiter."""
        self._last_waiter = 0
        self._readers: set[Wake] = set()
        self._replicas: set[Wake] = set()

    def check_room(self, place: Place) -> None:
        """Raises ThrottledError."""
        if len(self._answers) >= APPENDS_WAITING_MAX:
            raise ThrottledError(f"{place} has {APPENDS_WAITING_MAX} appends in flight; wait and try again")

    def expect(self, acks: Acks, expires_ms: int, answered: Answered) -> Waiter:
        self._last_waiter += 1
        self._answers[self._last_waiter] = answered
        return Waiter(self._last_waiter, acks, expires_ms)

    def answer(self, waiters: Iterable[int], error: HeadraceError | None) -> None:
        for waiter in waiters:
            self._answers.pop(waiter)(error)

    def follow(self, wake: Wake, *, appends: bool = False) -> None:
        """Have `wake` called when there is something new for readers; with `appends`, for replicas, too."""
        (self._replicas if appends else self._readers).add(wake)

    def unfollow(self, wake: Wake) -> None:
        self._readers.discard(wake)
        self._replicas.discard(wake)

    @property
    def has_replicas(self) -> bool:
        return bool(self._replicas)

    def wake(self) -> None:
        for wake in tuple(self._readers):  # They may leave meanwhile.
            wake()
        self.wake_replicas()

    def wake_replicas(self) -> None:
        """Something was appended, which is not committed yet."""
        for wake in tuple(self._replicas):
            wake()


@dataclass(frozen=True, slots=True)
class Ports:
    log: LogPort
    streams: StreamsPort
    clock: ClockPort
    waiters: Waiters = field(default_factory=Waiters)


class PartitionShell:
    def __init__(self, key: PartitionKey, place: Place, replica: Replica, ports: Ports) -> None:
        self.key = key
        self.place = place
        self.replica = replica
        self.log, self._streams, self._clock, self._waiters = ports.log, ports.streams, ports.clock, ports.waiters
        self._is_ticking = False
        self._is_closed = False

    # -- what the API server says --------------------------------------------------------------------------------------

    def apply(self, state: PartitionState) -> None:
        """The PartitionSet says so."""
        self._step(StateApplied(state))

    def isr_proposed(self, pending: PendingIsr | None) -> None:
        """These writes may land from now on: told before the PUT is sent. None: nothing is on its way any more."""
        self._step(IsrProposed(pending))

    def configure(self, rules: InSyncRules) -> None:
        """The Topic says so."""
        if rules != self.replica.rules:
            self._step(Configured(rules))

    # -- those who write and read --------------------------------------------------------------------------------------

    def append(
        self, query: ProduceQuery, write: Callable[[LeaderEpoch], tuple[T, int, Offset]], answered: Answered
    ) -> tuple[T, LeaderEpoch]:
        """Append now, and have it answered once: in good time, or at once and before this returns.

        `write` appends in the epoch that it is given. It returns what the caller is to have, the bytes that it has
        appended (0 where all of it was in the log before), and where that ends.

        The answer is None as soon as there are as many acknowledgements as asked for; else RequestTimedOutError,
        NotLeaderError or StorageFailedError: the records may or may not be written. Raises what
        `Replica.check_writable` and `write` raise, and ThrottledError; then nothing is answered.
        """
        epoch = self.replica.check_writable(str(self.place), query.fence, query.acks, self._clock.contact())
        self._waiters.check_room(self.place)
        written, size, end = self._write(lambda: write(epoch))
        waiter = None if query.acks is Acks.NONE else self._expect(query, answered)
        if size:
            self._step(Appended(self.log.log_end_offset, size, waiter))
            self._waiters.wake_replicas()
        elif waiter is not None:
            self._step(Repeated(end, waiter))
        if waiter is None:
            answered(None)
        return written, epoch

    def follow(self, wake: Wake) -> None:
        """Have `wake` called whenever there may be something new to say to a client, until `unfollow`."""
        self._waiters.follow(wake)

    def unfollow(self, wake: Wake) -> None:
        self._waiters.unfollow(wake)

    # -- the streams to followers --------------------------------------------------------------------------------------

    def follow_appends(self, wake: Wake) -> None:
        """Have `wake` called when something is appended, too, until `unfollow`."""
        self._waiters.follow(wake, appends=True)

    def check_serves(self, leader_epoch: LeaderEpoch) -> None:
        """Check that this broker leads in that epoch. Raises what `Replica.check_leader` raises."""
        self.replica.check_leader(str(self.place), Fence(leader_epoch=leader_epoch))

    def epoch_end(self, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> EpochEnd:
        """Return where `epoch` ends in this leader's log. Raises what `check_serves` raises."""
        self.check_serves(leader_epoch)
        return self.log.epochs.end_of(epoch, self.log.log_end_offset)

    def follower_reported(self, seat: Seat, leader_epoch: LeaderEpoch, ends: Ends, heard_ms: int | None = None) -> None:
        """A follower holds so much. `heard_ms`: when this broker sent what that answers; None: just now."""
        self._step(FollowerReported(seat, leader_epoch, ends, heard_ms))

    def follower_left(self, seat: Seat, leader_epoch: LeaderEpoch) -> None:
        """Its stream has ended."""
        self._step(FollowerLeft(seat, leader_epoch))

    # -- the stream to the leader --------------------------------------------------------------------------------------

    def stream_opened(self, leader_epoch: LeaderEpoch) -> None:
        self._step(Connected(leader_epoch))

    def stream_lost(self) -> None:
        self._step(Disconnected())

    def epoch_answered(self, leader_epoch: LeaderEpoch, answer: EpochEnd) -> None:
        """Raises DivergedLogError: this stream is of no use, try another one, later."""
        self._step(EpochAnswered(leader_epoch, answer))

    def received(
        self, leader_epoch: LeaderEpoch, data: Sequence[Any], high_watermark: Offset, log_start: Offset
    ) -> None:
        """Append what the leader sent, whole batches or none, and report.

        It is not looked at where it is of another epoch or stream. Where this raises, the stream is of no use: another
        one, later. Raises CorruptBatchError, DivergedLogError, DiskFullError, ThrottledError, StorageFailedError.
        """
        if not self.replica.accepts(leader_epoch):
            return
        base_offset, append = self.log.taken(data)
        self._step(Offered(leader_epoch, base_offset, high_watermark, log_start))
        if not self.replica.accepts(leader_epoch):
            return
        size = self._write(append)
        self._step(Received(leader_epoch, size, high_watermark, log_start))

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Answer everybody; nothing is begun any more."""
        self._is_closed = True
        self._step(Closed(reason))

    # ------------------------------------------------------------------------------------------------------------------

    def _write(self, write: Callable[[], T]) -> T:
        """Raises what `write` raises; after StorageFailedError nothing is written any more."""
        try:
            return write()
        except StorageFailedError as error:
            self._step(WriteFailed(str(error)))
            raise

    def _expect(self, query: ProduceQuery, answered: Answered) -> Waiter:
        return self._waiters.expect(query.acks, self._clock.now_ms() + query.timeout_ms, answered)

    def _step(self, event: Event) -> None:
        """Raises DivergedLogError for what came from a leader; then nothing has changed."""
        for effect in self.replica.step(event, self._clock.now_ms()):
            self._carry_out(effect)
        if self.replica.waits and not self._is_ticking:
            self._is_ticking = True
            self._clock.call_later(PARTITION_TICK_MS, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        self._step(ReplicaTicked())

    def _carry_out(self, effect: Effect) -> None:
        answer = self._waiters.answer
        match effect:
            case Sync():
                self._begin_sync()
            case Acknowledge(waiters):
                answer(waiters, None)
            case RaiseHighWatermark():
                self._waiters.wake()
            case Lead() | Resign():
                _log.info("%s: %s", self.place, effect)
                self._waiters.wake()
            case Expire(waiters, reason):
                answer(waiters, RequestTimedOutError(f"{self.place}: {reason}; {_UNKNOWN}"))
            case Abandon(waiters, reason):
                answer(waiters, NotLeaderError(f"{self.place} is not led here any more: {reason}; {_UNKNOWN}"))
            case GiveUp(waiters, reason):
                answer(waiters, StorageFailedError(f"{self.place}: {reason}; {_UNKNOWN}"))
                self.log.failed(reason)
                self._waiters.wake()
            case _:
                self._follow(effect)

    def _follow(
        self, effect: Follow | Unfollow | AskEpochEnd | Truncate | StartAnew | DeleteBelow | Fetch | Report
    ) -> None:
        streams = self._streams
        match effect:
            case Follow(leader, leader_epoch):
                streams.follow(self, leader, leader_epoch)
            case Unfollow():
                streams.unfollow(self)
            case AskEpochEnd(leader_epoch, epoch):
                streams.ask_epoch_end(self, leader_epoch, epoch)
            case Fetch(leader_epoch, offset):
                streams.fetch(self, leader_epoch, offset)
            case Report(leader_epoch, ends):
                streams.report(self, leader_epoch, ends)
            case Truncate() | StartAnew():
                self.log.cut(effect, self._step)
            case DeleteBelow(offset):
                self.log.delete_below(offset, self._step)

    def _begin_sync(self) -> None:
        # What is closed is put on disk as a whole.
        if not self._is_closed:
            self.log.sync(self._step)
