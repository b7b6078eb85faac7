"""Batches as columns: from records to the bytes of a batch, and back without a copy.

The body is one Arrow IPC record-batch message without its schema message: `magic` fixes the schema, so that a thousand
small batches do not carry a thousand descriptions of the same four columns. `docs/protocol.md` gives every byte.

`decode_batch` trusts nothing: header, CRC, message metadata and buffers are checked before pyarrow sees the body, and
pyarrow validates the arrays in full. Any byte string gives a batch or a CorruptBatchError; it is an
UnreadableBatchError where the bytes are what was written, so that they can never be decoded. Decoded arrays are views
of the buffer they came from and keep it alive. Called by clients, and by the broker for JSON and for finding times.

`check_body` is the same for what a broker is about to append: what it lets pass can be decoded. It copies nothing of a
body that is not compressed, and of one that is it makes what a reader would make.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import BatchTooLargeError, CorruptBatchError, UnreadableBatchError
from headrace.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_DECOMPRESSED_BYTES_MAX,
    BATCH_HEADER_BYTES,
    BATCH_RECORDS_MAX,
)
from headrace.core.records.arrays import (
    HEADERS_TYPE,
    binary_array,
    header_rows,
    headers_array,
    long_numbers,
    timestamp_array,
)
from headrace.core.records.arrow_message import ArrowMessage, check_buffers, read_message
from headrace.core.records.header import (
    ALIGNMENT_BYTES,
    MAGIC,
    NOT_IDEMPOTENT,
    BatchHeader,
    Compression,
    ProducerNumbers,
)
from headrace.core.records.raw import RawBatch, batch_crc
from headrace.core.types import LeaderEpoch, Offset, RecordContent

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)
"""The columns of a batch (magic 1). A null value is a tombstone."""

SPARSE_RECORD_SCHEMA: Final = RECORD_SCHEMA.append(pa.field("offset_delta", pa.int32(), nullable=False))
"""The columns where compaction left gaps: each record has its distance from `base_offset`."""

_RECORD_BUFFERS = 17
_SPARSE_RECORD_BUFFERS = 19
_SCHEMA_MESSAGES = {len(schema): schema.serialize().to_pybytes() for schema in (RECORD_SCHEMA, SPARSE_RECORD_SCHEMA)}
"""The schema messages by their number of columns."""
_WRITE_OPTIONS = {
    Compression.LZ4: pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False),
    Compression.ZSTD: pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False),
}
"""The options without Arrow's thread pool: nearly all bytes are in one buffer, so it gains nothing and costs a batch
200 us."""
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
"""The options for reading, for the same reason: a batch of few records is decompressed in a tenth of the time."""
_THREADED_FROM_BYTES = 256 << 10
"""The size of a compressed body from which the thread pool gains."""
OnUnreadable = Callable[[UnreadableBatchError], None]

_UNSTAMPED = (Offset(0), LeaderEpoch(0))


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A validated batch, or the end of one."""

    header: BatchHeader
    records: pa.RecordBatch
    """The records in RECORD_SCHEMA."""
    offsets: npt.NDArray[np.int64]
    """The offset of each record, ascending."""

    def since(self, offset: int) -> Self:
        """Return the batch without the records below `offset`: a fetch may begin within a batch."""
        first = int(np.searchsorted(self.offsets, offset))
        if first == 0:
            return self
        return type(self)(self.header, self.records.slice(first), self.offsets[first:])

    def rows(self) -> Iterator[tuple[Offset, RecordContent]]:
        """Yield record by record; columns are ten times as fast."""
        columns = self.records
        keys, values, times = (columns.column(index).to_pylist() for index in range(3))
        offsets: list[Any] = self.offsets.tolist()
        rows = zip(offsets, keys, values, times, header_rows(columns.column(3)), strict=True)
        return (
            (Offset(offset), RecordContent(key, value, time, headers)) for offset, key, value, time, headers in rows
        )


def record_columns(
    values: Any,
    keys: Any = None,
    *,
    timestamps_ms: Any,
    headers: Sequence[Iterable[tuple[str, bytes | None]]] | pa.Array | None = None,
) -> pa.RecordBatch:
    """Return records as columns (RECORD_SCHEMA).

    `values` and `keys` (None: no keys) are sequences of bytes, str and None, or Arrow or pandas columns of them;
    `timestamps_ms` is one int for all or a sequence or int64 column; `headers` has a sequence of (name, value) for
    each record. Raises TypeError, and ValueError where lengths differ, both with the remedy.
    """
    value_column = binary_array(values, "values")
    count = len(value_column)
    key_column = pa.nulls(count, pa.binary()) if keys is None else binary_array(keys, "keys")
    columns = {
        "keys": key_column,
        "values": value_column,
        "timestamps_ms": timestamp_array(timestamps_ms, count),
        "headers": headers_array(headers, count),
    }
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"{name}: {len(column)} entries for {count} values: give one for each record")
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORD_SCHEMA)


