"""Between Python values and the Arrow arrays of a batch: bytes, times and headers, a column at a time.

What users hand over is checked here: `str` becomes UTF-8, `bytes` and None stay, Arrow columns of text or bytes are
cast, without a copy where that can be. Any other type is a TypeError that says what to do.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import BatchTooLargeError
from headrace.core.limits import BATCH_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.records.record import RecordHeaders

HEADER_TYPE: Final = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("item", HEADER_TYPE, nullable=False))
# Not by `pa.array`, which would load pandas where that is installed: half a second of every client's start.
_NO_HEADERS: Final = pa.nulls(0, HEADER_TYPE)
_TAKEN_TYPES = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)
_REMEDY = "give bytes, str (becomes UTF-8) or None; turn other values into one of these first, for example json.dumps"


def binary_array(column: Any, name: str) -> pa.Array:
    """`column` (a sequence of bytes, str and None, or an Arrow, NumPy or pandas column of them) as a `binary` array."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        try:
            column = pa.array(column) if _is_typed(column) else pa.array(column, pa.binary())
        except pa.ArrowException as error:
            raise TypeError(f"{name}: {error}: {_REMEDY}") from error
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_taken(kind) for is_taken in _TAKEN_TYPES):
        raise TypeError(f"{name} is a column of {column.type}: {_REMEDY}")
    try:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return whole if whole.type == pa.binary() else whole.cast(kind).cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise _too_large(name) from error


def _is_typed(column: Any) -> bool:
    """A NumPy or pandas column of one type: asked for `binary`, Arrow would take the raw memory of its entries."""
    dtype = getattr(column, "dtype", None)
    return dtype is not None and str(dtype) != "object"


def _too_large(name: str) -> BatchTooLargeError:
    return BatchTooLargeError(
        f"{name} hold more than a batch can, which is {BATCH_BYTES_MAX} bytes: send fewer records at once",
        limit=BATCH_BYTES_MAX,
    )


def timestamp_array(timestamps_ms: Any, count: int) -> pa.Array:
    """One time for all `count` records, or a sequence or Arrow column of them, as int64 without nulls."""
    if isinstance(timestamps_ms, int):
        return pa.array(np.full(count, timestamps_ms, np.int64))
    if isinstance(timestamps_ms, pa.ChunkedArray):
        timestamps_ms = timestamps_ms.combine_chunks()
    try:
        array = pa.array(timestamps_ms, pa.int64())
    except (pa.ArrowTypeError, pa.ArrowInvalid, OverflowError) as error:
        raise TypeError(f"timestamps_ms: {error}: give whole milliseconds since 1970-01-01 UTC") from error
    if array.null_count:
        raise TypeError("timestamps_ms has nulls: every record has a time")
    return array


def headers_array(headers: Sequence[Iterable[tuple[str, bytes | None]]] | pa.Array | None, count: int) -> pa.Array:
    """The headers of each record; None for none at all, which costs four bytes a record."""
    if headers is None:
        offsets = pa.py_buffer(np.zeros(count + 1, np.int32))
        return pa.Array.from_buffers(HEADERS_TYPE, count, [None, offsets], null_count=0, children=[_NO_HEADERS])
    if isinstance(headers, pa.Array):
        return headers.cast(HEADERS_TYPE)
    rows = [tuple(row) for row in headers]
    sizes = [len(row) for row in rows]
    if max(sizes, default=0) > RECORD_HEADERS_MAX:
        raise ValueError(f"a record has {max(sizes)} headers, at most {RECORD_HEADERS_MAX} are allowed")
    pairs = list(chain.from_iterable(rows))
    try:
        names = pa.array([name for name, _ in pairs], pa.string())
        values = pa.array([value for _, value in pairs], pa.binary())
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise TypeError(f"headers: {error}: give pairs of a name (str) and a value (bytes, str or None)") from error
    if names.null_count:
        raise TypeError("headers: a name is None: every header has a name")
    items = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes, dtype=np.int32))), pa.int32())
    return pa.ListArray.from_arrays(offsets, items, type=HEADERS_TYPE)


def header_rows(headers: pa.Array) -> list[RecordHeaders]:
    """The headers of each record as tuples."""
    bounds = headers.offsets.to_pylist()
    if bounds[0] == bounds[-1]:
        return [()] * len(headers)
    items = headers.flatten()
    pairs = list(zip(items.field("name").to_pylist(), items.field("value").to_pylist(), strict=True))
    first = bounds[0]
    return [tuple(pairs[start - first : end - first]) for start, end in pairwise(bounds)]
