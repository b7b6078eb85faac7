"""Reading a partition: where a fetch starts, how long it waits, what it may see; and watches, fetches without an end.

Readers see whole batches below the high watermark. After every wait the leadership is looked at again, so that a fetch
that outlives an election ends with the error that sends its client to the new leader. A new leader serves what it knows
to be committed, and says no high watermark before it knows what the latest is: nobody is told less than before. A fetch
keeps no state.

    reading ──> piece ──> reading ──> ...    silent ──(heartbeat)──> silent    drained, or records enough ──> end
       └── another leader, another epoch, deleted below its feet, damaged ──> an error, and no more

A watch is one fetch after the other, in one leader epoch, for a client that need not ask again. It reads more only when
its caller asks for more, so a slow client holds one piece at most. `OpenWatches`, one per process, counts the watches
of a broker, including those that it passes on to another leader, and bounds how often each client's are written to: an
append wakes all watches of its partition, and a client with hundreds of them would take the processor from all others.
What has to wait comes in one piece with what follows.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.errors import NotReadyError, OffsetOutOfRangeError, ThrottledError
from headrace.core.holders import HolderRate
from headrace.core.limits import FETCH_RECORDS_MAX, READ_INLINE_BYTES_MAX, WATCH_DRAIN_MS
from headrace.core.log.epochs import Fence
from headrace.core.records.header import BatchHeader, skim_batches
from headrace.core.types import LeaderEpoch, Offset, TopicUid
from headrace_broker.admission import BudgetShare, Requests
from headrace_broker.clock import monotonic_ms
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Edge, FetchQuery, OffsetsQuery, WatchQuery

WATCHES_MAX = 1024
"""Endless streams of records that one broker serves or passes on; above it clients are told to wait (429)."""
WATCH_PIECES_BURST = 64
"""Pieces of records that one client's streams are given in a row. Records that wait come in one larger piece."""
WATCH_PIECE_INTERVAL_MS = 0.5
"""Then one so often: each costs a broker a tenth of a millisecond, which others would wait for."""
WATCH_HEARTBEAT_MS = 10_000
"""After so long without records a stream says that it is alive."""
WATCH_READ_BYTES = READ_INLINE_BYTES_MAX
"""Batches that a stream reads at a time, one at least: what it holds while its client is slow."""


Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """`buffers` hold whole batches, in order; the first may start below the offset that was asked for."""

    buffers: Sequence[Buffer]
    offset: Offset
    """The offset at which the fetch started."""
    next_offset: Offset
    """The offset at which the next fetch goes on."""
    high_watermark: Offset | None
    """The end of the log, as `known_end` gives it."""
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    topic_uid: TopicUid
    records: int
    """The number in all of the batches."""

    def count_wanted(self) -> int:
        """Records from `offset` on. Looks into the first batch where compaction left gaps in it: CorruptBatchError."""
        return self.records - (_records_below(self.buffers[0], self.offset) if self.buffers else 0)


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """None where no record is that young."""

    offset: Offset | None
    timestamp_ms: int | None
    leader_epoch: LeaderEpoch


async def fetch(partition: Partition, query: FetchQuery, share: BudgetShare | None = None) -> FetchedBatches:
    """Waits until `min_bytes` are there or no more would fit, or `max_wait_ms` are over.

    What was read is counted in `share`.

    Raises what `start_offset` raises, CorruptLogError, StorageFailedError, and ThrottledError where `share` gets
    nothing.
    """
    deadline_ms = monotonic_ms() + query.max_wait_ms
    offset = _start(partition, query)
    while True:
        epoch = partition.replica.check_leader(str(partition.place), query.fence)
        _check_range(partition, offset)
        up_to = partition.high_watermark
        max_bytes = share.grant(query.max_bytes) if share is not None and offset < up_to else query.max_bytes
        buffers = await _read(partition, offset, max_bytes, up_to)
        size = sum(map(len, buffers))
        if share is not None:
            share.resize(size)
        left_ms = deadline_ms - monotonic_ms()
        enough = size >= query.min_bytes or (size and _take(buffers, query.max_records).next_offset < up_to)
        if enough or left_ms <= 0 or partition.is_draining:
            return _fetched(partition, query, offset, buffers, epoch)
        # Whoever waits holds nothing.
        buffers = ()
        if share is not None:
            share.resize(0)
        if partition.high_watermark == up_to and partition.leads:
            await partition.moved(left_ms / 1000)


