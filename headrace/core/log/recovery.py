"""The decisions of recovery: which part of a log is kept when it is opened, and whether it is still intact. No I/O.

A log is trusted below its recovery point and scanned above it, batch by batch, to the first one that was not written
whole or does not follow from the one before:

    wanted ──(more bytes)──> kept ──> kept ──> ... ──> cut, or the end of the last segment
       └──> cut

Invariants: offsets of kept batches have no gap, epochs never fall, every kept batch above the recovery point has its
CRC checked. A cut is final: everything after it goes, later segments included.

A log is intact if it still has everything that its broker voted for. Only then the replica renews its seat in the ISR
after a restart: a replica that votes with less than it had can lose acknowledged records; so what is not known counts
as lost. Earlier starts record what they found in `void-before` (`replication.seats`). Called by
`headrace_broker.storage`, which reads, truncates and syncs, and by the broker when it opens a partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_HEADER_BYTES
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.records.header import CRC_FROM, BatchHeader
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation, LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    base_offset: Offset
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ScanStart:
    """The start of a scan: byte `position` of segment number `segment`, where the batch of `offset` begins."""

    segment: int
    position: int
    offset: Offset


def scan_start(segments: Sequence[SegmentFacts], point: LogPoint | None) -> ScanStart:
    """Return where to scan from. `segments` is in order and not empty; `point` is None where it is not known.

    Where the segment of the recovery point is gone or too short, the last segment that begins at or below that point is
    scanned from its start: all earlier segments are closed and synced.
    """
    if point is None:
        return ScanStart(0, 0, segments[0].base_offset)
    below = [i for i, segment in enumerate(segments) if segment.base_offset <= point.segment]
    if not below:
        return ScanStart(0, 0, segments[0].base_offset)
    last = segments[below[-1]]
    if last.base_offset == point.segment and point.position <= last.size_bytes:
        return ScanStart(below[-1], point.position, point.offset)
    return ScanStart(below[-1], 0, last.base_offset)


@dataclass(frozen=True, slots=True)
class Kept:
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class Wanted:
    """The verdict that the batch is longer than what was read of it: read this many bytes from its start."""

    batch_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The verdict that the log ends before this batch."""

    reason: str


Verdict = Kept | Wanted | Cut


@dataclass(slots=True)
class TailScan:
    """The judge of the batches of a log's tail, in order."""

    next_offset: Offset
    """The end of the log if nothing more is kept."""
    epochs: LeaderEpochs
    """The epochs of what is kept so far."""

    def judge(self, window: memoryview, left_bytes: int) -> Verdict:
        """Judge the batch that `window` starts with; `left_bytes` is what its segment holds from there on."""
        if left_bytes < BATCH_HEADER_BYTES:
            return Cut(f"{left_bytes} bytes are left, a batch header has {BATCH_HEADER_BYTES}: torn write")
        if len(window) < BATCH_HEADER_BYTES:
            return Wanted(BATCH_HEADER_BYTES)
        try:
            header = BatchHeader.unpack(window)
        except CorruptBatchError as error:
            return Cut(error.message)
        if header.batch_bytes > left_bytes:
            return Cut(f"{left_bytes} bytes are left, the batch has {header.batch_bytes}: torn write")
        if header.batch_bytes > len(window):
            return Wanted(header.batch_bytes)
        reason = self._broken_rule(header) or _broken_crc(header, window)
        if reason:
            return Cut(reason)
        self._keep(header)
        return Kept(header)

    def follow(self, header: BatchHeader) -> bool:
        """Return whether this batch is the next one, by its header alone: for readers that change nothing."""
        if self._broken_rule(header):
            return False
        self._keep(header)
        return True

    def enter_segment(self, base_offset: Offset) -> Cut | None:
        """Enter the next segment: it must go on where the one before ended."""
        if base_offset != self.next_offset:
            return Cut(f"segment {base_offset} does not follow offset {self.next_offset}")
        return None

    def _keep(self, header: BatchHeader) -> None:
        self.epochs.assign(header.leader_epoch, header.base_offset)
        self.next_offset = header.next_offset

    def _broken_rule(self, header: BatchHeader) -> str:
        return why_not_next(header, self.next_offset, self.epochs.latest)


def why_not_next(header: BatchHeader, next_offset: Offset, latest_epoch: LeaderEpoch) -> str:
    """Return why this stamped batch cannot follow in a log that ends at `next_offset`; empty where it can."""
    if header.is_heartbeat:
        return "a heartbeat, which no log holds"
    if header.base_offset != next_offset:
        return f"base_offset is {header.base_offset}, the log goes on at {next_offset}"
    if header.leader_epoch < latest_epoch:
        return f"leader_epoch falls from {latest_epoch} to {header.leader_epoch}"
    return ""


def _broken_crc(header: BatchHeader, window: memoryview) -> str:
    actual = crc32c(window[CRC_FROM : header.batch_bytes])
    return "" if actual == header.crc32c else f"crc32c is {header.crc32c:#010x}, the bytes give {actual:#010x}"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The report about the opening of a log."""

    scanned_bytes: int
    """The bytes above the recovery point; 0 after a clean stop."""
    cut_bytes: int
    cut_reason: str
    """The reason of a cut; empty where nothing was cut."""
    cut_below_recovery_point: bool
    cut_below_high_watermark: bool
    damaged_files: tuple[str, ...]
    """The checkpoints that were missing or damaged, and indexes that had to be rebuilt, as `name: reason`."""
    checkpoints_whole: bool
    """True where recovery point and high-watermark checkpoint could be read: then both `cut_below_...` are sure."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The facts about the data directory, as it was found at this start."""

    incarnation: Incarnation
    """The last life of the broker that this disk knows of; 0 for an empty disk."""
    known_incarnation: Incarnation
    """The greatest life of the broker that its Lease and the PartitionSets know of."""
    stopped_cleanly: bool
    same_boot: bool
    """True where the kernel has not restarted since the last life: what was in its page cache still is."""


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The facts about one partition's directory."""

    recovery: RecoveryReport | None
    """The report; None where there is no directory."""
    durability: Durability


def why_not_intact(disk: DiskFacts, replica: ReplicaFacts) -> str:
    """Return what this start found: the first reason, as part of a sentence for people; empty where the log is
    intact."""
    recovery = replica.recovery
    if recovery is None:
        return "its directory is not on this disk"
    if disk.known_incarnation > disk.incarnation:
        return f"this disk missed a life of the broker: it knows {disk.incarnation}, there was {disk.known_incarnation}"
    return _what_recovery_lost(recovery) or _what_a_crash_may_lose(disk, replica.durability)


def _what_recovery_lost(recovery: RecoveryReport) -> str:
    if not recovery.checkpoints_whole:
        return f"its checkpoints cannot tell what it held ({'; '.join(recovery.damaged_files)})"
    if recovery.cut_below_recovery_point:
        return f"records below the recovery point are damaged ({recovery.cut_reason})"
    if recovery.cut_below_high_watermark:
        return f"committed records are damaged ({recovery.cut_reason})"
    return ""


def _what_a_crash_may_lose(disk: DiskFacts, durability: Durability) -> str:
    if durability is Durability.FSYNC or disk.stopped_cleanly or disk.same_boot:
        return ""
    return "the machine went down without a clean stop, and durability Replicated leaves the last records in memory"
