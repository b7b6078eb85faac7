"""The Arrow IPC message of a batch, read without pyarrow: its metadata, and the one column of times.

The flatbuffer at the body's start says how many rows there are. Offsets are given out by the number in the header, so a
batch in which the two differ would give two records one offset. Before the body goes to pyarrow more is checked: that
there are exactly the buffers that the schema needs, that they lie within the body, and how much they will be once they
are decompressed. Every read is of a slice that has the metadata and no more: a pointer out of it is a
CorruptBatchError.

    body          0xFFFFFFFF | i32 metadata length | flatbuffer Message | buffers, each at a multiple of 8
    Message       fields: 0 version, 1 header type (3 = RecordBatch), 2 header, 3 body length
    RecordBatch   fields: 0 length, 1 nodes [(length, null count)], 2 buffers [(offset, length)], 3 compression
    source        Arrow columnar format, "Encapsulated message format"; FlatBuffers internals, "Tables"

A broker relies on a header's times: the time index, retention and searches by time use nothing else. So it reads the
column that they must agree with (`read_times`), eight bytes a record, before it takes a batch; a compressed column is
decompressed alone. `raw.split_batches` calls it; `time_rules` compares the times with what a topic allows.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_DECOMPRESSED_BYTES_MAX, BATCH_HEADER_BYTES
from headrace.core.records.header import ALIGNMENT_BYTES, BatchHeader, Compression

TIMES_COUNTED_PLAINLY_MAX = 64
"""The number of times that are compared without numpy: a broker of small batches does not load it."""
BATCH_METADATA_BYTES_MAX = 4096
"""The size of Arrow's metadata at the start of a body; the schema of records needs about 500 bytes."""


PREFIX_BYTES: Final = 8
"""The bytes of continuation marker and metadata length."""
METADATA_END_MAX: Final = BATCH_HEADER_BYTES + PREFIX_BYTES + BATCH_METADATA_BYTES_MAX
"""The place in a batch beyond which there is no metadata."""

_PREFIX = struct.Struct("<Ii")
_I8 = struct.Struct("<b")
_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_TABLE = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_PAIR = struct.Struct("<qq")
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH = 3
_TIME_BUFFER = 7
"""The index of the times' buffer, after those of key and value (validity, ends, bytes), and the times' own validity."""
STORED_AS_IS: Final = -1
"""The number in place of a decompressed length: the buffer would not have shrunk and is not compressed."""
_ARROW_CODECS = {0: Compression.LZ4, 1: Compression.ZSTD}
TIME_BYTES: Final = _I64.size
_CODECS: Final = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}


class _Table(NamedTuple):
    """A flatbuffer table: where it is, and where its vtable places its fields."""

    metadata: memoryview
    at: int
    vtable_at: int
    vtable_bytes: int

    @classmethod
    def behind(cls, metadata: memoryview, pointer_at: int) -> Self:
        """Return the table that the offset at `pointer_at` leads to."""
        at = pointer_at + _U32.unpack_from(metadata, pointer_at)[0]
        vtable_at = at - _TABLE.unpack_from(metadata, at)[0]
        if vtable_at < 0:
            raise CorruptBatchError(f"the body's metadata points to byte {vtable_at}, before its own start")
        return cls(metadata, at, vtable_at, _U16.unpack_from(metadata, vtable_at)[0])

    def field(self, index: int) -> int:
        """Return the position of a field; 0 where it is absent and has its default."""
        entry = 4 + 2 * index
        if entry >= self.vtable_bytes:
            return 0
        offset = int(_U16.unpack_from(self.metadata, self.vtable_at + entry)[0])
        return self.at + offset if offset else 0

    def number(self, index: int, layout: struct.Struct) -> int:
        position = self.field(index)
        return int(layout.unpack_from(self.metadata, position)[0]) if position else 0

    def pairs(self, index: int) -> list[tuple[int, ...]]:
        """Return a vector of structs of two i64."""
        position = self.field(index)
        if not position:
            return []
        start = position + _U32.unpack_from(self.metadata, position)[0]
        end = start + 4 + _U32.unpack_from(self.metadata, start)[0] * _PAIR.size
        if end > len(self.metadata):
            raise CorruptBatchError(f"a vector in the body's metadata ends at byte {end} of {len(self.metadata)}")
        return list(_PAIR.iter_unpack(self.metadata[start + 4 : end]))


