"""Batches as they arrived: a header to stamp and the body's chunks, never joined, never copied, never decoded.

`split_batches` is the first check of a produce request: lengths, magic, both checksums, the fields that a producer may
set, and that the Arrow message holds as many rows as the header claims, with the times that it claims; and how many of
them have no key, because compacted topics need one. What lies deeper (offsets within buffers, names that are not UTF-8)
is checked by `columns.check_body` then.

A `RawBatch` lives from the request to the append. Its first buffer is a private copy of the header, because stamping
writes into it; the others are views of the request's chunks and keep those alive.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from crc32c import crc32c

from headrace.core.errors import BatchTooLargeError, CorruptBatchError
from headrace.core.limits import BATCH_HEADER_BYTES
from headrace.core.records.arrow_message import (
    METADATA_END_MAX,
    ArrowMessage,
    RecordTimes,
    read_message,
    read_times,
    unpacked_bytes,
)
from headrace.core.records.header import (
    APPEND_TIME_BIT,
    COMPRESSION_BITS,
    CONTROL_BIT,
    CRC_FROM,
    MAGIC,
    NO_PRODUCER,
    SPARSE_BIT,
    BatchHeader,
    Compression,
    ProducerNumbers,
)
from headrace.core.records.header import stamp as stamp_head
from headrace.core.types import LeaderEpoch, Offset

_NO_TIME_MS: Final = -1
_LEADERS_BITS = APPEND_TIME_BIT | CONTROL_BIT | SPARSE_BIT


@dataclass(slots=True)
class RawBatch:
    """One checked batch. `buffers[0]` is its own 64-byte header, the rest are the body as received."""

    header: BatchHeader
    buffers: list[memoryview]
    keyless_count: int
    """The number of records without a key; 0 where a leader sent the batch, which checked it when it was produced."""
    message: ArrowMessage | None = None
    """The body's metadata, of a batch that a producer sent."""
    times: RecordTimes | None = None
    """The times as a producer sent them, until they are appended; None where they were checked before, and of a
    compressed body until `unpack_times`."""

    @property
    def nbytes(self) -> int:
        return self.header.batch_bytes

    def unpacked_bytes(self) -> int:
        """Return the size that it claims to have in memory once it is decompressed. Raises CorruptBatchError."""
        if not self.header.attributes & COMPRESSION_BITS:
            return self.nbytes
        return unpacked_bytes(memoryview(b"".join(self.buffers)), self.header)

    def stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Self:
        """Give the batch its place in the log, in place; the body and its CRC stay as they are."""
        stamp_head(self.buffers[0], base_offset, leader_epoch)
        self.header = self.header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
        return self

    def take_append_time(self, now_ms: int) -> Self:
        """Set the leader's time for every record (`timestampType: LogAppendTime`), in place; the CRC is made right."""
        header = self.header._replace(
            attributes=self.header.attributes | APPEND_TIME_BIT, base_timestamp_ms=now_ms, max_timestamp_ms=now_ms
        )
        self.header = header._replace(crc32c=batch_crc(header.pack(), self.buffers[1:]))
        self.buffers[0][:] = self.header.pack()
        return self


def batch_crc(header: bytes | bytearray | memoryview, body: Iterable[bytes | memoryview]) -> int:
    """Return the CRC-32C of a batch from its attributes to its end, chained over the body's chunks."""
    crc = crc32c(memoryview(header)[CRC_FROM:BATCH_HEADER_BYTES])
    for chunk in body:
        crc = crc32c(chunk, crc)
    return crc


def split_batches(
    chunks: Sequence[bytes | bytearray | memoryview], *, batch_bytes_max: int, are_committed: bool = False
) -> list[RawBatch]:
    """Return the batches of a produce request, in order; one at least. Chunks may end anywhere, within a header too.

    `are_committed`: they must be written whatever times their headers have, which were checked before.

    Raises CorruptBatchError, or BatchTooLargeError with `limit`; both name the batch by its index, which is also in
    `details["batch"]`.
    """
    batches: list[RawBatch] = []
    try:
        timed = _with_known_times if are_committed else _with_times
        if len(chunks) == 1 and (only := _only_batch(memoryview(chunks[0]), batch_bytes_max)) is not None:
            return [timed(*only)]
        cursor = _Cursor(chunks)
        while cursor.left_bytes or not batches:
            batches.append(timed(*_take_batch(cursor, batch_bytes_max)))
    except (CorruptBatchError, BatchTooLargeError) as error:
        index = len(batches)
        raise type(error)(f"batch {index}: {error.message}", **error.details, batch=index) from error
    return batches


