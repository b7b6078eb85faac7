"""`send_batch`'s input, column by column: whatever users hold becomes Arrow, then batches of one partition each.

No Python runs per row here: partitions come from NumPy, rows are gathered with `take`, batches are cut by cumulated
sizes. Called by `headrace.client.producer`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.batches import BATCH_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES
from headrace.core.errors import LocalError
from headrace.core.records.columns import record_columns


def batch_columns(values: Any, keys: Any, timestamps_ms: Any, now_ms: int) -> Any:
    """The columns of `send_batch` as one pyarrow.RecordBatch of RECORD_SCHEMA.

    Values and keys are lists, Arrow arrays or table columns, pandas Series or NumPy arrays of text or bytes;
    `timestamps_ms` is None (now), a number, or a column of numbers or of times. Raises TypeError for other types,
    ValueError for columns of different lengths, LocalError for times before 1970.
    """
    refuse_single("values", values)
    refuse_single("keys", keys)
    times = now_ms if timestamps_ms is None else _milliseconds(timestamps_ms)
    records = record_columns(values, keys, timestamps_ms=times)
    _check_times(records.column("timestamp_ms").to_numpy())
    return records


def _check_times(times: npt.NDArray[np.int64]) -> None:
    if len(times) and times.min() < 0:
        row = int((times < 0).argmax())
        raise LocalError(
            f"timestamps_ms in row {row} is {times[row]}: it must be milliseconds since 1970-01-01 UTC, from 0"
        )


def refuse_single(name: str, column: Any) -> None:
    """Raises TypeError for a record where a column of them is needed."""
    if column is None and name == "values":
        raise TypeError("values is None: give a column of them, for example [b'a', None] (a None in it is a tombstone)")
    if isinstance(column, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} is one {type(column).__name__}, not a column of them: use send() for a single record")


def _milliseconds(timestamps_ms: Any) -> Any:
    """Columns of times (Arrow timestamps, pandas datetimes) as int64 milliseconds; all else as it is."""
    if isinstance(timestamps_ms, int):
        return timestamps_ms
    times = timestamps_ms if isinstance(timestamps_ms, pa.ChunkedArray) else pa.array(timestamps_ms)
    if not pa.types.is_timestamp(times.type):
        return times
    return times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())


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
