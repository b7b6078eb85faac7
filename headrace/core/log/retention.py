"""The start of a log: which segments are too old or too many, and which records were deleted. Decisions, no I/O.

Whole closed segments go, oldest first, and only below the high watermark; readers do not matter.

- By size: the oldest segment goes while the rest still has `retention.bytes`. A log so has that much, and up to a
  segment more.
- By time: a segment goes when its newest record is older than `retention.time`. A time in the future
  shows no age, so there the time of the last write counts: one wrong clock must not keep a log for ever.

A segment in which compaction has left no record has no age, and goes with the next one that has. The segment that is
written to is never deleted; where its newest record is too old, the log goes on in another one (`is_over`).

A log's start is an offset of its own (`log-start-checkpoint`): it may lie within a segment, even within a batch, and
records below it are never shown. Invariants: the start never falls, except with the end of a log that was cut below it;
it never passes the high watermark. `headrace_broker.partition.partition` and `headrace_broker.storage` call it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.resources.topic import CleanupPolicy, TopicSpec
from headrace.core.types import Offset


class ExpiryReason(StrEnum):
    """The reason why a segment is deleted."""

    TIME = "time"
    SIZE = "size"
    REQUEST = "request"
    """A client asked for it, by deleting the records in it."""
    LEADER = "leader"
    """The partition's leader has deleted it, for whatever reason."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The promise of a topic to keep records; None for without an end."""

    time_ms: int | None
    size_bytes: int | None

    @classmethod
    def of_topic(cls, spec: TopicSpec) -> Self:
        """Return the retention; under `Compact` alone the last record of each key stays, however old it is."""
        if spec.cleanup_policy is CleanupPolicy.COMPACT:
            return cls(None, None)
        return cls(spec.retention_ms, spec.retention_bytes)


class ClosedSegment(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    """The offset where the segment after it starts."""
    size_bytes: int


class SegmentTimes(NamedTuple):
    newest_ms: int
    """The greatest time of its records."""
    written_ms: int
    """The time when it was last written to."""

    @property
    def has_records(self) -> bool:
        """Return whether it has records: a batch that compaction has emptied has the time -1, and records none below
        0."""
        return self.newest_ms >= 0

    def aged_from(self, now_ms: int) -> int:
        """Return the time that its age counts from; a record of the future does not count."""
        return self.newest_ms if self.newest_ms <= now_ms else self.written_ms


class Expired(NamedTuple):
    segment: ClosedSegment
    reason: ExpiryReason


class Log(NamedTuple):
    """A log as retention sees it."""

    closed: Iterable[ClosedSegment]
    """The closed segments, oldest first; read only as far as needed."""
    size_bytes: int
    """The size of all of it, with the segment that is written to."""
    high_watermark: Offset


def expired_segments(
    log: Log, retention: Retention, now_ms: int, times_of: Callable[[ClosedSegment], SegmentTimes]
) -> list[Expired]:
    """Return the segments that go, oldest first; `times_of` is called only where their size does not decide."""
    found: list[Expired] = []
    decided = 0
    left_bytes = log.size_bytes
    for segment in log.closed:
        if segment.next_offset > log.high_watermark:
            break
        left_bytes -= segment.size_bytes
        if retention.size_bytes is not None and left_bytes >= retention.size_bytes:
            found.append(Expired(segment, ExpiryReason.SIZE))
            decided = len(found)
        elif retention.time_ms is not None and is_over(times := times_of(segment), retention.time_ms, now_ms):
            found.append(Expired(segment, ExpiryReason.TIME))
            if times.has_records:
                decided = len(found)
        else:
            break
    return found[:decided]


def is_over(times: SegmentTimes, retention_ms: int, now_ms: int) -> bool:
    """Return whether the segment's newest record is older than `retention_ms`."""
    return now_ms - times.aged_from(now_ms) > retention_ms


def log_start_after(before: Offset, *, log_start: Offset, high_watermark: Offset, label: str) -> Offset:
    """Return the log's start once everything below `before` is deleted; where that is gone already, the start it has.

    Raises OffsetOutOfRangeError above the high watermark: what is not committed cannot be deleted. `label` is the
    partition as people write it.
    """
    if before > high_watermark:
        raise OffsetOutOfRangeError(
            f"beforeOffset {before} is above the high watermark of {label}, which holds {log_start} to"
            f" {high_watermark} (exclusive): delete up to {high_watermark}, or up to 'latest'",
            logStartOffset=log_start,
            highWatermark=high_watermark,
        )
    return max(before, log_start)


def recovered_log_start(checkpoint: Offset | None, *, first_segment: Offset, log_end: Offset) -> Offset:
    """Return where a log starts that was just recovered; None for a checkpoint that is missing or damaged.

    A log that was cut below its start is empty from its new end on: what is appended there is new, and must be shown.
    """
    return first_segment if checkpoint is None else min(max(checkpoint, first_segment), log_end)


def segments_below(start: Offset, bases: Sequence[Offset]) -> int:
    """Return how many of a log's segments, which begin at `bases`, hold nothing from `start` on; never the last one."""
    return bisect_right(bases, start, 1) - 1 if bases else 0