def columns_of(records: Sequence[RecordContent]) -> pa.RecordBatch:
    """Return records that came one by one (JSON) as columns."""
    return record_columns(
        [record.value for record in records],
        [record.key for record in records],
        timestamps_ms=[record.timestamp_ms for record in records],
        headers=[record.headers for record in records] if any(record.headers for record in records) else None,
    )


def encode_batch(
    records: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
    numbers: ProducerNumbers = NOT_IDEMPOTENT,
) -> list[bytes | memoryview]:
    """Return a whole batch, not yet stamped, as buffers to be written one after the other; the header comes first.

    Raises ValueError for no records or too many, BatchTooLargeError where a batch cannot be that long.
    """
    count = records.num_rows
    if not 1 <= count <= BATCH_RECORDS_MAX:
        raise ValueError(f"{count} records: a batch has from 1 to {BATCH_RECORDS_MAX}")
    times = long_numbers(records.column(2))
    header = plain_header(count, int(times[0]), int(times.max()), numbers)
    return assemble(header._replace(attributes=compression), records)


def plain_header(
    count: int, base_timestamp_ms: int, max_timestamp_ms: int, numbers: ProducerNumbers = NOT_IDEMPOTENT
) -> BatchHeader:
    """Return the header of a batch that is not compressed; length and checksum are yet to be known."""
    producer_id, producer_epoch, base_sequence = numbers
    return BatchHeader(
        *_UNSTAMPED,
        batch_bytes=BATCH_HEADER_BYTES,
        magic=MAGIC,
        crc32c=0,
        attributes=Compression.NONE,
        producer_epoch=producer_epoch,
        last_offset_delta=count - 1,
        record_count=count,
        base_sequence=base_sequence,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
    )


def assemble(header: BatchHeader, records: pa.RecordBatch) -> list[bytes | memoryview]:
    """Return the batch that `header` describes, as buffers; its length and its checksums are made right.

    `records` is of RECORD_SCHEMA, or of SPARSE_RECORD_SCHEMA where the header has the bit. Raises BatchTooLargeError.
    """
    return sealed(header, _arrow_message(records, header.compression))


def sealed(header: BatchHeader, body: bytes | memoryview) -> list[bytes | memoryview]:
    """Return the same around an Arrow message. Raises BatchTooLargeError."""
    padding = bytes(-len(body) % ALIGNMENT_BYTES)
    chunks: list[bytes | memoryview] = [body, padding] if padding else [body]
    size_bytes = _bounded(BATCH_HEADER_BYTES + len(body) + len(padding), BATCH_BYTES_MAX)
    header = header._replace(batch_bytes=size_bytes)
    return [header._replace(crc32c=batch_crc(header.pack(), chunks)).pack(), *chunks]


def _arrow_message(records: pa.RecordBatch, compression: Compression) -> memoryview:
    if compression is Compression.NONE:
        return memoryview(records.serialize()).cast("B")
    _bounded(records.nbytes, BATCH_DECOMPRESSED_BYTES_MAX)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, records.schema, options=_WRITE_OPTIONS[compression])
    writer.write_batch(records)
    return memoryview(sink.getvalue()).cast("B")[len(_SCHEMA_MESSAGES[records.num_columns]) :]


def _bounded(size_bytes: int, limit: int) -> int:
    if size_bytes > limit:
        raise BatchTooLargeError(
            f"the batch takes {size_bytes} bytes, the limit is {limit}: send fewer records", limit=limit
        )
    return size_bytes


def decode_batch(buffer: bytes | bytearray | memoryview | pa.Buffer, at: int = 0) -> DecodedBatch:
    """Return the batch that starts at byte `at`, without a copy (one where its body is not aligned to 8 bytes in
    memory).

    Raises CorruptBatchError for anything but exactly one batch with records.
    """
    source = pa.py_buffer(buffer)
    batch = memoryview(source).cast("B")[at:]
    header = BatchHeader.unpack(batch)
    _check_whole(header, batch)
    if header.is_empty:
        raise CorruptBatchError("record_count is 0: a heartbeat or an emptied batch, not a batch of records")
    try:
        message = read_message(batch, header.batch_bytes)
        records = _read_body(source[at + BATCH_HEADER_BYTES : at + header.batch_bytes], header, message, aligned=True)
        return _placed(header, records)
    except CorruptBatchError as error:
        raise UnreadableBatchError(
            f"offsets {header.base_offset} to {header.last_offset} cannot be decoded: {error.message}",
            baseOffset=header.base_offset,
            lastOffset=header.last_offset,
            nextOffset=header.next_offset,
        ) from error


