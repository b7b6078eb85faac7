"""The conversion between Python values and the Arrow arrays of a batch: bytes, times and headers, a column at a time.

The users' values are checked here: `str` becomes UTF-8, `bytes` and None stay, Arrow columns of text or bytes are cast,
without a copy where that can be, whatever layout they have (views, dictionaries, run-end encoded, extensions that store
text or bytes). Any other type is a TypeError that names the remedy.

`pa.array` asks pandas about every value, and imports it where it is installed: 0.2 s of a client's start, and
impossible while the interpreter ends. So what `send` gathered becomes Arrow by `bytes_array` and `number_array` (and
`to_numpy` is `long_numbers` and `entry_ends`). `pyarrow.compute` would take 0.03 s.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import BatchTooLargeError
from headrace.core.limits import BATCH_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.types import RecordHeaders

HEADER_TYPE: Final = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("item", HEADER_TYPE, nullable=False))
_NO_HEADERS: Final = pa.nulls(0, HEADER_TYPE)
_BINARY: Final = pa.binary()
_TAKEN_TYPES = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_null,
)
_REMEDY = "give bytes, str (becomes UTF-8) or None; turn other values into one of these first, for example json.dumps"


def bytes_array(rows: Sequence[bytes | None], kind: pa.DataType = _BINARY) -> pa.Array:
    """Return `rows`, 2 GiB at most in all, as `binary`, or as `string` where they are UTF-8."""
    missing, valid = rows.count(None), None
    if missing:
        present = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    cells: Any = [b"" if row is None else row for row in rows] if missing else rows
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cells), np.int32, len(rows)), out=ends[1:])
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(kind, len(rows), buffers, null_count=missing)


def number_array(numbers: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> pa.Array:
    """Return an array over the same memory."""
    kind = pa.int32() if numbers.dtype == np.int32 else pa.int64()
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)], null_count=0)


def long_numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the numbers of an int64 column without nulls, over the same memory."""
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)


def entry_ends(column: pa.Array) -> npt.NDArray[np.int32]:
    """Return the offsets of a binary, string or list column's entries, and after them the end of the last one."""
    ends = column.buffers()[1]
    # An empty column need not have any.
    return np.frombuffer(ends, np.int32, len(column) + 1, 4 * column.offset) if len(column) else np.zeros(1, np.int32)


def binary_array(column: Any, name: str) -> pa.Array:
    """Return `column` (a sequence of bytes, str and None, or an Arrow, NumPy or pandas column of them) as a `binary`
    array."""
    if isinstance(column, list | tuple) and not column:
        return bytes_array(())
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = _arrow_of(column, name)
    if not any(is_taken(stored_kind(column.type)) for is_taken in _TAKEN_TYPES):
        raise TypeError(f"{name} is a column of {column.type}: {_REMEDY}")
    try:
        return entries_of(column, lambda plain: plain if plain.type == _BINARY else plain.cast(_BINARY))
    except pa.ArrowInvalid as error:
        raise _too_large(name) from error


def stored_kind(kind: pa.DataType) -> pa.DataType:
    """Return the type of the entries, below the layouts around them."""
    if isinstance(kind, pa.BaseExtensionType):
        return stored_kind(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return stored_kind(kind.value_type)
    return kind


def entries_of(column: pa.Array | pa.ChunkedArray, plain: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the column without the layouts around its entries, those as `plain` makes them: Arrow itself decodes few
    kinds.

    Raises ArrowInvalid where they are more than an array can hold.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = whole.type
    if isinstance(kind, pa.BaseExtensionType):
        return entries_of(whole.storage, plain)
    if pa.types.is_dictionary(kind):
        return entries_of(whole.dictionary, plain).take(whole.indices)
    if pa.types.is_run_end_encoded(kind):
        return entries_of(whole.values, plain).take(number_array(_runs(whole)))
    return plain(whole)


def _runs(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return, for each entry, which of the runs it belongs to."""
    places = np.arange(column.offset, column.offset + len(column))
    return np.searchsorted(column.run_ends.to_numpy(), places, side="right").astype(np.int64)


def _arrow_of(column: Any, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, np.ndarray) and column.dtype.kind in "SU":
        column = column.tolist()  # Arrow would end each text at its first NUL.
    try:
        return pa.array(column) if _is_typed(column) else pa.array(column, _BINARY)
    except pa.ArrowException as error:
        raise TypeError(f"{name}: {error}: {_REMEDY}") from error
    except UnicodeEncodeError as error:
        row = next((row for row, entry in enumerate(column) if isinstance(entry, str) and entry == error.object), None)
        raise ValueError(half_surrogate(name if row is None else f"{name} in row {row}", error)) from error


def half_surrogate(what: str, error: UnicodeEncodeError) -> str:
    """Return the sentence for text that has half of a surrogate pair, which is no character."""
    return (
        f"{what} cannot be stored as UTF-8: character {error.start} is {error.object[error.start]!a}, half of a"
        " surrogate pair; give whole characters, or bytes, for example by encode('utf-8', 'surrogatepass')"
    )


def _is_typed(column: Any) -> bool:
    """Return whether it is a NumPy or pandas column of one type: asked for `binary`, Arrow would take the raw memory of
    its entries."""
    dtype = getattr(column, "dtype", None)
    return dtype is not None and str(dtype) != "object"


def _too_large(name: str) -> BatchTooLargeError:
    return BatchTooLargeError(
        f"{name} hold more than a batch can, which is {BATCH_BYTES_MAX} bytes: send fewer records at once",
        limit=BATCH_BYTES_MAX,
    )


def timestamp_array(timestamps_ms: Any, count: int) -> pa.Array:
    """Return one time for all `count` records, or a sequence or Arrow column of them, as int64 without nulls."""
    if isinstance(timestamps_ms, int):
        return number_array(np.full(count, timestamps_ms, np.int64))
    if isinstance(timestamps_ms, pa.ChunkedArray):
        timestamps_ms = timestamps_ms.combine_chunks()
    try:
        if isinstance(timestamps_ms, pa.Array):
            array = timestamps_ms.cast(pa.int64())
        else:
            array = pa.array(timestamps_ms, pa.int64())
    except (pa.ArrowTypeError, pa.ArrowInvalid, OverflowError) as error:
        raise TypeError(f"timestamps_ms: {error}: give whole milliseconds since 1970-01-01 UTC") from error
    if array.null_count:
        raise TypeError("timestamps_ms has nulls: every record has a time")
    return array


def headers_array(headers: Sequence[Iterable[tuple[str, bytes | None]]] | pa.Array | None, count: int) -> pa.Array:
    """Return the headers of each record; None for none at all, which costs four bytes a record."""
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
        names = bytes_array([name.encode() for name, _ in pairs], pa.string())
        values = bytes_array([value.encode() if isinstance(value, str) else value for _, value in pairs])
    except UnicodeEncodeError as error:
        raise ValueError(half_surrogate("a header", error)) from error
    except (TypeError, AttributeError) as error:
        raise TypeError(f"headers: {error}: give pairs of a name (str) and a value (bytes, str or None)") from error
    items = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(number_array(offsets), items, type=HEADERS_TYPE)


def header_rows(headers: pa.Array) -> list[RecordHeaders]:
    """Return the headers of each record as tuples."""
    bounds = headers.offsets.to_pylist()
    if bounds[0] == bounds[-1]:
        return [()] * len(headers)
    items = headers.flatten()
    pairs = list(zip(items.field("name").to_pylist(), items.field("value").to_pylist(), strict=True))
    first = bounds[0]
    return [tuple(pairs[start - first : end - first]) for start, end in pairwise(bounds)]