def start_offset(partition: Partition, query: FetchQuery) -> Offset:
    """Return the offset at which a fetch that comes now starts.

    Raises what `Replica.check_leader` raises, OffsetOutOfRangeError, and NotReadyError where this leader does not know
    yet, or any more, what the latest is.
    """
    offset = _start(partition, query)
    _check_range(partition, offset)
    return offset


def fetch_cached(partition: Partition, query: FetchQuery) -> FetchedBatches | None:
    """Return what is there now; None where something, also the disk, has to be waited for. Raises as `fetch` does."""
    offset = start_offset(partition, query)
    epoch = partition.replica.leader_epoch
    up_to = partition.high_watermark
    if offset == up_to:
        return _fetched(partition, query, offset, [], epoch)
    buffers = partition.log.read_cached(offset, max_bytes=query.max_bytes, up_to=up_to)
    return _fetched(partition, query, offset, buffers, epoch) if buffers is not None else None


async def find_offset(partition: Partition, query: OffsetsQuery) -> FoundOffset:
    """The first record at or after a time, or an end of what can be read. Raises as `fetch` does."""
    epoch = partition.replica.check_leader(str(partition.place), query.fence)
    match query.timestamp:
        case Edge.EARLIEST:
            return FoundOffset(partition.log.log_start_offset, None, epoch)
        case Edge.LATEST:
            return FoundOffset(_latest(partition), None, epoch)
        case timestamp_ms:
            found = await partition.log.find_timestamp(int(timestamp_ms), partition.high_watermark)
            if found is None:
                _latest(partition)  # There is none only where there is no more to look at.
            offset, found_ms = found or (None, None)
            return FoundOffset(offset, found_ms, epoch)


def known_end(partition: Partition) -> Offset | None:
    """The high watermark; None where clients may have been told of more, by the leader before or the one after."""
    try:
        return _latest(partition)
    except NotReadyError:
        return None


def _latest(partition: Partition) -> Offset:
    """Raises NotReadyError where there may be more than this leader knows of."""
    partition.replica.check_latest(str(partition.place), partition.contact)
    return partition.high_watermark


def _start(partition: Partition, query: FetchQuery) -> Offset:
    partition.replica.check_leader(str(partition.place), query.fence)
    match query.offset:
        case Edge.EARLIEST:
            return partition.log.log_start_offset
        case Edge.LATEST:
            return _latest(partition)
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
    start = partition.log.log_start_offset
    if start <= offset <= partition.high_watermark:
        return
    if offset < start:
        gone, end = "is gone: what was there is deleted", known_end(partition)
    else:
        gone, end = "is not there yet", _latest(partition)
    holds = f"{start} to {end} (exclusive)" if end is not None else f"records from {start} on"
    raise OffsetOutOfRangeError(
        f"offset {offset} of {partition.place} {gone}; it holds {holds}: read from {start}, or from 'earliest' or"
        " 'latest'",
        logStartOffset=start,
        **({"highWatermark": end} if end is not None else {}),
    )


def _fetched(
    partition: Partition, query: FetchQuery, offset: Offset, buffers: Sequence[Buffer], epoch: LeaderEpoch
) -> FetchedBatches:
    taken = _take(buffers, query.max_records)
    counters = partition.counters
    counters.bytes_out.inc(sum(map(len, taken.buffers)))
    counters.batches_out.inc(taken.batches)
    counters.records_out.inc(taken.records)
    return FetchedBatches(
        buffers=taken.buffers,
        offset=offset,
        next_offset=max(offset, taken.next_offset),
        high_watermark=known_end(partition),
        log_start_offset=partition.log.log_start_offset,
        leader_epoch=epoch,
        topic_uid=partition.key.uid,
        records=taken.records,
    )


@dataclass(slots=True)
class _Taken:
    buffers: list[Buffer]
    next_offset: Offset
    batches: int = 0
    records: int = 0


def _records_below(batch: Buffer, offset: Offset) -> int:
    """Count the records below `offset` in the first batch of a fetch."""
    header = BatchHeader.unpack(batch)
    if offset <= header.base_offset or header.is_empty:
        return 0
    if not header.is_sparse:
        return offset - header.base_offset
    from headrace.core.records.columns import decode_batch  # pyarrow: only where records are looked at

    return header.record_count - len(decode_batch(batch).since(offset).offsets)


