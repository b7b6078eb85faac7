"""The checks of records that clients produce, before they are appended: can readers decode them, and are their times
those that the topic allows?

A batch that nobody can decode would stop every reader of its partition, and its compaction. Quick checks are made on
the event loop. Large bodies, compressed ones that are not small, and the first one of a process (pyarrow is loaded for
it) are checked in a thread; the memory that a compressed one takes there is counted among what this broker converts.
Called by the routes and sessions that produce.

The rules for times are `core.records.time_rules`. A `TimeWatch` keeps what the topic says, counts, and tells the Topic
by an Event, once an hour for each reason, however many records there are. It is owned by a `Partition` and called on
the event loop, between the partition's checks and its append.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Container, Sequence

from headrace.core.errors import BatchTooLargeError, CorruptBatchError
from headrace.core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from headrace.core.records.arrow_message import TIME_BYTES
from headrace.core.records.header import COMPRESSION_BITS
from headrace.core.records.raw import RawBatch, unpack_times
from headrace.core.records.time_rules import Reason, Strange, TimeRules
from headrace.core.resources.topic import TopicSpec
from headrace_broker.admission import Admission
from headrace_broker.clock import monotonic_ms
from headrace_broker.metrics import PartitionCounters
from headrace_broker.partition.queries import Place

STRANGE_TIMES_TOLD_MS = 3_600_000
"""A Topic is told of records with strange times once in so long, by each partition."""
BODY_CHECK_INLINE_BYTES_MAX = 2 << 20
"""Batches of one produce whose bodies are checked on the event loop: it takes fifty microseconds a mebibyte."""
BODY_CHECK_INLINE_UNPACKED_BYTES_MAX = 64 << 10
"""The same of compressed ones, once they are decompressed: a tenth of a millisecond, most of it whatever their size."""


_DECODER = "headrace.core.records.columns"
_log = logging.getLogger(__name__)


def take_long(batches: Sequence[RawBatch]) -> bool:
    """Tell whether the batches are for `check_bodies_in_thread`. Raises CorruptBatchError."""
    if _DECODER not in sys.modules:
        return True
    if sum(batch.nbytes for batch in batches) > BODY_CHECK_INLINE_BYTES_MAX:
        return True
    unpacked = sum(size for _, size in _unpacked_sizes(batches))
    return unpacked > BODY_CHECK_INLINE_UNPACKED_BYTES_MAX


def check_bodies(batches: Sequence[RawBatch]) -> None:
    """Raises CorruptBatchError; it names the batch by its index, which is also in `details["batch"]`."""
    from headrace.core.records.columns import check_body

    for index, batch in enumerate(batches):
        try:
            check_body(batch)
            unpack_times(batch)
        except CorruptBatchError as error:
            raise _named(error, index) from error


async def check_bodies_in_thread(batches: Sequence[RawBatch], admission: Admission) -> None:
    """Check the batches in a thread.

    Raises what `check_bodies` raises, and BatchTooLargeError where they would take more memory than this broker has.
    """
    largest, times, limit = 0, 0, admission.unpacked_bytes_max
    for index, size in _unpacked_sizes(batches):
        if size > BATCH_DECOMPRESSED_BYTES_MAX:
            continue  # It is refused before anything of it is decompressed.
        times += TIME_BYTES * batches[index].header.record_count  # They stay until the append.
        if size + times > limit:
            raise BatchTooLargeError(
                f"batch {index}: it has {size} bytes once it is decompressed, and this broker looks into {limit} of a"
                " request at most: send smaller batches, or fewer at once",
                limit=limit,
                batch=index,
            )
        largest = max(largest, size)
    async with admission.unpacking(largest + times):
        await asyncio.to_thread(check_bodies, batches)


async def check_batches(batches: Sequence[RawBatch], admission: Admission) -> None:
    """Check the batches where that is done best. Raises what `check_bodies_in_thread` raises."""
    if take_long(batches):
        await check_bodies_in_thread(batches, admission)
    else:
        check_bodies(batches)


def _unpacked_sizes(batches: Sequence[RawBatch]) -> list[tuple[int, int]]:
    """The index of each compressed batch, and its size once it is decompressed. Raises CorruptBatchError."""
    sizes = []
    for index, batch in enumerate(batches):
        if batch.header.attributes & COMPRESSION_BITS:
            try:
                sizes.append((index, batch.unpacked_bytes()))
            except CorruptBatchError as error:
                raise _named(error, index) from error
    return sizes


def _named(error: CorruptBatchError, index: int) -> CorruptBatchError:
    return CorruptBatchError(f"batch {index}: {error.message}", batch=index)


class TimeWatch:
    def __init__(self, place: Place, counters: PartitionCounters) -> None:
        self._place = place
        self._rules: TimeRules | None = None
        """None where the leader's clock gives the times."""
        self._counted = {Reason.OVERDUE: counters.records_overdue, Reason.AHEAD: counters.records_ahead}
        self._told_ms: dict[Reason, int] = {}
        self.warn: Callable[[str, str], None] = self._log
        """Tells the Topic's owner a reason and a message; whoever can do more than log sets it."""

    def configure(self, spec: TopicSpec) -> None:
        """The Topic says so."""
        self._rules = TimeRules.of_topic(spec)

    def check(self, batches: Sequence[RawBatch], now_ms: int, written: Container[int]) -> None:
        """Raises InvalidTimestampError. The batches at the indexes `written` are there already."""
        if self._rules is not None:
            self._rules.check(batches, now_ms, str(self._place), written)

    def strange(self, batches: Sequence[RawBatch], now_ms: int) -> list[tuple[Strange, str]]:
        """Return what the writer of these batches should know, with a sentence for each."""
        rules = self._rules
        if rules is None:
            return []
        found = rules.strange((batch.times for batch in batches if batch.times is not None), now_ms)
        return [(each, each.warning(rules.retention_ms)) for each in found]

    def note(self, batches: Sequence[RawBatch], now_ms: int) -> None:
        """Count strange times among what is about to be appended; warn the Topic where that was not done just now."""
        for (reason, records), _ in self.strange(batches, now_ms):
            self._counted[reason].inc(records)
            told_ms, at_ms = self._told_ms.get(reason), monotonic_ms()
            if told_ms is None or at_ms - told_ms >= STRANGE_TIMES_TOLD_MS:
                self._told_ms[reason] = at_ms
                self._tell(reason)

    def _tell(self, reason: Reason) -> None:
        # Without the partition and the number: so that the Events of many partitions are one Event.
        assert self._rules is not None, "something was found"
        what = Strange.what_happens(reason, self._rules.retention_ms)
        self.warn(reason.value, f"records were written that are {what}")

    def _log(self, reason: str, message: str) -> None:
        _log.warning("%s: %s: %s", self._place, reason, message)
