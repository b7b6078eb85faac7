"""Which stages can nobody need any more? For the partitions of the staging topic that belong to one coordinator. Pure.

    rolled forward, or of an attempt that was repeated in vain ──> of no use
    nobody has committed it for STAGE_EXPIRY_MS ──> expired: the attempt that wrote it is long dead
    committed, and still on its way ──> pinned, however old

A log is deleted from its start only, so what is of no use goes as soon as nothing before it is needed. What is of no
use is known from this coordinator's own term; a new one waits for the expiry of what it does not know of. By the clock
of `now_ms` of this process: it deletes later than it might, never sooner.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from headrace.core.limits import STAGE_EXPIRY_MS, STAGING_LOOK_INTERVAL_MS
from headrace.core.slotted import dataclass
from headrace.core.staging.decisions import StagedBatch
from headrace.core.types import Offset, PartitionId


class Span(NamedTuple):
    """What a partition holds that is committed: from `start` to `end`, exclusive."""

    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class Clean:
    """Delete what lies below `before` in this partition of the staging topic."""

    partition: PartitionId
    before: Offset
    reason: str


@dataclass(slots=True)
class _Partition:
    seen: deque[tuple[int, Offset]] = field(default_factory=deque)
    """When the partition ended where, a look interval apart."""
    runs: list[tuple[Offset, Offset]] = field(default_factory=list)
    """What is of no use, from first offsets to ends (exclusive), in order; no two of them touch."""

    def add(self, base: Offset, end: Offset) -> None:
        """It may be known already: commits are repeated."""
        first = bisect_left(self.runs, base, key=lambda run: run[1])
        after = bisect_right(self.runs, end, key=lambda run: run[0])
        if first < after:
            base, end = min(base, self.runs[first][0]), max(end, self.runs[after - 1][1])
        self.runs[first:after] = [(base, end)]

    def useless_to(self, start: Offset) -> Offset:
        """The end of the run that `start` lies in; forgets those before."""
        self.runs = [run for run in self.runs if run[1] > start]
        return self.runs[0][1] if self.runs and self.runs[0][0] <= start else start

    def expired_to(self, end: Offset, now_ms: int) -> Offset:
        if not self.seen or now_ms - self.seen[-1][0] >= STAGING_LOOK_INTERVAL_MS:
            self.seen.append((now_ms, end))
        expired = Offset(0)
        while len(self.seen) > 1 and now_ms - self.seen[1][0] >= STAGE_EXPIRY_MS:
            self.seen.popleft()
        if now_ms - self.seen[0][0] >= STAGE_EXPIRY_MS:
            expired = self.seen[0][1]
        return expired


class Cleaning:
    def __init__(self) -> None:
        self._partitions: dict[PartitionId, _Partition] = {}

    def of_no_use(self, batches: Iterable[StagedBatch]) -> None:
        for batch in batches:
            known = self._partitions.setdefault(batch.partition, _Partition())
            known.add(batch.base_offset, Offset(batch.last_offset + 1))

    def look(self, spans: Mapping[PartitionId, Span], pinned: Iterable[StagedBatch], now_ms: int) -> list[Clean]:
        lowest: dict[PartitionId, Offset] = {}
        for batch in pinned:
            lowest[batch.partition] = min(batch.base_offset, lowest.get(batch.partition, batch.base_offset))
        orders: list[Clean] = []
        for partition, span in spans.items():
            known = self._partitions.setdefault(partition, _Partition())
            before = max(known.useless_to(span.start), known.expired_to(span.end, now_ms))
            before = min(before, lowest.get(partition, before), span.end)
            if before > span.start:
                orders.append(Clean(partition, before, "nobody can need it any more"))
        return orders