def _take(buffers: Sequence[Buffer], max_records: int) -> _Taken:
    """Whole batches until `max_records` are among them."""
    taken = _Taken([], Offset(0))
    for buffer in buffers:
        if taken.buffers and taken.records >= max_records:
            break
        run = skim_batches(buffer, max_records - taken.records)
        taken.batches += run.batches
        taken.records += run.records
        taken.next_offset = run.next_offset
        taken.buffers.append(memoryview(buffer)[: run.nbytes] if run.nbytes < len(buffer) else buffer)
    return taken


@dataclass(slots=True)
class OpenWatches:
    streams: Requests = field(default_factory=lambda: Requests(WATCHES_MAX, "streams open"))
    heartbeat_ms: int = WATCH_HEARTBEAT_MS
    drain_ms: int = WATCH_DRAIN_MS
    rate: HolderRate = field(
        default_factory=lambda: HolderRate(WATCH_PIECES_BURST, WATCH_PIECE_INTERVAL_MS, WATCHES_MAX)
    )
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _draining: bool = False

    @property
    def open(self) -> int:
        return len(self._tasks)

    @contextmanager
    def one_more(self, holder: str | None) -> Iterator[None]:
        """Around the handling of one stream, by the task that handles it, for a client.

        Raises ThrottledError, NotReadyError.
        """
        if self._draining:
            raise NotReadyError("this broker is stopping: watch from another one")
        task = asyncio.current_task()
        assert task is not None, "handlers run as tasks"
        with self.streams.one_more(holder):
            self._tasks.add(task)
            try:
                yield
            finally:
                self._tasks.discard(task)

    async def turn(self, holder: str | None) -> None:
        """Wait until a stream of this client's may be given another piece."""
        now_ms = asyncio.get_running_loop().time() * 1000
        wait_ms = self.rate.wait_ms(holder, now_ms)
        self.rate.take(holder, now_ms)
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

    def drain(self) -> None:
        """No stream begins any more. Those that are open end by themselves; those whose clients do not read are cut.

        They hold up no stop.
        """
        self._draining = True
        asyncio.get_running_loop().call_later(self.drain_ms / 1000, self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel("the broker stops")


@dataclass(frozen=True, slots=True)
class WatchedPiece:
    fetched: FetchedBatches
    """A piece has no batches where there was nothing to read for so long that a heartbeat is due."""
    records_left: int | None
    """How many of its records the client still wants; None: all."""


async def watch(
    partition: Partition, query: WatchQuery, watches: OpenWatches, share: BudgetShare
) -> AsyncIterator[WatchedPiece]:
    """The first piece comes at once, with what is there. Raises what `fetch` raises.

    Each piece is counted in `share` until the next is asked for; a stream that waits for its turn holds nothing. Where
    there is no room for another piece, it is waited for: only a stream that has not begun is refused.
    """
    epoch = partition.replica.check_leader(str(partition.place), query.fence)
    # A later epoch of the same leader may have begun with another log: the client has to look again.
    fence = Fence(query.fence.topic_uid, epoch)
    offset, left, wait_ms = query.offset, query.max_records, 0
    silence: WatchedPiece | None = None
    while True:
        asked = FetchQuery(
            offset=offset,
            max_bytes=min(query.max_bytes, WATCH_READ_BYTES),
            max_records=FETCH_RECORDS_MAX if left is None else left,
            min_bytes=1,
            max_wait_ms=wait_ms,
            fence=fence,
            value_format=query.value_format,
        )
        try:
            fetched = await fetch(partition, asked, share)
        except ThrottledError:
            if silence is None:
                raise
            if not await share.room(watches.heartbeat_ms / 1000):
                yield silence
            continue
        yield WatchedPiece(fetched, left)
        if left is not None:
            left -= fetched.count_wanted()
        if partition.is_draining or (left is not None and left <= 0):
            return
        offset, wait_ms = fetched.next_offset, watches.heartbeat_ms
        # The records are not kept while the next ones are waited for.
        fetched = replace(fetched, buffers=(), offset=offset, records=0)
        silence = WatchedPiece(fetched, left)
        share.resize(0)
        await watches.turn(share.holder)
