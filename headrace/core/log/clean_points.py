"""Up to where a log is compacted, and since when: the file `compaction-checkpoint` (`sealed` text).

Each pass of compaction adds a point: what lies below it, and not below the point before, is compacted since then.
Tombstones are kept for `compaction.deleteRetention` from that time on, so that readers who are not too far behind hear
of them. Batches have no place for such a time, and need none: one number counts for all tombstones between two points.

Invariants: ends and times rise from point to point; all but the last point have tombstones. Where the file is lost, the
log counts as not compacted: it is done again, and its tombstones stay for longer. Owned by one partition's log.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headrace.core.limits import CLEAN_POINTS_MAX
from headrace.core.log.sealed import DamagedFileError, seal, unseal
from headrace.core.types import Offset

COMPACTION_FILE: Final = "compaction-checkpoint"


class CleanPoint(NamedTuple):
    end: Offset
    """The log is compacted below."""
    clean_ms: int
    """Since when."""
    tombstones: int
    """How many there are below, and not below the point before."""


class CleanPoints:
    """Those of one log, in order; a value."""

    def __init__(self, points: Sequence[CleanPoint] = ()) -> None:
        self.points = tuple(points)

    @property
    def end(self) -> Offset:
        """The log is compacted below; 0 where it never was."""
        return self.points[-1].end if self.points else Offset(0)

    def tombstones_from(self, now_ms: int, retention_ms: int) -> Offset:
        """Tombstones below have been kept for long enough."""
        over = [point.end for point in self.points if point.clean_ms + retention_ms <= now_ms]
        return over[-1] if over else Offset(0)

    def next_removal_ms(self, retention_ms: int) -> int | None:
        """When the first tombstones have been kept for long enough; None where there are none."""
        return next((point.clean_ms + retention_ms for point in self.points if point.tombstones), None)

    def after_pass(self, end: Offset, now_ms: int, tombstones: Sequence[int]) -> "CleanPoints":
        """The log is compacted below `end` now, which never falls.

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
        """Raises DamagedFileError."""
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
    """A point joins the one after it where that leaves the smallest gap: tombstones may stay longer, never shorter.

    Gaps so stay even, and the first point stays what it is: the oldest tombstones go in time, however many come.
    """
    while len(points) > CLEAN_POINTS_MAX:
        gone = min(range(1, len(points) - 1), key=lambda i: points[i + 1].clean_ms - points[i - 1].clean_ms)
        after = points[gone + 1]
        points[gone : gone + 2] = [after._replace(tombstones=points[gone].tombstones + after.tombstones)]
    return points