def split_replicated(chunks: Sequence[bytes | bytearray | memoryview]) -> list[RawBatch]:
    """Return the batches that a leader sent as they stand in its log, in order. Chunks may end anywhere, within a
    header too.

    Headers and CRCs are checked, no more: compaction has emptied some, and the bits are there that only leaders set.
    Raises CorruptBatchError.
    """
    cursor, batches = _Cursor(chunks), list[RawBatch]()
    while cursor.left_bytes:
        header = BatchHeader.unpack(cursor.peek(BATCH_HEADER_BYTES))
        _check_complete(header, cursor)
        head = memoryview(bytearray(cursor.peek(BATCH_HEADER_BYTES)))
        cursor.take(BATCH_HEADER_BYTES)
        batch = RawBatch(header, [head, *cursor.take(header.batch_bytes - BATCH_HEADER_BYTES)], 0)
        _check_crc(batch)
        batches.append(batch)
    return batches


class _Cursor:
    """A position in a list of chunks that are not joined."""

    def __init__(self, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        self._chunks = [memoryview(chunk) for chunk in chunks if len(chunk)]
        self._index = 0
        self._at = 0
        self.left_bytes = sum(map(len, self._chunks))

    def peek(self, size: int) -> memoryview:
        """Return the next `size` bytes (fewer at the end), in one piece: a copy only where a chunk ends within them."""
        if not self.left_bytes:
            return memoryview(b"")
        view = self._chunks[self._index][self._at : self._at + size]
        if len(view) == size or len(view) == self.left_bytes:
            return view
        joined = bytearray(view)
        size = min(size, self.left_bytes)
        index = self._index
        while len(joined) < size:
            index += 1
            joined += self._chunks[index][: size - len(joined)]
        return memoryview(joined)

    def take(self, size: int) -> list[memoryview]:
        """Take the next `size` bytes as views of the chunks. They must be there."""
        views = []
        self.left_bytes -= size
        while size:
            view = self._chunks[self._index][self._at : self._at + size]
            views.append(view)
            size -= len(view)
            self._at += len(view)
            if self._at == len(self._chunks[self._index]):
                self._index, self._at = self._index + 1, 0
        return views


def _only_batch(chunk: memoryview, batch_bytes_max: int) -> tuple[RawBatch, ArrowMessage] | None:
    """Return the batch that is all of `chunk`, as most small produces are: no cursor is needed."""
    header = BatchHeader.unpack(chunk)
    if header.batch_bytes != len(chunk):
        return None
    _check_produced(header, batch_bytes_max)
    return _checked(header, chunk[:METADATA_END_MAX], [chunk[BATCH_HEADER_BYTES:]])


def _take_batch(cursor: _Cursor, batch_bytes_max: int) -> tuple[RawBatch, ArrowMessage]:
    header = BatchHeader.unpack(cursor.peek(BATCH_HEADER_BYTES))
    _check_produced(header, batch_bytes_max)
    _check_complete(header, cursor)
    start = cursor.peek(min(header.batch_bytes, METADATA_END_MAX))
    cursor.take(BATCH_HEADER_BYTES)
    return _checked(header, start, cursor.take(header.batch_bytes - BATCH_HEADER_BYTES))


def _with_times(batch: RawBatch, message: ArrowMessage) -> RawBatch:
    """Return the batch with its times. Raises CorruptBatchError where they do not agree with the header."""
    if batch.header.compression is Compression.NONE:
        batch.times = read_times(batch.header, message, batch.buffers[1:])
    return batch


def unpack_times(batch: RawBatch) -> None:
    """Read the times of a compressed body, eight bytes a record. Raises CorruptBatchError as `split_batches` does."""
    if batch.times is None and batch.message is not None:
        batch.times = read_times(batch.header, batch.message, batch.buffers[1:])


def _with_known_times(batch: RawBatch, message: ArrowMessage) -> RawBatch:
    """Return the same for a batch that is refused no more."""
    with suppress(CorruptBatchError):
        return _with_times(batch, message)
    return batch


def _checked(header: BatchHeader, start: memoryview, body: list[memoryview]) -> tuple[RawBatch, ArrowMessage]:
    """Return the checked batch; `start` has its first bytes, its metadata among them."""
    batch = RawBatch(header, [memoryview(bytearray(start[:BATCH_HEADER_BYTES])), *body], 0)
    _check_crc(batch)
    message = read_message(start, header.batch_bytes)
    if message.row_count != header.record_count:
        raise CorruptBatchError(
            f"record_count is {header.record_count}, the body has {message.row_count} rows: they must agree"
        )
    batch.keyless_count, batch.message = message.keyless_count, message
    return batch, message


def _check_complete(header: BatchHeader, cursor: _Cursor) -> None:
    if header.batch_bytes > cursor.left_bytes:
        raise CorruptBatchError(f"batch_bytes is {header.batch_bytes}, only {cursor.left_bytes} bytes follow")


def _check_crc(batch: RawBatch) -> None:
    crc = batch_crc(batch.buffers[0], batch.buffers[1:])
    if crc != batch.header.crc32c:
        raise CorruptBatchError(
            f"crc32c is {batch.header.crc32c:#010x}, the bytes give {crc:#010x}: damaged on the way"
        )


def _check_produced(header: BatchHeader, batch_bytes_max: int) -> None:
    """Check the topic's limits, and the header bits that only leaders and the log itself may write."""
    if header.batch_bytes > batch_bytes_max:
        raise BatchTooLargeError(
            f"batch_bytes is {header.batch_bytes}, the topic's maxMessageBytes is {batch_bytes_max}: send smaller"
            " batches or raise maxMessageBytes",
            limit=batch_bytes_max,
        )
    if header.is_empty:
        raise CorruptBatchError("record_count is 0, a produced batch has 1 record or more")
    if header.attributes & _LEADERS_BITS:
        raise CorruptBatchError(
            f"attributes are {header.attributes:#06x}: a producer may set bits 0-2 (compression) only"
        )
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    if min(producer) < 0 and producer != (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER):
        raise CorruptBatchError(
            f"producer_id, producer_epoch and base_sequence are {producer}: must all be 0 or above, or all -1"
        )


def renumbered(buffer: memoryview, numbers: ProducerNumbers) -> RawBatch:
    """Return the first batch in `buffer`, which stands so in a log, as one that a producer of these numbers sends.

    Raises CorruptBatchError.
    """
    stored = BatchHeader.unpack(buffer)
    batch = _with_known_times(
        *_checked(stored, buffer[:METADATA_END_MAX], [buffer[BATCH_HEADER_BYTES : stored.batch_bytes]])
    )
    header = stored._replace(
        base_offset=Offset(0),
        leader_epoch=LeaderEpoch(0),
        producer_id=numbers.producer_id,
        producer_epoch=numbers.producer_epoch,
        base_sequence=numbers.base_sequence,
    )
    batch.header = header._replace(crc32c=batch_crc(header.pack(), batch.buffers[1:]))
    batch.buffers[0][:] = batch.header.pack()
    return batch


def stored_times(buffer: memoryview) -> RecordTimes:
    """Return the times of the first batch in `buffer`, which stands so in a log and has records. Raises
    CorruptBatchError."""
    header = BatchHeader.unpack(buffer)
    message = read_message(buffer[:METADATA_END_MAX], header.batch_bytes)
    return read_times(header, message, [buffer[BATCH_HEADER_BYTES : header.batch_bytes]])


def emptied_batch(header: BatchHeader) -> bytes:
    """Return what compaction leaves of a batch when none of its records stays: its offsets, its epoch, its producer."""
    return _without_records(header._replace(attributes=SPARSE_BIT))


def _without_records(header: BatchHeader) -> bytes:
    bare = header._replace(
        batch_bytes=BATCH_HEADER_BYTES, record_count=0, base_timestamp_ms=_NO_TIME_MS, max_timestamp_ms=_NO_TIME_MS
    )
    return bare._replace(crc32c=batch_crc(bare.pack(), ())).pack()


HEARTBEAT: Final = _without_records(
    BatchHeader(Offset(0), LeaderEpoch(0), 0, MAGIC, 0, 0, NO_PRODUCER, -1, 0, NO_PRODUCER, 0, 0, NO_PRODUCER)
)
"""A header without records: it shows in an endless stream of batches that the stream is alive."""
