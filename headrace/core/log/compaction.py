"""The decisions of compaction: which part of a log is compacted, when, and up to where it was done. No I/O.

Compaction keeps the last record of each key. It works on closed segments below the high watermark whose records are
older than `compaction.minLag`; what has come since the last pass is the dirty part of them. A pass reads the keys of
the dirty part, then writes all of these segments anew without the records that have a later one, small ones together.

    nothing is due ──> Later: check again when a segment is closed, or at `at_ms`
    enough is dirty | something has been dirty for too long | tombstones have been kept for long enough ──> Pass

Each pass adds a `CleanPoint` to the file `compaction-checkpoint`: the records between the point before and this one are
compacted since then. Tombstones are kept for `compaction.deleteRetention` from that time on, so that readers that are
not too far behind get them. Invariants: ends and times rise from point to point; all but the last point have
tombstones. Without the file the log counts as not compacted: it is done again, and its tombstones stay for longer.

`headrace_broker.partition.compaction` calls it; `records.compacting` decides what stays of each batch.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Self

from headrace.core.errors import InvalidRequestError
from headrace.core.limits import COMPACTION_KEYS_MAX, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX
from headrace.core.log.checkpoints import DamagedFileError, seal, unseal
from headrace.core.log.retention import ClosedSegment, SegmentTimes
from headrace.core.records.raw import RawBatch
from headrace.core.resources.topic import CleanupPolicy, TopicSpec
from headrace.core.types import Offset

COMPACTION_KEYS_MIN = 1 << 14
COMPACTION_KEY_BYTES = 256
"""The memory that a key takes at most."""
COMPACTION_MEMORY_PART = 16
"""The divisor of a broker's memory that gives the part for the keys of a pass."""
COMPACTOR_BYTES = 96 << 20
"""The memory of the process that compacts, without the keys, out of what a broker may use: itself, and a few
batches."""
COMPACTION_DIRTY_PERCENT_MIN = 50
"""The part of closed segments that is new since the last time and from which a log is compacted (Kafka's dirty
ratio)."""
COMPACTION_LAG_MS_MAX = 86_400_000
"""The age since its closing of a new segment, from which a log is compacted as well."""
COMPACTION_RETRY_MS = 60_000
"""The pause of a log whose compaction has failed, doubled after each failure that follows ..."""
COMPACTION_RETRY_MS_MAX = 3_600_000
"""... up to this."""
CLEAN_POINTS_MAX = 64
"""The number of times that one log remembers at which a part of it was compacted: tombstones are kept for a while from
then."""


COMPACTION_FILE: Final = "compaction-checkpoint"


class CleanPoint(NamedTuple):
    end: Offset
    """The end below which the log is compacted."""
    clean_ms: int
    """The time since when."""
    tombstones: int
    """The number of tombstones below, and not below the point before."""


