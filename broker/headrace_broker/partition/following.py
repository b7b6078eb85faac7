"""One partition's log while another broker leads: carries out what its follower decides, takes what its streams bring.

Owned by a `Partition`, on the event loop. The core decides (`Following`). Effects go to `Streams`, whose methods return
at once; what comes back on a stream is told to the partition by its own methods:

    on the follower's side    stream_opened, stream_lost, epoch_answered, received
    on the leader's side      check_serves, epoch_end, follower_reported, follow_appends / unfollow_appends, recent,
                              log.read...

A partition follows one leader in one epoch at a time: `follow` takes the place of an earlier one, whose stream is over
for this partition without `stream_lost`. If handling of received data raises, the stream is over for this partition,
and another one is opened later: the partition reconciles its log again. `Host` is what all partitions of one broker
share.

Invariants: a cut goes on to its end, and nothing is appended meanwhile; a cut that fails for want of room or of open
files, or because of damage, is tried again until it succeeds; a disk that fails here fails for the whole broker.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, assert_never
from weakref import WeakMethod, ref

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    HeadraceError,
    OffsetOutOfRangeError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.records.raw import split_replicated
from headrace.core.replication.events import (
    AskEpochEnd,
    CutRefused,
    DeleteBelow,
    Event,
    Fetch,
    Follow,
    Offered,
    Received,
    Report,
    StartAnew,
    Truncate,
    Truncated,
    Unfollow,
    WriteFailed,
)
from headrace.core.replication.isr import Ends
from headrace.core.replication.leadership import Contact
from headrace.core.types import LeaderEpoch, Offset, Seat
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import wall_ms
from headrace_broker.metrics import Metrics
from headrace_broker.replication.recent_batches import RecentBatches

if TYPE_CHECKING:
    from headrace_broker.partition.partition import Partition

CUT_RETRY_MS = 1_000
"""A follower's log that cannot be cut, for want of room or files or for damage, is tried again so much later."""


class Streams(Protocol):
    def follow(self, partition: "Partition", leader: Seat, leader_epoch: LeaderEpoch) -> None:
        """Open a stream for `partition` to `leader` in this epoch, again and again until told otherwise."""

    def unfollow(self, partition: "Partition") -> None:
        """No more of it: it is over without `stream_lost`. Nothing happens where nobody is followed."""

    def ask_epoch_end(self, partition: "Partition", leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        """Of the leader: where does `epoch` end in its log? Answered by `epoch_answered`."""

    def fetch(self, partition: "Partition", leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """Have the leader send everything from `offset` on; answered by `received`, again and again."""

    def report(self, partition: "Partition", leader_epoch: LeaderEpoch, ends: Ends) -> None:
        """This replica holds so much. Where an older report still waits to be sent, this one takes its place."""


@dataclass(frozen=True, slots=True)
class Host:
    """The broker, as its partitions see it."""

    metrics: Metrics
    disk: BrokerDisk
    streams: Streams
    contact: Callable[[], Contact]
    """Now, and when the Lease was last renewed."""
    recent: RecentBatches = field(default_factory=RecentBatches)


_log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview
FollowerEffect = Follow | Unfollow | AskEpochEnd | Truncate | StartAnew | DeleteBelow | Fetch | Report


class FollowingLog:
    def __init__(self, partition: "Partition", streams: Streams, step: Callable[[Event], None]) -> None:
        # A circle would keep a closed log, and the room of its files: what a broker began with is never collected.
        self._owner = ref(partition)
        self._owners_step = WeakMethod(step)
        self._streams = streams
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _partition(self) -> "Partition":
        partition = self._owner()
        assert partition is not None, "it owns this"
        return partition

    def _step(self, event: Event) -> None:
        step = self._owners_step()
        assert step is not None, "it owns this"
        step(event)

    def carry_out(self, effect: FollowerEffect) -> None:
        partition, streams = self._partition, self._streams
        match effect:
            case Follow(leader, leader_epoch):
                streams.follow(partition, leader, leader_epoch)
            case Unfollow():
                streams.unfollow(partition)
            case AskEpochEnd(leader_epoch, epoch):
                streams.ask_epoch_end(partition, leader_epoch, epoch)
            case Fetch(leader_epoch, offset):
                streams.fetch(partition, leader_epoch, offset)
            case Report(leader_epoch, ends):
                streams.report(partition, leader_epoch, ends)
            case Truncate() | StartAnew():
                _log.warning("%s: %s", partition.place, effect)
                self._start(self._cut(effect))
            case DeleteBelow(offset):
                self._start(self._delete_below(offset))
            case _:
                assert_never(effect)

    def received(
        self, leader_epoch: LeaderEpoch, batches: Sequence[Buffer], high_watermark: Offset, log_start: Offset
    ) -> None:
        """Append what the leader sent, and report; it is not looked at where it is of another epoch or stream.

        Raises CorruptBatchError, DivergedLogError, DiskFullError, ThrottledError, StorageFailedError.
        """
        replica = self._partition.replica
        if not replica.accepts(leader_epoch):
            return
        taken = split_replicated(batches)
        base_offset = taken[0].header.base_offset if taken else None
        self._step(Offered(leader_epoch, base_offset, high_watermark, log_start))
        if not replica.accepts(leader_epoch):
            return
        size, log = sum(batch.nbytes for batch in taken), self._partition.log
        if taken:
            self._partition.write(size, lambda: log.append_replicated(taken, wall_ms()))
        self._step(Received(leader_epoch, size, high_watermark, log_start))

    async def finish(self) -> None:
        """Wait no more for what can be tried again only later; what has begun is for the cleaner to finish."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"follow {self._partition.place}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cut(self, effect: Truncate | StartAnew) -> None:
        try:
            became = await self._made(effect)
        except Exception as error:
            # Whatever it was: a log that is cut in part is led by nobody, and nobody may wait for it for ever.
            _log.exception("%s: the cut failed", self._partition.place)
            self._step(WriteFailed(str(error) or repr(error)))
        else:
            self._step(became)

    async def _made(self, effect: Truncate | StartAnew) -> Truncated | CutRefused:
        try:
            await self._change(effect)
        except (CorruptLogError, OffsetOutOfRangeError) as error:
            # The latter where records were deleted from the front since it was decided.
            _log.error("%s: the log cannot be cut: %s", self._partition.place, error)
            await self._partition.log.sync()
            await asyncio.sleep(CUT_RETRY_MS / 1000)  # The leader will ask for the same again.
            return CutRefused(error.message)
        return Truncated()

    async def _change(self, effect: Truncate | StartAnew) -> None:
        cleaner = self._partition.cleaner
        while True:
            try:
                match effect:
                    case Truncate(end, _, allowed):
                        await cleaner.truncate(end, allow_below_high_watermark=allowed)
                    case StartAnew(offset):
                        await cleaner.start_at(offset)
                return
            except (DiskFullError, ThrottledError) as error:
                _log.warning("%s: the log cannot be cut yet: %s", self._partition.place, error)
            await asyncio.sleep(CUT_RETRY_MS / 1000)

    async def _delete_below(self, offset: Offset) -> None:
        try:
            await self._partition.cleaner.delete_as_leader(offset)
        except StorageFailedError as error:
            self._step(WriteFailed(str(error)))
        except HeadraceError as error:
            _log.warning("%s: what the leader has deleted stays for now: %s", self._partition.place, error)
