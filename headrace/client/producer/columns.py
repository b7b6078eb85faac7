"""The input of `send_batch`, column by column: it becomes Arrow, then batches of one partition each.

No Python runs per row here: partitions come from NumPy, rows are gathered with `take`, and batches are cut by
cumulated sizes. An iterator is taken in pieces of bounded size and never held whole; columns beside it (a list of keys,
an Arrow array of times) are cut alongside. The module is pure, except for what the caller's iterators do. The writer
calls it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.client.producer.batches import BATCH_OVERHEAD_BYTES, HEADER_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES
from headrace.client.record import as_timestamp_ms
from headrace.core.errors import LocalError
from headrace.core.records.arrays import (
    binary_array,
    entries_of,
    entry_ends,
    long_numbers,
    number_array,
    stored_kind,
    timestamp_array,
)
from headrace.core.records.columns import RECORD_SCHEMA, record_columns

ITERATOR_ROWS_MAX = 1 << 16
"""The number of rows that `send_batch` takes from an iterator at a time; fewer where they reach its bytes first."""


_TIMES_REMEDY = "give whole milliseconds since 1970-01-01 UTC, or datetimes"
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
"""The types of numbers, whose values alone say whether they are times; a duration, True and "5" are none."""
_PARTS_PER_MS = {"us": 1_000, "ns": 1_000_000}
_BLOCK_ROWS = 1 << 14
"""The number of rows whose sizes are computed together: they stay in the processor's cache."""
_MOMENTS = (date, np.datetime64)
"""The types of moments. A date alone is refused: it does not say where on Earth that day is."""
_END = object()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that `send_batch` was given, checked. They become records a piece at a time: columns that the user
    did not give (times, headers) are made for a piece only, in memory that the next piece takes over.
    """

    values: Any
    keys: Any
    """The keys, an Arrow array of binary as the values are; None: no record has a key."""
    times_ms: Any
    """One time for all records, or an Arrow array of int64."""
    headers: Any = None
    """An Arrow array of HEADERS_TYPE; None: no record has any."""

    @classmethod
    def of(cls, records: Any) -> Self:
        """Take the columns of a pyarrow.RecordBatch of RECORD_SCHEMA."""
        keys, values, times_ms, headers = records.columns
        keys = None if keys.null_count == len(keys) else keys
        return cls(values, keys, times_ms, headers if len(headers.flatten()) else None)

    def __len__(self) -> int:
        return len(self.values)

    def records(self, start: int = 0, rows: int | None = None) -> Any:
        """Return rows as a pyarrow.RecordBatch of RECORD_SCHEMA."""
        times = self.times_ms
        return record_columns(
            self.values.slice(start, rows),
            None if self.keys is None else self.keys.slice(start, rows),
            timestamps_ms=times if isinstance(times, int) else times.slice(start, rows),
            headers=None if self.headers is None else self.headers.slice(start, rows),
        )

    def pieces(self, piece_bytes: int) -> Iterator[Any]:
        """Yield the records in pieces of about this size, so that a long column never waits in memory twice."""
        nbytes = sum(column.nbytes for column in (self.values, self.keys, self.headers) if column is not None)
        rows = min(len(self), max(1, len(self) * piece_bytes // max(1, nbytes)))
        if not rows:
            return
        one_time = isinstance(self.times_ms, int)
        # Columns that the user did not give are the same in every piece.
        same = record_columns(pa.nulls(rows), timestamps_ms=self.times_ms if one_time else 0)
        for start in range(0, len(self), rows):
            values = self.values.slice(start, rows)
            keys, _, times, headers = same.slice(0, len(values)).columns
            given = [
                keys if self.keys is None else self.keys.slice(start, rows),
                values,
                times if one_time else self.times_ms.slice(start, rows),
                headers if self.headers is None else self.headers.slice(start, rows),
            ]
            yield pa.RecordBatch.from_arrays(given, schema=RECORD_SCHEMA)

    def large_rows(self, limit_bytes: int) -> list[int]:
        """Return the rows whose upper bound is above this limit."""
        found: list[int] = []
        for start in range(0, len(self), _BLOCK_ROWS):
            keys = None if self.keys is None else self.keys.slice(start, _BLOCK_ROWS)
            sizes = row_sizes(self.values.slice(start, _BLOCK_ROWS), keys)
            if self.headers is not None:
                sizes += np.diff(_header_ends(self.headers.slice(start, _BLOCK_ROWS)))
            if sizes.max() > limit_bytes:
                found += (np.flatnonzero(sizes > limit_bytes) + start).tolist()
        return found


def checked_columns(values: Any, keys: Any, timestamps_ms: Any, now_ms: int) -> Columns:
    """Return the arguments of `send_batch` as checked columns.

    Values and keys are lists, Arrow arrays or table columns, pandas Series or NumPy arrays of text or bytes;
    `timestamps_ms` is None (now), a number or a time, or a column of such. Raises TypeError for other types,
    ValueError for columns of different lengths, LocalError for times before 1970.
    """
    check_column("values", values)
    check_column("keys", keys)
    times = now_ms if timestamps_ms is None else milliseconds(timestamps_ms)
    columns = Columns(
        binary_array(values, "values"),
        None if keys is None else binary_array(keys, "keys"),
        times if isinstance(times, int) else timestamp_array(times, len(times)),
    )
    for name, column in (("keys", columns.keys), ("timestamps_ms", columns.times_ms)):
        if column is not None and not isinstance(column, int) and len(column) != len(columns):
            raise ValueError(f"{name}: {len(column)} entries for {len(columns)} values: give one for each record")
    if not isinstance(columns.times_ms, int):
        _check_times(long_numbers(columns.times_ms))
    return columns


def _check_times(times: npt.NDArray[np.int64]) -> None:
    if len(times) and times.min() < 0:
        row = int((times < 0).argmax())
        raise LocalError(
            f"timestamps_ms in row {row} is {times[row]}: it must be milliseconds since 1970-01-01 UTC, from 0"
        )


def check_column(name: str, column: Any) -> None:
    """Raise TypeError with the remedy for a record, a table or a collection where one column is needed."""
    kind = type(column)
    if column is None and name == "values":
        raise TypeError("values is None: give a column of them, for example [b'a', None] (a None in it is a tombstone)")
    if isinstance(column, (str, bytes, bytearray, memoryview)):
        remedy = "use send() for a single record" if name != "timestamps_ms" else _TIMES_REMEDY
        raise TypeError(f"{name} is one {kind.__name__}, not a column of them: {remedy}")
    if hasattr(kind, "columns"):
        raise TypeError(f"{name} is a {kind.__name__}: give one of its columns, for example df['value']")
    if isinstance(column, Mapping):
        raise TypeError(f"{name} is a {kind.__name__}: give a column, for example list(d.values()) or d['value']")
    if isinstance(column, (set, frozenset)):
        raise TypeError(f"{name} is a {kind.__name__}, which has no order: give a list, for example sorted(s)")


def milliseconds(timestamps_ms: Any) -> Any:
    """Return one time for all as int, a column of times as an Arrow array of int64, one of numbers as an Arrow array.

    Python's datetimes without a zone are local time; those of Arrow, NumPy and pandas without a zone are UTC.
    """
    check_column("timestamps_ms", timestamps_ms)
    if not isinstance(timestamps_ms, Iterable):
        return as_timestamp_ms(timestamps_ms, "timestamps_ms")
    times = _times(timestamps_ms)
    kind = times.type
    if not isinstance(kind, pa.BaseExtensionType):  # The stored numbers of pandas' periods are no times.
        kind = stored_kind(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments_ms(entries_of(times, lambda plain: plain))
    if any(is_number(kind) for is_number in _NUMBERS):
        return entries_of(times, lambda plain: plain)
    raise TypeError(f"timestamps_ms is a column of {times.type}: {_TIMES_REMEDY}")


def _moments_ms(moments: Any) -> Any:
    """Return milliseconds, rounded down. Raises LocalError for times that 64 bits of milliseconds do not hold."""
    kind = moments.type
    parts = _PARTS_PER_MS.get(kind.unit) if pa.types.is_timestamp(kind) else None
    if parts is not None:
        return number_array(long_numbers(timestamp_array(moments, len(moments))) // parts)
    try:
        return moments.cast(pa.timestamp("ms", getattr(kind, "tz", None))).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise LocalError(f"timestamps_ms: {error}: it must be times since 1970-01-01 UTC") from error


def _times(column: Any) -> Any:
    """Return any column of times as an Arrow column."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    if not isinstance(column, Sized):
        column = list(column)
    dtype = str(getattr(column, "dtype", "object"))
    if dtype == "object" and isinstance(next((time for time in column if time is not None), None), _MOMENTS):
        # Arrow would take local times for UTC.
        rows = enumerate(column)
        return pa.array([as_timestamp_ms(time, f"timestamps_ms in row {row}") for row, time in rows], pa.int64())
    if dtype.startswith("datetime64") and isinstance(column, np.ndarray):
        column = _known_unit(column)
    try:
        return pa.array(column)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"timestamps_ms: {error}: {_TIMES_REMEDY}") from error


