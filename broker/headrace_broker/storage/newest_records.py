"""The time of the newest record of each closed segment: where a lookup by time begins, without a look at all before.

Times need not rise from segment to segment, so the search is over their running maximum, which does. A segment that is
rolled in this life is known by then; older ones are looked at once, when the first lookup comes by. Owned by a
`SegmentSet`; lookups run in any thread, and what one of them has learned is published as a whole.

Compaction and deletion only lower what a segment's newest record is: a maximum that is too great costs a lookup one
segment more, never a record.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.core.errors import CorruptLogError
from headrace.core.log.segments import BEFORE_ALL_TIMES_MS, DamagedIndexError
from headrace.core.types import Offset
from headrace_broker.storage.disk import ReadAt
from headrace_broker.storage.segment import Segment
from headrace_broker.storage.walk import walk

_AFTER_ALL_TIMES_MS = (1 << 63) - 1


class _Running(NamedTuple):
    bases: Sequence[Offset]
    """The very list that the maxima belong to: it only grows, and is replaced where anything else happens to it."""
    maxima: Sequence[int]
    """Of the first segments of `bases`, each with all before."""


class NewestRecords:
    def __init__(self) -> None:
        self._known: dict[tuple[Offset, Offset], int] = {}
        """By base and end offset: segments that are merged are other segments."""
        self._running = _Running((), ())

    def note(self, bases: Sequence[Offset], end: Offset, newest_ms: int) -> None:
        """Of the last of these segments, which is being closed."""
        if len(self._known) > 2 * len(bases):
            self._forget_all_but(bases)
        self._known[bases[-1], end] = newest_ms

    def first_since(self, timestamp_ms: int, bases: Sequence[Offset], newest_of: Callable[[Offset], int]) -> int:
        """Index of the first segment that may hold a record of `timestamp_ms` or later; of the active one at most.

        `newest_of` looks at the segment with this base. Raises what it raises, but for damage.
        """
        closed = len(bases) - 1
        running = self._running
        maxima = running.maxima if running.bases is bases else ()
        if not maxima or maxima[-1] < timestamp_ms:
            maxima = self._extended(maxima, timestamp_ms, bases, newest_of)
        return min(bisect_left(maxima, timestamp_ms), closed)

    def _extended(
        self, maxima: Sequence[int], timestamp_ms: int, bases: Sequence[Offset], newest_of: Callable[[Offset], int]
    ) -> Sequence[int]:
        longer = list(maxima)
        newest = longer[-1] if longer else BEFORE_ALL_TIMES_MS
        for index in range(len(longer), len(bases) - 1):
            if newest >= timestamp_ms:
                break
            newest = max(newest, self._newest(bases[index], bases[index + 1], newest_of))
            longer.append(newest)
        if len(longer) > len(maxima):
            self._publish(_Running(bases, longer))
        return longer

    def _publish(self, running: _Running) -> None:
        if self._running.bases is not running.bases:
            self._forget_all_but(running.bases)
        self._running = running

    def _forget_all_but(self, bases: Sequence[Offset]) -> None:
        """Segments were dropped or merged: what is known of them is of no use any more."""
        kept = {key: self._known.get(key) for key in pairwise(bases)}
        self._known = {key: newest_ms for key, newest_ms in kept.items() if newest_ms is not None}

    def _newest(self, base: Offset, end: Offset, newest_of: Callable[[Offset], int]) -> int:
        known = self._known.get((base, end))
        if known is None:
            try:
                known = self._known[base, end] = newest_of(base)
            except (DamagedIndexError, CorruptLogError):
                # Whoever searches it finds the damage, and sees to it.
                return _AFTER_ALL_TIMES_MS
        return known


def newest_record_ms(segment: Segment, read: ReadAt) -> int:
    """Of a closed one, from the last entry of its time index and the batches after it.

    Raises DamagedIndexError, CorruptLogError, and what `read` raises.
    """
    newest_ms, position = BEFORE_ALL_TIMES_MS, 0
    count = segment.indexes.count
    if count:
        newest_ms = segment.indexes.by_time.entry(read, count - 1).max_timestamp_ms
        position = segment.indexes.by_offset.entry(read, count - 1).position
    headers = walk(segment.log, read, position, segment.size)
    return max([newest_ms, *(header.max_timestamp_ms for _, header in headers)])
