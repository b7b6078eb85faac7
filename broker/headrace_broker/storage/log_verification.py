"""Does the disk still have what was written? Reading the segments of one log through, and who has doubts.

Owned by a `PartitionLog`, on its event loop. Nothing is changed here: what becomes of a damaged log depends on who else
has what it had (`headrace.core.replication.draining`).
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.core.errors import CorruptBatchError, CorruptLogError, StorageFailedError, UnreadableBatchError
from headrace.core.records.raw import split_replicated
from headrace_broker.storage.compaction_files import Span
from headrace_broker.storage.disk import shown
from headrace_broker.storage.segment_check import Damage, SegmentCheck
from headrace_broker.storage.segment_set import SegmentGoneError, SegmentSet
from headrace_broker.storage.threads import StorageThreads

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
