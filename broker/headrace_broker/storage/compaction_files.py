"""The hand-over of compacted segments, from the process that compacts to the broker that owns the log: messages and
files.

The two processes send each other values, as lines of JSON:

    broker ──Job──> compactor ──Cleaned──> broker swaps it in ──> "go on" ──> ... ──> Done | Failed

A part of a log is replaced by its compacted form so that a crash at any point leaves the old or the new one:

    BASE.log.cleaned        being written, with its two indexes: worth nothing yet
          │ 1  the indexes become .swap
          │ 2  BASE-NEXT.log.swap: decided. It stands for all segments from BASE to NEXT, whatever is left of them
          │ 3  the segments between BASE and NEXT are deleted
          │ 4  the new indexes take the place of the old ones
          ▼ 5  BASE.log: done

Everything that a step needs is on disk before the step is taken. An opening that finds 2 goes on from there
(`finish_swaps`); it removes everything else that ends in .cleaned or .swap. During steps 2 to 5 no thread opens these
segments; readers that have them open already keep what they have. The functions block, and raise OSError.

The module is light on purpose: a broker imports it, and never what a compactor needs to decode records; the compactor
imports no asyncio.
"""

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from headrace.core.limits import COMPACTION_CHUNK_BYTES, COMPACTION_KEYS_MAX
from headrace.core.log.compaction import CleanPoint
from headrace.core.log.retention import ClosedSegment
from headrace.core.log.segments import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, parse_log_name, segment_name
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import Buffer, FileHandle, fsync_directory, read_blocking
from headrace_broker.storage.segment import delete_segment
from headrace_broker.storage.segment_indexes import SegmentIndexes

GO_ON: Final = b"go on\n"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class Job(NamedTuple):
    """One pass over one log."""

    directory: str
    segments: tuple[ClosedSegment, ...]
    dirty_from: Offset
    tombstones_from: Offset
    log_start: Offset
    segment_bytes: int
    points: tuple[CleanPoint, ...]
    now_ms: int
    reason: str
    producers: tuple[int, ...]
    """The idempotent producers whose last batches must stay."""
    keys_max: int = COMPACTION_KEYS_MAX

    @classmethod
    def parse(cls, line: bytes) -> Self:
        fields: dict[str, Any] = json.loads(line)
        fields["segments"] = tuple(ClosedSegment(*each) for each in fields["segments"])
        return cls(**_with_points(fields))