class ArrowMessage(NamedTuple):
    """A record-batch message whose lengths fit the batch it stands in. Positions count from the batch's start."""

    row_count: int
    keyless_count: int
    """The number of rows without a key. Arrow looks for nulls only where the metadata counts some, so this is true."""
    body_at: int
    body_bytes: int
    record_batch: _Table


def read_message(batch: memoryview, batch_bytes: int) -> ArrowMessage:
    """Return the message in a batch of `batch_bytes`. `batch` holds its first bytes, METADATA_END_MAX at least or all
    of it.

    Raises CorruptBatchError where lengths do not fit each other or the metadata is not that of a record batch.
    """
    try:
        return _read_message(batch, batch_bytes)
    except struct.error as error:
        raise CorruptBatchError("the body's metadata points outside of itself: it is no Arrow message") from error


def _read_message(batch: memoryview, batch_bytes: int) -> ArrowMessage:
    continuation, metadata_bytes = _PREFIX.unpack_from(batch, BATCH_HEADER_BYTES)
    if continuation != _CONTINUATION or not 0 < metadata_bytes <= BATCH_METADATA_BYTES_MAX or metadata_bytes % 8:
        raise CorruptBatchError(
            f"the body starts with {continuation:#010x} and a metadata length of {metadata_bytes}, must be"
            f" {_CONTINUATION:#010x} and a multiple of 8 up to {BATCH_METADATA_BYTES_MAX}"
        )
    body_at = BATCH_HEADER_BYTES + PREFIX_BYTES + metadata_bytes
    message = _Table.behind(batch[BATCH_HEADER_BYTES + PREFIX_BYTES : body_at], 0)
    kind, body_bytes = message.number(1, _U8), message.number(3, _I64)
    if kind != _RECORD_BATCH:
        raise CorruptBatchError(f"the body is an Arrow message of type {kind}, must be {_RECORD_BATCH} (RecordBatch)")
    unused = batch_bytes - body_at - body_bytes
    if body_bytes < 0 or not 0 <= unused < ALIGNMENT_BYTES:
        raise CorruptBatchError(
            f"header, metadata and buffers take {body_at} + {body_bytes} bytes, batch_bytes is {batch_bytes}: must be"
            f" their sum rounded up to {ALIGNMENT_BYTES}"
        )
    record_batch = _Table.behind(message.metadata, message.field(2))
    return ArrowMessage(record_batch.number(0, _I64), _keyless_count(record_batch), body_at, body_bytes, record_batch)


def _keyless_count(record_batch: _Table) -> int:
    """Return the count from the node of the first column."""
    position = record_batch.field(1)
    if not position:
        return 0
    nodes_at = position + _U32.unpack_from(record_batch.metadata, position)[0]
    return max(0, int(_PAIR.unpack_from(record_batch.metadata, nodes_at + _U32.size)[1]))


def time_buffer(message: ArrowMessage, compression: Compression) -> tuple[int, int]:
    """Return where the times of the records lie, in bytes from the batch's start, and how many bytes they take.

    Raises CorruptBatchError where that is outside of the body, or the body is compressed otherwise than it should be.
    """
    try:
        table = message.record_batch
        pointer = table.field(2)
        vector_at = pointer + int(_U32.unpack_from(table.metadata, pointer)[0])
        if not pointer or _U32.unpack_from(table.metadata, vector_at)[0] <= _TIME_BUFFER:
            raise CorruptBatchError("the body has no column of times")
        at, size = map(int, _PAIR.unpack_from(table.metadata, vector_at + _U32.size + _TIME_BUFFER * _PAIR.size))
        codec = _codec(table)
    except struct.error as error:
        raise CorruptBatchError("the body's metadata points outside of itself: it is no Arrow message") from error
    if min(at, size) < 0 or at + size > message.body_bytes:
        raise CorruptBatchError(f"the times are {size} bytes at {at}, outside of a body of {message.body_bytes}")
    if codec is not compression:
        raise CorruptBatchError(f"the body's compression is {codec.name}, attributes say {compression.name}")
    return message.body_at + at, size


