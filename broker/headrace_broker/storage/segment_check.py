"""Reading a segment through, batch by batch, to see whether the disk still has what was written.

Below the recovery point nobody looks at bytes that nobody asks for, and whoever serves them looks at headers only: a
bit that has flipped there waits for the day on which this replica is needed. Owned by `PartitionLog.verify`; each step
runs in a thread.
"""

from typing import NamedTuple

from headrace.core.errors import CorruptLogError, StorageFailedError
from headrace.core.limits import VERIFY_CHUNK_BYTES
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.recovery import Cut, Kept, TailScan, Wanted
from headrace.core.types import Offset
from headrace_broker.storage.disk import read_once, shown
from headrace_broker.storage.segment import Segment


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
