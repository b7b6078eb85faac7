"""Verification of one log: reads its segments through, batch by batch, to see whether the disk still has what was
written.

Below the recovery point nobody looks at bytes that nobody asks for, and whoever serves them looks at headers only: a
bit that has flipped there waits for the day on which this replica is needed. `LogVerification` also keeps which
segments are in doubt. Owned by a `PartitionLog`, on its event loop; each step of a `SegmentCheck` runs in a thread.
Nothing is changed here: the fate of a damaged log depends on who else has what it had
(`headrace.core.replication.mending`). Called by `partition.housekeeping`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.core.errors import CorruptBatchError, CorruptLogError, StorageFailedError, UnreadableBatchError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.recovery import Cut, Kept, TailScan, Wanted
from headrace.core.records.raw import split_replicated
from headrace.core.types import Offset
from headrace_broker.storage.compaction_files import Span
from headrace_broker.storage.disk import read_once, shown
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.segment_set import SegmentGoneError, SegmentSet
from headrace_broker.storage.threads import StorageThreads

VERIFY_CHUNK_BYTES = 1 << 20
"""A closed segment is read through in pieces of this size, or of one batch that is larger."""


class Damage(NamedTuple):
    """Batches that are not what was written, or cannot be read."""

    point: LogPoint
    """Where the first of them begins."""
    reason: str


class SegmentCheck:
    def __init__(self, segment: Segment, size: int, end_offset: Offset) -> None:
        """Of its first `size` bytes, which end before `end_offset`; it may be appended to meanwhile."""
        self.damage: Damage | None = None
        """What was found; nothing behind it was looked at."""
        self._segment = segment
        self._size = size
        self._end_offset = end_offset
        self._scan = TailScan(segment.base_offset, LeaderEpochs())
        self._position = 0
        self._wanted = 1

    @property
    def is_done(self) -> bool:
        return self.damage is not None or self._position >= self._size

    def step(self) -> int:
        """Read on; returns how many bytes that were. Blocks."""
        left = self._size - self._position
        try:
            window = read_once(self._segment.log, self._position, min(left, max(VERIFY_CHUNK_BYTES, self._wanted)))
        except (CorruptLogError, StorageFailedError) as error:
            self._found(error.message)
            return 0
        self._judge(memoryview(window), left)
        if self.is_done and self.damage is None and self._scan.next_offset != self._end_offset:
            self._found(f"the segment ends at offset {self._scan.next_offset}, the next begins at {self._end_offset}")
        return len(window)

    def _judge(self, window: memoryview, left: int) -> None:
        at, self._wanted = 0, 1
        while at < len(window):
            match self._scan.judge(window[at:], left - at):
                case Kept(header):
                    at += header.batch_bytes
                case Wanted(batch_bytes):
                    self._wanted = batch_bytes
                    break
                case Cut(reason):
                    self._position += at
                    self._found(reason)
                    return
        self._position += at

    def _found(self, reason: str) -> None:
        segment = self._segment
        place = LogPoint(self._scan.next_offset, segment.base_offset, self._position, segment.log.written_ms())
        self.damage = Damage(
            place, f"{shown(segment.log.path)}, position {self._position}, offset {place.offset}: {reason}"
        )


Pace = Callable[[int], Awaitable[None]]
"""Told how many bytes were read: may wait."""


class LogVerification:
    def __init__(self, directory: Path, segments: SegmentSet, threads: StorageThreads) -> None:
        self.is_suspect = False
        """Somebody has found damage since the last `verify` began, which tells where."""
        self._directory = directory
        self._segments = segments
        self._threads = threads

    @contextmanager
    def suspecting(self) -> Iterator[None]:
        """Of a read, and of whoever looks into what was read. Raises CorruptLogError for a CorruptBatchError, too.

        A batch that was written so that nobody can decode it is no damage: its UnreadableBatchError passes.
        """
        try:
            yield
        except UnreadableBatchError:
            raise
        except (CorruptLogError, StorageFailedError):
            self.is_suspect = True
            raise
        except CorruptBatchError as error:
            self.is_suspect = True
            raise CorruptLogError(f"the log in {shown(self._directory)} is damaged: {error.message}") from error

    async def check(self, buffers: Sequence[memoryview]) -> None:
        """Whole batches that were read, each against its CRC. Raises CorruptLogError."""
        with self.suspecting():
            await self._threads.read(split_replicated, buffers)

    async def verify(self, pace: Pace) -> Damage | None:
        """The first damage; None where all segments, as they are when this begins, are what was written.

        What is deleted, cut off or replaced meanwhile is not looked at any more.
        """
        self.is_suspect = False
        active, tip, cuts = self._segments.active, self._segments.tip, self._segments.cuts
        for segment in list(self._segments.closed_segments()):
            span = Span(segment.base_offset, segment.next_offset)
            # Seen twice: what was read may have been of files that are replaced just now.
            if await self._damage_in(span, pace) is not None:
                damage = await self._damage_in(span, pace)
                if damage is not None:
                    return damage
        if cuts != self._segments.cuts:
            return None
        damage = await self._check(SegmentCheck(active, tip.position, tip.offset), pace, lambda: True)
        is_there = cuts == self._segments.cuts and self._segments.active is active
        # One that was closed meanwhile may have been compacted since: another look tells.
        self.is_suspect = self.is_suspect or (damage is not None and not is_there)
        return damage if is_there else None

    async def _damage_in(self, span: Span, pace: Pace) -> Damage | None:
        try:
            segment = await self._threads.read(self._segments.glimpse, span.base_offset)
        except (SegmentGoneError, OSError):
            return None  # One that cannot be opened for good is missed by whoever reads it.
        check = SegmentCheck(segment, segment.size, span.next_offset)
        return await self._check(check, pace, lambda: self._segments.has(span))

    async def _check(self, check: SegmentCheck, pace: Pace, is_there: Callable[[], bool]) -> Damage | None:
        while not check.is_done and is_there():
            await pace(await self._threads.read(check.step))
        return check.damage if is_there() else None
