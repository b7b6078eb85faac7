"""`send_batch`'s input, column by column: whatever users hold becomes Arrow, then batches of one partition each.

No Python runs per row here: partitions come from NumPy, rows are gathered with `take`, batches are cut by cumulated
sizes. Called by `headrace.client.producer`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.batches import BATCH_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES
from headrace.client.values import as_timestamp_ms
from headrace.core.errors import LocalError
from headrace.core.records.columns import record_columns

_TIMES_REMEDY = "give whole milliseconds since 1970-01-01 UTC, or datetimes"
_MOMENTS = (date, np.datetime64)
"""A date alone is refused: it does not say where on Earth that day is."""


def batch_columns(values: Any, keys: Any, timestamps_ms: Any, now_ms: int) -> Any:
    """The columns of `send_batch` as one pyarrow.RecordBatch of RECORD_SCHEMA.

    Values and keys are lists, Arrow arrays or table columns, pandas Series or NumPy arrays of text or bytes;
    `timestamps_ms` is None (now), a number or a time, or a column of such. Raises TypeError for other types,
    ValueError for columns of different lengths, LocalError for times before 1970.
    """
    check_column("values", values)
    check_column("keys", keys)
    times = now_ms if timestamps_ms is None else milliseconds(timestamps_ms)
    records = record_columns(values, keys, timestamps_ms=times)
    _check_times(records.column("timestamp_ms").to_numpy())
    return records


def _check_times(times: npt.NDArray[np.int64]) -> None:
    if len(times) and times.min() < 0:
        row = int((times < 0).argmax())
        raise LocalError(
            f"timestamps_ms in row {row} is {times[row]}: it must be milliseconds since 1970-01-01 UTC, from 0"
        )


def check_column(name: str, column: Any) -> None:
    """Raises TypeError with the remedy for a record, a table or a collection where one column is needed."""
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
    """One time for all as int; a column of times as an Arrow array of int64, one of numbers as an Arrow array.

    Datetimes without a zone are local time, as Python has it; without a zone Arrow's, NumPy's and pandas' are UTC.
    """
    check_column("timestamps_ms", timestamps_ms)
    if not isinstance(timestamps_ms, Iterable):
        return as_timestamp_ms(timestamps_ms, "timestamps_ms")
    times = _times(timestamps_ms)
    if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type)):
        return times
    return times.cast(pa.timestamp("ms", getattr(times.type, "tz", None)), safe=False).cast(pa.int64())


def _times(column: Any) -> Any:
    """An Arrow column of timestamps, days or numbers."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    dtype = str(getattr(column, "dtype", "object"))
    if dtype == "object" and isinstance(next((time for time in column if time is not None), None), _MOMENTS):
        # Arrow would take local times for UTC.
        rows = enumerate(column)
        return pa.array([as_timestamp_ms(time, f"timestamps_ms in row {row}") for row, time in rows], pa.int64())
    if dtype.startswith("datetime64") and isinstance(column, np.ndarray):
        column = column.astype("datetime64[ms]")  # Arrow knows no hours and no weeks.
    try:
        return pa.array(column)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(f"timestamps_ms: {error}: {_TIMES_REMEDY}") from error


def row_sizes(records: Any) -> npt.NDArray[np.int64]:
    """Upper bound of what each row of a RECORD_SCHEMA batch without headers adds to its batch."""
    sizes = np.full(records.num_rows, ROW_OVERHEAD_BYTES, np.int64)
    for name in ("key", "value"):
        lengths = pc.fill_null(pc.binary_length(records.column(name)), 0)
        sizes += lengths.to_numpy(zero_copy_only=False)
    return sizes


def pieces(records: Any, piece_bytes: int) -> Iterator[Any]:
    """`records` in slices of about this size, so that a long column never waits in memory twice."""
    rows = max(1, records.num_rows * piece_bytes // max(1, records.nbytes))
    return (records.slice(start, rows) for start in range(0, records.num_rows, rows))


def by_partition(records: Any, partitions: npt.NDArray[Any]) -> Iterator[tuple[int, Any]]:
    """`records` sorted apart: one batch per partition that occurs, rows in their old order."""
    order = np.argsort(partitions, kind="stable")
    gathered, sorted_partitions = records.take(pa.array(order)), partitions[order]
    starts = np.flatnonzero(np.diff(sorted_partitions, prepend=sorted_partitions[0] - 1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(sorted_partitions[start]), gathered.slice(int(start), int(end - start))


def cut(records: Any, batch_bytes: int) -> Iterator[tuple[Any, int]]:
    """`records` in slices whose upper bound, header included, is at most `batch_bytes`, with that bound.

    A single row over the limit comes alone, with a bound over the limit: the caller refuses it by its exact size.
    """
    ends = np.cumsum(row_sizes(records))
    start, taken = 0, 0
    while start < records.num_rows:
        room = taken + batch_bytes - BATCH_OVERHEAD_BYTES
        end = max(start + 1, int(np.searchsorted(ends, room, side="right")))
        yield records.slice(start, end - start), int(ends[end - 1]) - taken + BATCH_OVERHEAD_BYTES
        start, taken = end, int(ends[end - 1])
