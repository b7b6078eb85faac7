"""The log of one coordinator's decisions: entries in, one batch for each decision; batches out, as entries.

pyarrow is loaded in a thread before the first of either (`load_codec`). Batches are decoded in a thread, too: the log
of a busy coordinator has a hundred thousand of them.

`TermAppends` writes what one term of a coordinator has decided: in order, each decision as a batch of its own.

    decided ──> encoded (at once; in a thread where it is large) ──> appended, with what came meanwhile ──> committed

Decisions behind a large one wait for it. Appends that come together are written together; the next ones go on their way
while those before wait for the high watermark. One object for each term. Invariants: nothing is appended in another
epoch than the term's; a failure is told once, nothing that follows is appended, and nobody is told any more what became
of what was: the log says it. Called by `coordinator_shell`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic

from headrace.core.coordinator import Append, EntryT
from headrace.core.errors import CorruptLogError, HeadraceError, UnreadableBatchError
from headrace.core.limits import BATCH_HEADER_BYTES, PRODUCE_TIMEOUT_MS_DEFAULT, READ_INLINE_BYTES_MAX
from headrace.core.log.epochs import Fence
from headrace.core.records.header import BatchHeader, skim_batches
from headrace.core.records.raw import RawBatch
from headrace.core.types import Acks, LeaderEpoch, Offset
from headrace_broker.clock import wall_ms
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import ProduceQuery

COORDINATOR_APPENDS_IN_FLIGHT_MAX = 2
"""The calls that wait for the high watermark; what is decided meanwhile goes along with the next one. There are two:
one is on its way while the next is written. With more, each has fewer commits, and costs every replica as much."""
COORDINATOR_APPEND_BATCHES_MAX = 256
COORDINATOR_APPEND_BYTES = 1 << 20
"""The bounds of one call: so many batches, and no more bytes than this, one batch at least."""
COORDINATOR_ENCODE_INLINE_BYTES_MAX = 64 << 10
"""The bytes of one decision above which a thread encodes it, at some five microseconds a kilobyte."""


_log = logging.getLogger(__name__)
_READ_ALL = 1 << 62


async def load_codec() -> None:
    """Load what encodes and decodes: a third of a second, once in a process."""
    await asyncio.to_thread(_load_pyarrow)


def _load_pyarrow() -> None:
    from headrace.core.records import small_batches  # noqa: F401


@dataclass(frozen=True, slots=True)
class EntryCodec(Generic[EntryT]):
    """The form that the entries of one internal topic have as records."""

    encode: Callable[[EntryT], tuple[bytes, bytes | None]]
    """The function that gives key and value; the value None is a tombstone."""
    decode: Callable[[bytes, bytes | None], EntryT]
    """The function that decodes an entry. Raises UnreadableRecordError."""
    leaves_out: bool = False
    """Whether a batch that nobody can decode is left out, loudly, so that what was decided before it holds again. False
    where it is worse to forget a decision than to decide nothing."""

    def encoded(self, entries: Sequence[EntryT]) -> RawBatch:
        """Return one batch of these, which is committed whole or not at all."""
        from headrace.core.records.arrays import bytes_array
        from headrace.core.records.columns import encode_batch, record_columns
        from headrace.core.records.small_batches import are_few, encode_rows

        records = [self.encode(entry) for entry in entries]
        keys = [key for key, _ in records]
        values = [value for _, value in records]
        now_ms = wall_ms()
        whole = [value for value in values if value is not None]
        if are_few(values, keys, sum(map(len, keys)) + sum(map(len, whole))):
            chunks = encode_rows(whole, keys, [now_ms] * len(keys))
        else:
            # They are arrays: for lists with a tombstone Arrow would ask pandas, whose import takes seconds.
            chunks = encode_batch(record_columns(bytes_array(values), bytes_array(keys), timestamps_ms=now_ms))
        # They are not checked as a client's are: the keys are there, and the checksums were made a moment ago.
        whole_batch = b"".join(chunks)
        head, body = (
            memoryview(bytearray(whole_batch[:BATCH_HEADER_BYTES])),
            memoryview(whole_batch)[BATCH_HEADER_BYTES:],
        )
        return RawBatch(BatchHeader.unpack(head), [head, body], keyless_count=0)

    async def entries(self, partition: Partition, end: Offset) -> AsyncIterator[tuple[EntryT, ...]]:
        """Yield all that the log holds below `end`, which is the end of a batch and committed, in order.

        Raise UnreadableRecordError, CorruptBatchError, and what `PartitionLog.read` raises.
        """
        offset = partition.log.log_start_offset
        while offset < end:
            buffers = await partition.log.read(offset, max_bytes=READ_INLINE_BYTES_MAX, up_to=end)
            if not buffers:
                raise CorruptLogError(f"{partition.place}: nothing can be read at offset {offset}, below {end}")
            yield await asyncio.to_thread(self._decoded, buffers)
            offset = skim_batches(buffers[-1], _READ_ALL).next_offset

    def _decoded(self, buffers: Sequence[memoryview]) -> tuple[EntryT, ...]:
        from headrace.core.records.columns import decode_batch
        from headrace.core.records.small_batches import decode_rows

        found: list[EntryT] = []
        for buffer in buffers:
            at = 0
            while at < len(buffer):
                header = BatchHeader.unpack(buffer, at)
                batch = buffer[at : at + header.batch_bytes]
                at += header.batch_bytes
                if (rows := decode_rows(batch, header)) is not None:
                    found += map(self.decode, *rows)
                elif not header.is_empty:
                    try:
                        records = decode_batch(batch).records
                    except UnreadableBatchError as error:
                        if not self.leaves_out:
                            raise
                        _log.error("left out of a coordinator's log: %s", error.message)
                        continue
                    found += map(self.decode, records.column(0).to_pylist(), records.column(1).to_pylist())
        return tuple(found)


class _Decision(Generic[EntryT]):
    __slots__ = ("batch", "order")

    def __init__(self, order: Append[EntryT]) -> None:
        self.order = order
        self.batch: RawBatch | None = None
        """The encoded batch; None until it is encoded."""


class TermAppends(Generic[EntryT]):
    def __init__(
        self,
        partition: Partition,
        codec: EntryCodec[EntryT],
        epoch: LeaderEpoch,
        committed: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        """`committed` is called with the number of an order, and means all before it; `failed` with why the term is
        over."""
        self._partition = partition
        self._codec = codec
        self._query = ProduceQuery(Acks.ALL, PRODUCE_TIMEOUT_MS_DEFAULT, Fence(leader_epoch=epoch))
        self._committed = committed
        self._failed = failed
        self._queue: deque[_Decision[EntryT]] = deque()
        """The decisions that are not appended yet, in order."""
        self._large: deque[_Decision[EntryT]] = deque()
        """The large ones of them, which the thread encodes."""
        self._in_flight = 0
        """The number of calls that are not committed yet."""
        self._flushing: asyncio.Handle | None = None
        self._encoding: asyncio.Task[None] | None = None
        self._is_over = False

    def add(self, order: Append[EntryT]) -> None:
        decided = _Decision(order)
        if order.size_bytes <= COORDINATOR_ENCODE_INLINE_BYTES_MAX:
            decided.batch = self._codec.encoded(order.entries)
            self._flush_soon()
        else:
            self._large.append(decided)
            if self._encoding is None:
                self._encoding = asyncio.create_task(self._encode_large(), name=f"encode {self._partition.place}")
        self._queue.append(decided)

    def stop(self) -> None:
        """End the term: nothing is appended any more, and nobody is told of anything."""
        self._is_over = True
        self._queue.clear()
        self._large.clear()
        if self._flushing is not None:
            self._flushing.cancel()

    async def _encode_large(self) -> None:
        """Encode large decisions one after the other: each has its bytes in memory several times meanwhile."""
        try:
            while self._large:
                decided = self._large.popleft()
                decided.batch = await asyncio.to_thread(self._codec.encoded, decided.order.entries)
                self._flush_soon()
        except Exception as error:
            _log.exception("%s: a decision cannot be encoded", self._partition.place)
            self._fail(repr(error))
        finally:
            self._encoding = None

    def _flush_soon(self) -> None:
        """Append after all else that the loop has at hand: it may be more of the same."""
        if self._flushing is None and not self._is_over:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        while self._in_flight < COORDINATOR_APPENDS_IN_FLIGHT_MAX:
            number, batches = self._take()
            if not batches:
                return
            self._in_flight += 1
            try:
                self._partition.append(batches, self._query, partial(self._appended, number))
            except HeadraceError as error:
                self._fail(error.message)
            except Exception as error:  # else these would be lost, and the next ones taken for all before them
                _log.exception("%s: appending failed", self._partition.place)
                self._fail(repr(error))

    def _take(self) -> tuple[int, list[RawBatch]]:
        """Return the batches of the next call, and the number of the last; none while the first is not encoded yet."""
        batches: list[RawBatch] = []
        number = size = 0
        while self._queue and len(batches) < COORDINATOR_APPEND_BATCHES_MAX:
            batch = self._queue[0].batch
            if batch is None or (batches and size + batch.nbytes > COORDINATOR_APPEND_BYTES):
                break
            number = self._queue.popleft().order.number
            batches.append(batch)
            size += batch.nbytes
        return number, batches

    def _appended(self, number: int, error: HeadraceError | None) -> None:
        """Note what became of an append, maybe before `append` returns."""
        if self._is_over:
            return
        if error is not None:
            self._fail(error.message)
            return
        self._in_flight -= 1
        if self._queue:
            self._flush_soon()
        self._committed(number)

    def _fail(self, reason: str) -> None:
        if not self._is_over:
            self.stop()
            self._failed(reason)