class Cleaned(NamedTuple):
    """One segment is written and on disk, and waits to be swapped in."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    bytes_before: int


class UnreadableBatches(NamedTuple):
    """Batches that cannot be decoded, which stay as they are."""

    batches: int
    first_offset: Offset


class PassDone(NamedTuple):
    """The pass is over; `points` holds when all that was cleaned is swapped in."""

    points: tuple[CleanPoint, ...]
    records_before: int
    records_after: int
    without_key: int
    unreadable: UnreadableBatches | None = None


class FailureCause(StrEnum):
    """The reason why a pass has failed."""

    CHANGED = "changed"
    """Segments were deleted meanwhile: plan it again."""
    DISK = "disk"
    DAMAGED = "damaged"
    """A batch is not what was written: the log cannot be compacted."""
    MEMORY = "memory"
    ENDED = "ended"
    """The process that compacts was killed, or made a mistake; mostly memory is why."""


class PassFailed(NamedTuple):
    why: FailureCause
    message: str


CompactorMessage = Cleaned | PassDone | PassFailed
_KINDS: Final = {kind.__name__: kind for kind in (Cleaned, PassDone, PassFailed)}


def format_job(job: Job) -> bytes:
    return json.dumps(job._asdict()).encode() + b"\n"


def format_message(told: CompactorMessage) -> bytes:
    return json.dumps({"kind": type(told).__name__, **told._asdict()}).encode() + b"\n"


def parse_message(line: bytes) -> CompactorMessage:
    fields = json.loads(line)
    kind = fields.pop("kind")
    if kind == PassDone.__name__:
        unreadable = fields["unreadable"]
        fields = _with_points(fields) | {
            "unreadable": UnreadableBatches(*unreadable) if unreadable is not None else None
        }
    if kind == PassFailed.__name__:
        fields["why"] = FailureCause(fields["why"])
    told: CompactorMessage = _KINDS[kind](**fields)
    return told


def _with_points(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"points": tuple(CleanPoint(*each) for each in fields["points"])}


class SegmentSpan(NamedTuple):
    """The range of the segments that one compacted segment replaces."""

    base_offset: Offset
    next_offset: Offset


class CleanedSegment:
    """A compacted segment that is being written; the files of an earlier attempt are gone."""

    def __init__(self, directory: Path, span: SegmentSpan) -> None:
        self.span = span
        self.size = 0
        self._directory = directory
        discard_cleaned(directory, span)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._log = FileHandle(directory / _segment_name(span, LOG_SUFFIX + CLEANED_SUFFIX), flags)
        name = directory / segment_name(span.base_offset)
        self._indexes = SegmentIndexes.create(name, span.base_offset, CLEANED_SUFFIX)

    def append(self, batch: Sequence[Buffer]) -> None:
        header = BatchHeader.unpack(batch[0])
        self._log.append(batch)
        self._indexes.add([header], self.size)
        self.size += header.batch_bytes

    def copy(self, source: FileHandle, headers: Sequence[BatchHeader]) -> None:
        """Copy the first batches of another segment as they are; nothing was appended before."""
        self._indexes.add(headers, 0)
        end = sum(header.batch_bytes for header in headers)
        while self.size < end:
            chunk = read_blocking(source, self.size, min(COMPACTION_CHUNK_BYTES, end - self.size))
            self._log.append([chunk])
            self.size += len(chunk)

    def finish(self, written_ns: int) -> None:
        """Put all of it on disk, as if it was last written to at that time: retention goes by it."""
        os.utime(self._log.fd, ns=(written_ns, written_ns))
        self._indexes.sync()
        self._log.sync()
        fsync_directory(self._directory)


def discard_cleaned(directory: Path, span: SegmentSpan) -> None:
    """Remove what was written for this span, as far as it is there and not decided on."""
    (directory / _segment_name(span, LOG_SUFFIX + CLEANED_SUFFIX)).unlink(missing_ok=True)
    for suffix in _INDEXES:
        (directory / _segment_name(span, suffix + CLEANED_SUFFIX)).unlink(missing_ok=True)
        (directory / _swap_name(span, suffix)).unlink(missing_ok=True)


def discard_all_cleaned(directory: Path) -> None:
    """Remove the files of a pass that was killed."""
    for leftover in directory.glob(f"*{CLEANED_SUFFIX}"):
        leftover.unlink()


def prepare_swap(directory: Path, span: SegmentSpan) -> None:
    """Take step 1: after a failure it may be tried again, or discarded."""
    for suffix in _INDEXES:
        os.rename(directory / _segment_name(span, suffix + CLEANED_SUFFIX), directory / _swap_name(span, suffix))
    fsync_directory(directory)


def swap_in(directory: Path, span: SegmentSpan) -> None:
    """Take steps 2 to 5: after a failure only the next opening can see what is there."""
    os.rename(directory / _segment_name(span, LOG_SUFFIX + CLEANED_SUFFIX), directory / _swap_name(span, LOG_SUFFIX))
    fsync_directory(directory)
    _finish_swap(directory, span)


def finish_swaps(directory: Path) -> None:
    """Finish swaps at the opening of a log: decided ones are done, others are discarded."""
    for path in sorted(directory.glob(f"*{LOG_SUFFIX}{SWAP_SUFFIX}")):
        span = _parse_swap_name(path.name)
        if span is not None:
            _finish_swap(directory, span)
    for leftover in directory.glob(f"*{SWAP_SUFFIX}"):
        leftover.unlink()
    discard_all_cleaned(directory)


def _finish_swap(directory: Path, span: SegmentSpan) -> None:
    for base in sorted(_bases_in(directory)):
        if span.base_offset < base < span.next_offset:
            delete_segment(directory, base)
    for suffix in _INDEXES:
        new = directory / _swap_name(span, suffix)
        if new.exists():
            os.rename(new, directory / _segment_name(span, suffix))
    fsync_directory(directory)
    os.rename(directory / _swap_name(span, LOG_SUFFIX), directory / _segment_name(span, LOG_SUFFIX))
    fsync_directory(directory)


def _bases_in(directory: Path) -> list[Offset]:
    """Return the bases by any file of a segment that is left: a deletion that was interrupted has removed the indexes
    first."""
    found = (parse_log_name(path.name) for path in directory.iterdir())
    return [base for base in found if base is not None]


def _segment_name(span: SegmentSpan, suffix: str) -> str:
    return segment_name(span.base_offset) + suffix


def _swap_name(span: SegmentSpan, suffix: str) -> str:
    return f"{segment_name(span.base_offset)}-{segment_name(span.next_offset)}{suffix}{SWAP_SUFFIX}"


def _parse_swap_name(file_name: str) -> SegmentSpan | None:
    base, _, following = file_name.removesuffix(SWAP_SUFFIX).partition("-")
    offsets = parse_log_name(base + LOG_SUFFIX), parse_log_name(following)
    if offsets[0] is None or offsets[1] is None:
        return None
    return SegmentSpan(offsets[0], offsets[1])
