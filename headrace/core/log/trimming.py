"""Deleting the oldest records of a log: from which offset on it is kept, and which segments go. Decisions, no I/O.

A log's start is an offset of its own, beside the segments (`log-start-checkpoint`): it may lie within a segment, even
within a batch. Segments that lie below it as a whole are removed; what is below it in the first one that stays is on
the disk still, and is shown to nobody.

Invariants: the start never falls, except with the end of a log that was cut below it; it never passes the high
watermark. Called by `headrace_broker.partition` and `headrace_broker.storage`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.types import Offset


def start_after(before: Offset, *, log_start: Offset, high_watermark: Offset, label: str) -> Offset:
    """The log's start once everything below `before` is deleted; where that is gone already, the start it has.

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


def start_of(checkpoint: Offset | None, *, first_segment: Offset, log_end: Offset) -> Offset:
    """Where a log starts that was just recovered; None for a checkpoint that is missing or damaged.

    A log that was cut below its start is empty from its new end on: what is appended there is new, and must be shown.
    """
    return first_segment if checkpoint is None else min(max(checkpoint, first_segment), log_end)


def segments_below(start: Offset, bases: Sequence[Offset]) -> int:
    """How many of a log's segments, which begin at `bases`, hold nothing from `start` on; never the last one."""
    return bisect_right(bases, start, 1) - 1 if bases else 0