class CleanPoints:
    """The clean points of one log, in order; a value."""

    def __init__(self, points: Sequence[CleanPoint] = ()) -> None:
        self.points = tuple(points)

    @property
    def end(self) -> Offset:
        """Return the end below which the log is compacted; 0 where it never was."""
        return self.points[-1].end if self.points else Offset(0)

    def tombstones_from(self, now_ms: int, retention_ms: int) -> Offset:
        """Return the offset below which tombstones have been kept for long enough."""
        over = [point.end for point in self.points if point.clean_ms + retention_ms <= now_ms]
        return over[-1] if over else Offset(0)

    def next_removal_ms(self, retention_ms: int) -> int | None:
        """Return when the first tombstones have been kept for long enough; None where there are none."""
        return next((point.clean_ms + retention_ms for point in self.points if point.tombstones), None)

    def after_pass(self, end: Offset, now_ms: int, tombstones: Sequence[int]) -> "CleanPoints":
        """Return the points after a pass: the log is compacted below `end` now, which never falls.

        `tombstones` are the offsets, ascending, of those that are left.
        """
        ends = [(point.end, point.clean_ms) for point in self.points]
        if end > self.end:
            ends.append((end, max(now_ms, ends[-1][1] if ends else now_ms)))
        points, before = [], 0
        for point_end, clean_ms in ends:
            below = bisect_left(tombstones, point_end)
            points.append(CleanPoint(point_end, clean_ms, below - before))
            before = below
        return CleanPoints(_bounded([point for point in points if point.tombstones or point.end == end]))

    def format(self) -> bytes:
        return seal(COMPACTION_FILE, [" ".join(map(str, point)) for point in self.points])

    @classmethod
    def parse(cls, content: bytes) -> "CleanPoints":
        """Parse the file. Raises DamagedFileError."""
        lines = unseal(COMPACTION_FILE, content)
        try:
            rows = [tuple(map(int, line.split(" "))) for line in lines]
            points = [CleanPoint(Offset(end), clean_ms, tombstones) for end, clean_ms, tombstones in rows]
        except ValueError as error:
            raise DamagedFileError(f"{lines} are not rows of an offset, a time and a number") from error
        if any(a.end >= b.end or a.clean_ms > b.clean_ms for a, b in pairwise(points)):
            raise DamagedFileError(f"{lines}: offsets and times must rise")
        return cls(points)


def _bounded(points: list[CleanPoint]) -> list[CleanPoint]:
    """Join a point to the one after it where that leaves the smallest gap: tombstones may stay longer, never shorter.

    Gaps so stay even, and the first point stays what it is: the oldest tombstones go in time, however many come.
    """
    while len(points) > CLEAN_POINTS_MAX:
        gone = min(range(1, len(points) - 1), key=lambda i: points[i + 1].clean_ms - points[i - 1].clean_ms)
        after = points[gone + 1]
        points[gone : gone + 2] = [after._replace(tombstones=points[gone].tombstones + after.tombstones)]
    return points


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The rules of compaction in a topic."""

    min_lag_ms: int
    delete_retention_ms: int
    segment_bytes: int

    @classmethod
    def of_topic(cls, spec: TopicSpec) -> Self | None:
        """Return the rules; None where the topic is not compacted."""
        if spec.cleanup_policy is CleanupPolicy.DELETE:
            return None
        return cls(spec.min_compaction_lag_ms, spec.delete_retention_ms, spec.segment_bytes)


def keys_max(memory_bytes: int, failures: int = 0) -> int:
    """Return how many keys a pass may hold on a broker that may use so much memory in all.

    It is half as many after each failure in a row: memory may have been the reason.
    """
    affordable = min(COMPACTION_KEYS_MAX, memory_bytes // COMPACTION_MEMORY_PART // COMPACTION_KEY_BYTES)
    return max(COMPACTION_KEYS_MIN, affordable >> failures)


def compactor_bytes(memory_bytes: int) -> int:
    """Return what the process that compacts takes of the memory that a broker may use in all."""
    return COMPACTOR_BYTES + keys_max(memory_bytes) * COMPACTION_KEY_BYTES


def retry_ms(failures: int) -> int:
    """Return how long a log is left alone whose last so many passes have failed."""
    return min(COMPACTION_RETRY_MS << min(failures - 1, 30), COMPACTION_RETRY_MS_MAX)


def check_keys(batches: Sequence[RawBatch], label: str) -> None:
    """Raise InvalidRequestError for a record without a key, which would never be replaced. `label` is the partition for
    people."""
    keyless = sum(batch.keyless_count for batch in batches)
    if keyless:
        records = sum(batch.header.record_count for batch in batches)
        raise InvalidRequestError(
            f"key is null in {keyless} of {records} records: {label} is compacted, so that each record needs a key;"
            " give them keys, or set the topic's cleanupPolicy to Delete",
            field="key",
        )


class CompactableLog(NamedTuple):
    """A log as compaction sees it."""

    closed: Iterable[ClosedSegment]
    """The closed segments, oldest first."""
    limit: Offset
    """The offset that no compacted segment may reach beyond: the high watermark, or what recovery may still read."""
    points: CleanPoints


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over these segments: the log's first ones, without a hole."""

    segments: tuple[ClosedSegment, ...]
    dirty_from: Offset
    tombstones_from: Offset
    """The offset below which tombstones have been kept for long enough."""
    reason: str