class NumberPlaces(NamedTuple):
    """The places of the numbers in a message, in bytes from its start. Of vectors: the first entry."""

    body_bytes: int
    rows: int
    nodes: int
    buffers: int


def number_places(message: memoryview) -> NumberPlaces:
    """Return the places in a whole record-batch message, prefix included, that pyarrow has made."""
    table = _Table.behind(message[PREFIX_BYTES:], 0)
    batch = _Table.behind(table.metadata, table.field(2))
    vectors = [at + int(_U32.unpack_from(batch.metadata, at)[0]) + _U32.size for at in (batch.field(1), batch.field(2))]
    return NumberPlaces(*(PREFIX_BYTES + at for at in (table.field(3), batch.field(0), *vectors)))


def unpacked_bytes(batch: memoryview, header: BatchHeader) -> int:
    """Return the size that a batch claims to have in memory once it is decompressed. Raises CorruptBatchError."""
    if header.compression is Compression.NONE:
        return header.batch_bytes
    try:
        message = read_message(batch, header.batch_bytes)
        _check_codec(message, header.compression)
        return _claimed_bytes(message, batch[BATCH_HEADER_BYTES:], message.record_batch.pairs(2))
    except struct.error as error:
        raise CorruptBatchError("a compressed buffer lies outside of its batch") from error


def check_buffers(message: ArrowMessage, body: memoryview, buffer_count: int, compression: Compression) -> None:
    """Raise CorruptBatchError unless all `buffer_count` buffers lie within the body and stay bounded in memory.

    `body` is what follows the batch's header.
    """
    try:
        _check_buffers(message, body, buffer_count, compression)
    except struct.error as error:
        raise CorruptBatchError("the body's metadata points outside of itself: it is no Arrow message") from error


def _check_buffers(message: ArrowMessage, body: memoryview, buffer_count: int, compression: Compression) -> None:
    buffers = message.record_batch.pairs(2)
    if len(buffers) != buffer_count:
        raise CorruptBatchError(f"the body has {len(buffers)} buffers, the schema of records has {buffer_count}")
    for at, size in buffers:
        if at < 0 or size < 0 or at % 8 or at + size > message.body_bytes:
            raise CorruptBatchError(f"a buffer of {size} bytes at {at} lies outside of a body of {message.body_bytes}")
    _check_codec(message, compression)
    if compression is not Compression.NONE:
        _check_decompressed_bytes(message, body, buffers)


def _check_codec(message: ArrowMessage, compression: Compression) -> None:
    codec = _codec(message.record_batch)
    if codec is not compression:
        raise CorruptBatchError(f"the body's compression is {codec.name}, attributes say {compression.name}")


def _codec(record_batch: _Table) -> Compression:
    position = record_batch.field(3)
    if not position:
        return Compression.NONE
    number = _Table.behind(record_batch.metadata, position).number(0, _I8)
    codec = _ARROW_CODECS.get(number)
    if codec is None:
        raise CorruptBatchError(f"the body's Arrow codec is {number}, must be 0 (LZ4 frame) or 1 (ZSTD)")
    return codec


def _check_decompressed_bytes(message: ArrowMessage, body: memoryview, buffers: list[tuple[int, ...]]) -> None:
    total = _claimed_bytes(message, body, buffers)
    if total > BATCH_DECOMPRESSED_BYTES_MAX:
        raise CorruptBatchError(
            f"the body claims {total} bytes once decompressed, the limit is {BATCH_DECOMPRESSED_BYTES_MAX}"
        )


def _claimed_bytes(message: ArrowMessage, body: memoryview, buffers: list[tuple[int, ...]]) -> int:
    """Return the claimed bytes: every compressed buffer begins with its decompressed length, which pyarrow allocates
    before it decompresses."""
    total, buffers_at = 0, message.body_at - BATCH_HEADER_BYTES
    for at, size in buffers:
        if size == 0:
            continue
        claimed = _I64.unpack_from(body, buffers_at + at)[0] if size >= _I64.size else STORED_AS_IS - 1
        if claimed < STORED_AS_IS:
            raise CorruptBatchError(f"a compressed buffer of {size} bytes claims {claimed} bytes once decompressed")
        total += size if claimed == STORED_AS_IS else claimed
    return total


