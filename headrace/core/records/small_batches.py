"""Small batches without Arrow: the same bytes as `columns.encode_batch` gives, in a third of the time, and read again.

A producer that waits for each record sends batches of one, and making four arrays and a message of them takes pyarrow
longer than all else that a client does for it. The message's metadata has the same layout for all such batches: pyarrow
makes it once, with and without keys, and the numbers in it (rows, nulls, the place of each buffer) are written over.
Only rows without headers, null values, or keys here and there; all else is for `columns`. Producers use it, and
coordinators of groups, which write a batch for each decision, and read them all when they begin.
"""

import struct
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_HEADER_BYTES
from headrace.core.records.arrays import headers_array
from headrace.core.records.arrow_message import NumberPlaces, number_places
from headrace.core.records.columns import RECORD_SCHEMA, plain_header, sealed
from headrace.core.records.header import NOT_IDEMPOTENT, BatchHeader, ProducerNumbers
from headrace.core.records.raw import batch_crc

FEW_ROWS_MAX = 64
FEW_ROWS_BYTES_MAX = 64 << 10
"""The size up to which batches are encoded without Arrow: above, its columns are faster."""


_BUFFER_ALIGNMENT_BYTES = 8
_I64 = struct.Struct("<q")
_NODES = struct.Struct("<14q")
_BUFFERS = struct.Struct("<34q")
_NO_ITEMS = (0, 0) * 3
_NO_NODES = (0,) * 14
_NO_BUFFERS = (0,) * 34
_ONE_END = bytes(4)


class _Template(NamedTuple):
    """The metadata of a message, prefix included, and where the numbers stand in it."""

    metadata: bytes
    places: NumberPlaces


def are_few(values: Sequence[bytes | None], keys: Sequence[bytes | None], size_bytes: int) -> bool:
    """Return whether `encode_rows` takes them: `keys` is empty, or has one for each."""
    return len(values) <= FEW_ROWS_MAX and size_bytes <= FEW_ROWS_BYTES_MAX and None not in values and None not in keys


def encode_rows(
    values: Sequence[bytes],
    keys: Sequence[bytes],
    times_ms: Sequence[int],
    numbers: ProducerNumbers = NOT_IDEMPOTENT,
) -> list[bytes | memoryview]:
    """Return a whole batch, not yet stamped, of records that `are_few`."""
    count = len(values)
    header = plain_header(count, times_ms[0], max(times_ms), numbers)
    # The batch is in one piece: each buffer costs its senders more than the copy.
    return [b"".join(sealed(header, _message(_columns(count, values, keys, times_ms), count, has_keys=bool(keys))))]


def decode_rows(batch: memoryview, header: BatchHeader) -> tuple[list[bytes], list[bytes]] | None:
    """Return keys and values of a whole batch that `encode_rows` has made, with keys; None of any other.

    Raises CorruptBatchError where the bytes were damaged.
    """
    template = _template(has_keys=True)
    places = template.places
    metadata = bytearray(batch[BATCH_HEADER_BYTES : BATCH_HEADER_BYTES + len(template.metadata)])
    if header.attributes or len(metadata) < len(template.metadata):
        return None
    nodes, buffers = _NODES.unpack_from(metadata, places.nodes), _BUFFERS.unpack_from(metadata, places.buffers)
    null_counts = nodes[1], nodes[3]
    if any(null_counts) or _blank(metadata, places) != _blank(bytearray(template.metadata), places):
        return None
    if batch_crc(batch, [batch[BATCH_HEADER_BYTES:]]) != header.crc32c:
        raise CorruptBatchError(f"crc32c is {header.crc32c:#010x}, the bytes give another one: the bytes were damaged")
    body = batch[BATCH_HEADER_BYTES + len(metadata) :]
    count = header.record_count
    return _cells(body, buffers[2:6], count), _cells(body, buffers[8:12], count)


def _blank(metadata: bytearray, places: NumberPlaces) -> bytearray:
    """Blank the numbers, in place."""
    _I64.pack_into(metadata, places.body_bytes, 0)
    _I64.pack_into(metadata, places.rows, 0)
    _NODES.pack_into(metadata, places.nodes, *_NO_NODES)
    _BUFFERS.pack_into(metadata, places.buffers, *_NO_BUFFERS)
    return metadata


def _cells(body: memoryview, places: tuple[int, ...], count: int) -> list[bytes]:
    """Return the cells of one column, by where its ends and its bytes lie."""
    ends_at, _, data_at, data_bytes = places
    ends = struct.unpack_from(f"<{count + 1}i", body, ends_at)
    data = bytes(body[data_at : data_at + data_bytes])
    return [data[start:end] for start, end in pairwise(ends)]


def _columns(count: int, values: Sequence[bytes], keys: Sequence[bytes], times_ms: Sequence[int]) -> tuple[bytes, ...]:
    """Return the 17 buffers in the order of RECORD_SCHEMA: validity (nothing where all are valid), ends, bytes."""
    nothing = bytes(4 * (count + 1))
    key = (b"", _ends(keys), b"".join(keys)) if keys else (bytes((count + 7) // 8), nothing, b"")
    times = struct.pack(f"<{count}q", *times_ms)
    headers = (b"", nothing, b"", b"", _ONE_END, b"", b"", _ONE_END, b"")
    return (*key, b"", _ends(values), b"".join(values), b"", times, *headers)


def _ends(cells: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, cells), initial=0))


def _message(columns: tuple[bytes, ...], count: int, *, has_keys: bool) -> bytes:
    template = _template(has_keys=has_keys)
    places: list[int] = []
    body: list[bytes] = []
    at = 0
    for column in columns:
        size = len(column)
        places += (at, size)
        padding = -size % _BUFFER_ALIGNMENT_BYTES
        body += (column, bytes(padding))
        at += size + padding
    metadata = bytearray(template.metadata)
    keyless = 0 if has_keys else count
    _I64.pack_into(metadata, template.places.body_bytes, at)
    _I64.pack_into(metadata, template.places.rows, count)
    _NODES.pack_into(metadata, template.places.nodes, count, keyless, count, 0, count, 0, count, 0, *_NO_ITEMS)
    _BUFFERS.pack_into(metadata, template.places.buffers, *places)
    return b"".join((metadata, *body))


@cache
def _template(*, has_keys: bool) -> _Template:
    cell = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(_ends([b"0"])), pa.py_buffer(b"0")])
    time = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(_I64.size))])
    columns = [cell if has_keys else pa.nulls(1, pa.binary()), cell, time, headers_array(None, 1)]
    message = memoryview(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA).serialize()).cast("B")
    places = number_places(message)
    (body_bytes,) = _I64.unpack_from(message, places.body_bytes)
    return _Template(bytes(message[: len(message) - body_bytes]), places)