def _known_unit(moments: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
    """Return moments in milliseconds: Arrow knows no hours or weeks. Raises LocalError if NumPy would wrap around."""
    whole = moments.astype("datetime64[ms]")
    unit, _ = np.datetime_data(moments.dtype)
    if (
        unit not in ("us", "ns", "ps", "fs", "as")
        and (whole.astype(moments.dtype) != moments)[~np.isnat(moments)].any()
    ):
        raise LocalError(f"timestamps_ms has a time that milliseconds in 64 bits do not hold: {_TIMES_REMEDY}")
    return whole


def row_sizes(values: Any, keys: Any) -> npt.NDArray[np.int64]:
    """Return an upper bound of the bytes that each row without headers adds to its batch."""
    sizes = np.full(len(values), ROW_OVERHEAD_BYTES, np.int64)
    for column in (values, keys):
        if column is not None and column.null_count < len(column):
            sizes += np.diff(entry_ends(column))
    return sizes


def by_partition(records: Any, partitions: npt.NDArray[Any]) -> Iterator[tuple[int, Any]]:
    """Yield `records` by partition: one batch for each partition that occurs, with the rows in their old order."""
    order = np.argsort(partitions, kind="stable")
    gathered, sorted_partitions = records.take(number_array(order)), partitions[order]
    starts = np.flatnonzero(np.diff(sorted_partitions, prepend=sorted_partitions[0] - 1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(sorted_partitions[start]), gathered.slice(int(start), int(end - start))


def cut(records: Any, batch_bytes: int) -> Iterator[tuple[Any, int]]:
    """Yield `records` in slices whose upper bound, header included, is at most `batch_bytes`, with that bound.

    A single row over the limit comes alone, with a bound over the limit: the caller refuses it by its exact size.
    """
    bounds = _bounds(records)
    ends = range(records.num_rows + 1)
    start = 0
    while start < records.num_rows:
        before = bounds(start)
        room = before + batch_bytes - BATCH_OVERHEAD_BYTES
        end = max(start + 1, bisect_right(ends, room, lo=start, key=bounds) - 1)
        yield records.slice(start, end - start), bounds(end) - before + BATCH_OVERHEAD_BYTES
        start = end


def _bounds(records: Any) -> Callable[[int], int]:
    """Return the upper bound of all rows before a row, from the ends that Arrow has: no length is ever computed."""
    ends_of: list[Any] = [_ends(records.column("value")), _ends(records.column("key"))]
    headers = records.column("headers")
    if len(headers.flatten()):
        ends_of.append(_header_ends(headers))
    known = [ends for ends in ends_of if ends is not None]

    def bound(row: int) -> int:
        return sum(int(ends[row]) for ends in known) + row * ROW_OVERHEAD_BYTES

    return bound


def _header_ends(column: Any) -> npt.NDArray[np.int64]:
    """Return the upper bound of the headers' bytes of all rows before each row, and at last of all rows."""
    entries = column.values
    before = np.zeros(len(entries) + 1, np.int64)
    for name in ("name", "value"):
        ends = entry_ends(entries.field(name))
        before += ends - ends[0]
    before += np.arange(len(before)) * HEADER_OVERHEAD_BYTES
    of_rows: npt.NDArray[np.int64] = before[entry_ends(column)]
    return of_rows


def _ends(column: Any) -> memoryview | None:
    """Return the begin of each entry of a binary column, and at last the end of all; None for a column of nulls."""
    if column.null_count == len(column):
        return None
    return memoryview(column.buffers()[1]).cast("B").cast("i")[column.offset :]


def is_iterated(column: Any) -> bool:
    """Return whether `column` gives entries one by one: a generator, a map, a dictionary's view; no list, no array."""
    return isinstance(column, Iterable) and not hasattr(column, "__getitem__")


def column_pieces(values: Any, keys: Any, timestamps_ms: Any, *, piece_bytes: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield `values`, `keys` and `timestamps_ms` in pieces of equal lengths.

    Raises ValueError where one ends before the others; the pieces before have been given out by then.
    """
    check_column("values", values)
    check_column("keys", keys)
    check_column("timestamps_ms", timestamps_ms)
    if timestamps_ms is not None and not is_iterated(timestamps_ms):
        timestamps_ms = milliseconds(timestamps_ms)
    values, keys = (
        column if column is None or is_iterated(column) else binary_array(column, name)
        for name, column in (("values", values), ("keys", keys))
    )
    # A number is the time of all records, and None is no column: both stay as they are.
    beside = {"keys": keys, "timestamps_ms": timestamps_ms}
    taken = {name: _entries(column) for name, column in beside.items() if isinstance(column, Iterable)}
    entries = _entries(values)
    while piece := _some(entries, piece_bytes):
        cut = {name: list(islice(others, len(piece))) for name, others in taken.items()}
        for name, others in cut.items():
            if len(others) != len(piece):
                raise ValueError(f"{name} ended before values did: give one for each record")
        yield piece, cut.get("keys", keys), cut.get("timestamps_ms", timestamps_ms)
    for name, rest in taken.items():
        if next(rest, _END) is not _END:
            raise ValueError(f"values ended before {name} did: give one for each record")


def _some(entries: Iterator[Any], piece_bytes: int) -> list[Any]:
    """Return the next entries: `ITERATOR_ROWS_MAX`, or fewer where they have `piece_bytes` before that."""
    piece: list[Any] = []
    size = 0
    for entry in islice(entries, ITERATOR_ROWS_MAX):
        piece.append(entry)
        size += len(entry) if isinstance(entry, (bytes, str)) else 0
        if size >= piece_bytes:
            break
    return piece


def _entries(column: Any) -> Iterator[Any]:
    """Return the entries of a column as Python values."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        return iter(column)
    starts = range(0, len(column), ITERATOR_ROWS_MAX)
    return (entry for start in starts for entry in column.slice(start, ITERATOR_ROWS_MAX).to_pylist())
