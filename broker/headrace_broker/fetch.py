"""Reading a partition: where a fetch starts, how long it waits, what it may see. Stateless, as the fetch itself.

Readers see whole batches below the high watermark. After every wait the leadership is looked at again, so that a fetch
that outlives an election ends with the error that sends its client to the new leader.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.records.header import BatchHeader
from headrace.core.types import LeaderEpoch, Offset, TopicUid
from headrace_broker.clock import monotonic_ms
from headrace_broker.partition import Partition
from headrace_broker.requests import Edge, FetchQuery, OffsetsQuery

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Fetched:
    """`buffers` hold whole batches, in order; the first may start below the offset that was asked for."""

    buffers: Sequence[Buffer]
    offset: Offset
    """Where the fetch started."""
    next_offset: Offset
    """Where the next one goes on."""
    high_watermark: Offset
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    topic_uid: TopicUid
    records: int
    """From `offset` on."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """None where no record is that young."""

    offset: Offset | None
    timestamp_ms: int | None
    leader_epoch: LeaderEpoch


async def fetch(partition: Partition, query: FetchQuery) -> Fetched:
    """Waits until `min_bytes` are there or `max_wait_ms` are over.

    Raises what `Leadership.check_leader` raises, OffsetOutOfRangeError, CorruptLogError, StorageFailedError.
    """
    deadline_ms = monotonic_ms() + query.max_wait_ms
    offset = _start(partition, query)
    while True:
        epoch = partition.leadership.check_leader(str(partition.place), query.fence)
        _check_range(partition, offset)
        up_to = partition.high_watermark
        buffers = await _read(partition, offset, query.max_bytes, up_to)
        left_ms = deadline_ms - monotonic_ms()
        if sum(map(len, buffers)) >= query.min_bytes or left_ms <= 0 or partition.is_draining:
            return _fetched(partition, query, offset, buffers, epoch)
        if partition.high_watermark == up_to and partition.leads:
            await partition.moved(left_ms / 1000)


async def find_offset(partition: Partition, query: OffsetsQuery) -> FoundOffset:
    """The first record at or after a time, or an end of what can be read. Raises as `fetch` does."""
    epoch = partition.leadership.check_leader(str(partition.place), query.fence)
    match query.timestamp:
        case Edge.EARLIEST:
            return FoundOffset(partition.log.log_start_offset, None, epoch)
        case Edge.LATEST:
            return FoundOffset(partition.high_watermark, None, epoch)
        case timestamp_ms:
            found = await partition.log.find_timestamp(int(timestamp_ms), partition.high_watermark)
            offset, found_ms = found or (None, None)
            return FoundOffset(offset, found_ms, epoch)


def _start(partition: Partition, query: FetchQuery) -> Offset:
    partition.leadership.check_leader(str(partition.place), query.fence)
    match query.offset:
        case Edge.EARLIEST:
            return partition.log.log_start_offset
        case Edge.LATEST:
            return partition.high_watermark
        case offset:
            return Offset(int(offset))


async def _read(partition: Partition, offset: Offset, max_bytes: int, up_to: Offset) -> Sequence[Buffer]:
    if offset >= up_to:
        return []
    try:
        return await partition.log.read(offset, max_bytes=max_bytes, up_to=up_to)
    except OffsetOutOfRangeError:
        _check_range(partition, offset)  # records were deleted meanwhile: it says the range as clients know it
        raise


def _check_range(partition: Partition, offset: Offset) -> None:
    start, end = partition.log.log_start_offset, partition.high_watermark
    if start <= offset <= end:
        return
    gone = "is gone: what was there is deleted" if offset < start else "is not there yet"
    raise OffsetOutOfRangeError(
        f"offset {offset} of {partition.place} {gone}; it holds {start} to {end} (exclusive): read from {start}, or"
        " from 'earliest' or 'latest'",
        logStartOffset=start,
        highWatermark=end,
    )


def _fetched(
    partition: Partition, query: FetchQuery, offset: Offset, buffers: Sequence[Buffer], epoch: LeaderEpoch
) -> Fetched:
    taken = _take(buffers, query.max_records)
    counters = partition.counters
    counters.bytes_out.inc(sum(map(len, taken.buffers)))
    counters.batches_out.inc(taken.batches)
    counters.records_out.inc(taken.records)
    return Fetched(
        buffers=taken.buffers,
        offset=offset,
        next_offset=max(offset, taken.next_offset),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log.log_start_offset,
        leader_epoch=epoch,
        topic_uid=partition.key.uid,
        records=max(0, taken.records - max(0, offset - taken.base_offset)),
    )


@dataclass(slots=True)
class _Taken:
    buffers: list[Buffer]
    next_offset: Offset
    base_offset: Offset
    """Of the first batch."""
    batches: int = 0
    records: int = 0


def _take(buffers: Sequence[Buffer], max_records: int) -> _Taken:
    """Whole batches until `max_records` are among them."""
    taken = _Taken([], Offset(0), Offset(0))
    for buffer in buffers:
        end = 0
        for header in _headers(buffer):
            if taken.records >= max_records:
                break
            end += header.batch_bytes
            taken.base_offset = taken.base_offset if taken.batches else header.base_offset
            taken.batches += 1
            taken.records += header.record_count
            taken.next_offset = header.next_offset
        if end:
            taken.buffers.append(memoryview(buffer)[:end] if end < len(buffer) else buffer)
    return taken


def _headers(buffer: Buffer) -> Iterator[BatchHeader]:
    at = 0
    while at < len(buffer):
        header = BatchHeader.unpack(buffer, at)
        yield header
        at += header.batch_bytes
