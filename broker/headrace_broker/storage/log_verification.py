"""Verification of one log: it reads its segments batch by batch, to see whether the disk still has what was written.

Below the recovery point no bytes are read that no client asks for, and a fetch checks headers only: a bit that has
flipped there stays unnoticed until the day on which this replica is needed. `LogVerification` also keeps which segments
are in doubt. A `PartitionLog` owns it, on its event loop; each step of a `SegmentCheck` runs in a thread. Nothing is
changed here: the fate of a damaged log depends on which other replicas have what it had
(`headrace.core.replication.draining`). Called by `partition.housekeeping`.
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
from headrace_broker.storage.compaction_files import SegmentSpan
from headrace_broker.storage.disk import read_once, shown
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.segment_set import SegmentGoneError, SegmentSet
from headrace_broker.storage.threads import StorageThreads

VERIFY_CHUNK_BYTES = 1 << 20
"""The size of the pieces in which a closed segment is read, or that of one batch that is larger."""
Pace = Callable[[int], Awaitable[None]]
"""A function that is called with the number of bytes read, and may wait."""


class Damage(NamedTuple):
    """Batches that are not what was written, or cannot be read."""

    point: LogPoint
    """The place where the first of them begins."""
    reason: str


class SegmentCheck:
    def __init__(self, segment: Segment, size: int, end_offset: Offset) -> None:
        """Check a segment's first `size` bytes, which end before `end_offset`; it may be appended to meanwhile."""
        self.damage: Damage | None = None
        """The damage that was found; nothing behind it was checked."""
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
        """Read on, and return how many bytes that were. Blocks."""
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


class LogVerification:
    def __init__(self, directory: Path, segments: SegmentSet, threads: StorageThreads) -> None:
        self.is_suspect = False
        """True where a reader has found damage since the last `verify` began, which finds the place."""
        self._directory = directory
        self._segments = segments
        self._threads = threads

    @contextmanager
    def suspecting(self) -> Iterator[None]:
        """Note damage that is found in the block, in reading or in decoding. Raises CorruptLogError for a
        CorruptBatchError, too.

        A batch that was written so that it cannot be decoded is no damage: its UnreadableBatchError passes.
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
        """Check whole batches that were read, each against its CRC. Raises CorruptLogError."""
        with self.suspecting():
            await self._threads.read(split_replicated, buffers)

    async def verify(self, pace: Pace) -> Damage | None:
        """Return the first damage; None where all segments, as they are when this begins, are what was written.

        Segments that are deleted, cut off or replaced meanwhile are not checked any more.
        """
        self.is_suspect = False
        active, tip, cuts = self._segments.active, self._segments.tip, self._segments.cuts
        for segment in list(self._segments.closed_segments()):
            span = SegmentSpan(segment.base_offset, segment.next_offset)
            # It is checked twice: the bytes may have been of files that are replaced just now.
            if await self._damage_in(span, pace) is not None:
                damage = await self._damage_in(span, pace)
                if damage is not None:
                    return damage
        if cuts != self._segments.cuts:
            return None
        damage = await self._check(SegmentCheck(active, tip.position, tip.offset), pace, lambda: True)
        is_there = cuts == self._segments.cuts and self._segments.active is active
        # A segment that was closed meanwhile may have been compacted since: another pass checks it.
        self.is_suspect = self.is_suspect or (damage is not None and not is_there)
        return damage if is_there else None

    async def _damage_in(self, span: SegmentSpan, pace: Pace) -> Damage | None:
        try:
            segment = await self._threads.read(self._segments.glimpse, span.base_offset)
        except (SegmentGoneError, OSError):
            return None  # A segment that cannot be opened for good fails for its readers.
        check = SegmentCheck(segment, segment.size, span.next_offset)
        return await self._check(check, pace, lambda: self._segments.has(span))

    async def _check(self, check: SegmentCheck, pace: Pace, is_there: Callable[[], bool]) -> Damage | None:
        while not check.is_done and is_there():
            await pace(await self._threads.read(check.step))
        return check.damage if is_there() else None