class RecordTimes(NamedTuple):
    """The times in milliseconds since 1970, in the order of the records."""

    each: memoryview
    """The times as int64."""
    oldest_ms: int
    newest_ms: int

    def first_outside(self, low_ms: int, high_ms: int) -> int | None:
        """Return the index of the first record whose time is below `low_ms` or above `high_ms`; None where there is
        none."""
        if low_ms <= self.oldest_ms and self.newest_ms <= high_ms:
            return None
        return next(index for index, time_ms in enumerate(self.each) if not low_ms <= time_ms <= high_ms)

    def count_outside(self, low_ms: int, high_ms: int) -> int:
        """Return how many such records there are."""
        if low_ms <= self.oldest_ms and self.newest_ms <= high_ms:
            return 0
        if len(self.each) <= TIMES_COUNTED_PLAINLY_MAX:
            return sum(not low_ms <= time_ms <= high_ms for time_ms in self.each)
        import numpy as np

        numbers = np.frombuffer(self.each, np.int64)
        return int(((numbers < low_ms) | (numbers > high_ms)).sum())


def times_in(column: memoryview) -> RecordTimes:
    """Return the times of one int64 for each record, one at least, in memory that need not be aligned."""
    each = column.cast("B").cast("q")
    if len(each) <= TIMES_COUNTED_PLAINLY_MAX:
        return RecordTimes(each, min(each), max(each))
    import numpy as np

    numbers = np.frombuffer(each, np.int64)
    return RecordTimes(each, int(numbers.min()), int(numbers.max()))


def read_times(header: BatchHeader, message: ArrowMessage, body: Sequence[memoryview]) -> RecordTimes:
    """Return the times of a whole batch with records; `body` is all that follows its header, in pieces.

    Raises CorruptBatchError where there is not one for each record, or they do not agree with the header.
    """
    at, size = time_buffer(message, header.compression)
    column = _slice(body, at - BATCH_HEADER_BYTES, size)
    needed = header.record_count * TIME_BYTES
    if header.compression is not Compression.NONE:
        column = _decompressed(column, needed, header.compression)
    if len(column) < needed:
        raise CorruptBatchError(f"the times of {header.record_count} records take {needed} bytes, not {len(column)}")
    times = times_in(column[:needed])
    if (header.base_timestamp_ms, header.max_timestamp_ms) != (times.each[0], times.newest_ms):
        raise CorruptBatchError(
            f"base_timestamp_ms is {header.base_timestamp_ms} and max_timestamp_ms {header.max_timestamp_ms}: the first"
            f" record's time is {times.each[0]}, the greatest {times.newest_ms}"
        )
    return times


def _slice(pieces: Sequence[memoryview], at: int, size: int) -> memoryview:
    """Return these bytes of the pieces together: a copy only where a piece ends within them."""
    found: list[memoryview] = []
    for piece in pieces:
        if at < len(piece) and size:
            found.append(piece[at : at + size])
            size -= len(found[-1])
        at = max(0, at - len(piece))
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def _decompressed(column: memoryview, needed: int, compression: Compression) -> memoryview:
    if len(column) < _I64.size:
        raise CorruptBatchError(f"the compressed times take {len(column)} bytes: they begin with their length, 8 bytes")
    (claimed,) = _I64.unpack_from(column)
    if claimed == STORED_AS_IS:
        return column[_I64.size :]
    if claimed < needed or claimed > needed + BATCH_HEADER_BYTES:
        raise CorruptBatchError(f"the times take {needed} bytes, and claim {claimed} once they are decompressed")
    import pyarrow as pa

    try:
        return memoryview(pa.decompress(column[_I64.size :], claimed, codec=_CODECS[compression])).cast("B")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptBatchError(f"the times cannot be decompressed: {error}") from error
