"""Do the bodies of batches hold records that readers can decode? Asked of all that clients produce, before the append.

A batch that nobody can decode would stop every reader of its partition, and its compaction. What takes no time is
checked on the event loop. Large bodies, compressed ones that are not small, and the first one of a process (pyarrow is
loaded for it) are checked in a thread; what a compressed one takes there is counted among what this broker converts.
Called by the routes and sessions that produce.
"""

import asyncio
import sys
from collections.abc import Sequence

from headrace.core.errors import BatchTooLargeError, CorruptBatchError
from headrace.core.limits import (
    BATCH_DECOMPRESSED_BYTES_MAX,
    BODY_CHECK_INLINE_BYTES_MAX,
    BODY_CHECK_INLINE_UNPACKED_BYTES_MAX,
)
from headrace.core.records.arrow_message import TIME_BYTES
from headrace.core.records.header import COMPRESSION_BITS
from headrace.core.records.raw import RawBatch, unpack_times
from headrace_broker.admission import Admission

_DECODER = "headrace.core.records.columns"


def take_long(batches: Sequence[RawBatch]) -> bool:
    """Tell whether the batches are for `check_in_thread`. Raises CorruptBatchError."""
    if _DECODER not in sys.modules:
        return True
    if sum(batch.nbytes for batch in batches) > BODY_CHECK_INLINE_BYTES_MAX:
        return True
    unpacked = sum(size for _, size in _unpacked_sizes(batches))
    return unpacked > BODY_CHECK_INLINE_UNPACKED_BYTES_MAX


def check(batches: Sequence[RawBatch]) -> None:
    """Raises CorruptBatchError; it names the batch by its index, which is also in `details["batch"]`."""
    from headrace.core.records.columns import check_body

    for index, batch in enumerate(batches):
        try:
            check_body(batch)
            unpack_times(batch)
        except CorruptBatchError as error:
            raise _named(error, index) from error


async def check_in_thread(batches: Sequence[RawBatch], admission: Admission) -> None:
    """Check the batches in a thread.

    Raises what `check` raises, and BatchTooLargeError where they would take more memory than this broker has for it.
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
        await asyncio.to_thread(check, batches)


async def check_all(batches: Sequence[RawBatch], admission: Admission) -> None:
    """Check the batches where that is done best. Raises what `check_in_thread` raises."""
    if take_long(batches):
        await check_in_thread(batches, admission)
    else:
        check(batches)


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