@dataclass(frozen=True, slots=True)
class Later:
    at_ms: int | None
    """The time; None: when a segment is closed."""


def plan_pass(
    log: CompactableLog, rules: CompactionRules, now_ms: int, times_of: Callable[[ClosedSegment], SegmentTimes]
) -> Pass | Later:
    """Plan the next pass; `times_of` is called only for dirty segments, and only where their size does not decide."""
    segments, settles_ms = _settled(log, rules, now_ms, times_of)
    dirty_from = log.points.end
    dirty = [segment for segment in segments if segment.next_offset > dirty_from]
    reason, at_ms = _why_now(segments, dirty, now_ms, times_of)
    removal_ms = log.points.next_removal_ms(rules.delete_retention_ms)
    if not reason and segments and removal_ms is not None and removal_ms <= now_ms:
        reason = "tombstones have been kept for long enough"
    if reason:
        tombstones_from = log.points.tombstones_from(now_ms, rules.delete_retention_ms)
        return Pass(tuple(segments), dirty_from, tombstones_from, reason)
    return Later(min((each for each in (settles_ms, at_ms, removal_ms) if each is not None), default=None))


def _settled(
    log: CompactableLog, rules: CompactionRules, now_ms: int, times_of: Callable[[ClosedSegment], SegmentTimes]
) -> tuple[list[ClosedSegment], int | None]:
    """Return the segments that may be compacted, and when the next one may be; None where that is not a matter of
    time."""
    segments: list[ClosedSegment] = []
    for segment in log.closed:
        if segment.next_offset > log.limit:
            break
        if rules.min_lag_ms and segment.next_offset > log.points.end:
            settles_ms = times_of(segment).aged_from(now_ms) + rules.min_lag_ms
            if settles_ms > now_ms:
                return segments, settles_ms
        segments.append(segment)
    return segments, None


def _why_now(
    segments: Sequence[ClosedSegment],
    dirty: Sequence[ClosedSegment],
    now_ms: int,
    times_of: Callable[[ClosedSegment], SegmentTimes],
) -> tuple[str, int | None]:
    """Return why the dirty part is to be compacted, else empty and when it will be."""
    if not dirty:
        return "", None
    total_bytes, dirty_bytes = (sum(segment.size_bytes for segment in each) for each in (segments, dirty))
    if dirty_bytes * 100 >= total_bytes * COMPACTION_DIRTY_PERCENT_MIN:
        return f"{dirty_bytes} of {total_bytes} bytes have come since the last time", None
    overdue_ms = times_of(dirty[0]).written_ms + COMPACTION_LAG_MS_MAX
    if overdue_ms <= now_ms:
        return f"segment {dirty[0].base_offset} was closed {COMPACTION_LAG_MS_MAX // 3_600_000} hours ago", None
    return "", overdue_ms


def groups(segments: Iterable[ClosedSegment], segment_bytes: int) -> list[tuple[ClosedSegment, ...]]:
    """Return which segments become one: neighbours that fit `segment.bytes` together, whatever they lose."""
    found: list[list[ClosedSegment]] = []
    group: list[ClosedSegment] = []
    size_bytes, limit_bytes = 0, min(segment_bytes, SEGMENT_BYTES_MAX)
    for segment in segments:
        size_bytes += segment.size_bytes
        if group and size_bytes <= limit_bytes and segment.next_offset - group[0].base_offset <= SEGMENT_OFFSETS_MAX:
            group.append(segment)
        else:
            group, size_bytes = [segment], segment.size_bytes
            found.append(group)
    return [tuple(group) for group in found]