def check_body(batch: RawBatch) -> None:
    """Raise CorruptBatchError unless readers can decode `batch`, which `split_batches` gave."""
    assert batch.message is not None, "a producer sent it"
    body = batch.buffers[1] if len(batch.buffers) == 2 else memoryview(b"".join(batch.buffers[1:]))
    _read_body(pa.py_buffer(body), batch.header, batch.message, aligned=False)


def decode_batches(
    buffer: bytes | bytearray | memoryview | pa.Buffer, on_unreadable: OnUnreadable | None = None
) -> Iterator[DecodedBatch]:
    """Yield the batches of a fetch that hold records, in order: heartbeats and emptied batches are left out.

    `on_unreadable` is called with each batch that cannot be decoded: it raises, or the batch is left out. Raises
    CorruptBatchError.
    """
    source = pa.py_buffer(buffer)
    whole = memoryview(source).cast("B")
    at = 0
    while at < len(whole):
        header = BatchHeader.unpack(whole, at)
        if header.is_empty:
            _check_whole(header, whole[at:])
        else:
            try:
                batch = decode_batch(source, at)
            except UnreadableBatchError as error:
                if on_unreadable is None:
                    raise
                on_unreadable(error)
            else:
                yield batch
        at += header.batch_bytes


def _check_whole(header: BatchHeader, batch: memoryview) -> None:
    if header.batch_bytes > len(batch):
        raise CorruptBatchError(f"batch_bytes is {header.batch_bytes}, only {len(batch)} bytes follow")
    crc = batch_crc(batch, [batch[BATCH_HEADER_BYTES : header.batch_bytes]])
    if crc != header.crc32c:
        raise CorruptBatchError(f"crc32c is {header.crc32c:#010x}, the bytes give {crc:#010x}: the bytes were damaged")


def _read_body(body: pa.Buffer, header: BatchHeader, message: ArrowMessage, *, aligned: bool) -> pa.RecordBatch:
    """Read the body, which is what follows the header; where it is to be `aligned` and is not, it is copied."""
    sparse = header.is_sparse
    check_buffers(message, memoryview(body), _SPARSE_RECORD_BUFFERS if sparse else _RECORD_BUFFERS, header.compression)
    body = body.slice(0, message.body_at + message.body_bytes - BATCH_HEADER_BYTES)
    if aligned and body.address % 8:
        body = pa.py_buffer(body.to_pybytes())
    records = _read_records(body, SPARSE_RECORD_SCHEMA if sparse else RECORD_SCHEMA, header)
    headers = records.column(3)
    items = headers.values
    if records.column(2).null_count or headers.null_count or items.null_count or items.field(0).null_count:
        raise CorruptBatchError("a time, a list of headers, a header or its name is null: only keys and values may be")
    return records


def _read_records(body: pa.Buffer, schema: pa.Schema, header: BatchHeader) -> pa.RecordBatch:
    try:
        if header.compression is Compression.NONE or len(body) >= _THREADED_FROM_BYTES:
            records = pa.ipc.read_record_batch(body, schema)
        else:
            stream = pa.py_buffer(b"".join((_SCHEMA_MESSAGES[len(schema)], body)))
            records = pa.ipc.open_stream(stream, options=_READ_OPTIONS).read_next_batch()
        records.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptBatchError(f"the body is not a record batch of magic {MAGIC}: {error}") from error
    if records.num_rows != header.record_count:
        raise CorruptBatchError(f"record_count is {header.record_count}, the body has {records.num_rows} rows")
    return records


def _placed(header: BatchHeader, records: pa.RecordBatch) -> DecodedBatch:
    """Return the records with their offsets, and with the leader's time where the header has that bit."""
    if header.is_sparse:
        deltas = records.column(4).fill_null(-1).to_numpy().astype(np.int64)
        if deltas[0] < 0 or deltas[-1] > header.last_offset_delta or (np.diff(deltas) <= 0).any():
            raise CorruptBatchError(f"offset_delta must ascend from 0 or above to {header.last_offset_delta} at most")
        records = records.select(range(4))
    else:
        deltas = np.arange(header.record_count, dtype=np.int64)
    if header.has_append_time:
        times = timestamp_array(header.max_timestamp_ms, header.record_count)
        records = records.set_column(2, RECORD_SCHEMA.field(2), times)
    return DecodedBatch(header, records, deltas + header.base_offset)
