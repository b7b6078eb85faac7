"""`send_batch`'s input where an iterator gives it: taken in pieces of bounded size, never held whole.

Columns beside an iterator (a list of keys, an Arrow array of times) are cut alongside. Pure, but for what the caller's
iterators do when they are asked.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from headrace.client.columns import check_column, milliseconds
from headrace.core.limits import ITERATOR_ROWS_MAX
from headrace.core.records.arrays import binary_array

_END = object()


def is_iterated(column: Any) -> bool:
    """Whether `column` gives its entries one by one: a generator, a map, a dictionary's view; no list and no array."""
    return isinstance(column, Iterable) and not hasattr(column, "__getitem__")


def column_pieces(values: Any, keys: Any, timestamps_ms: Any, *, piece_bytes: int) -> Iterator[tuple[Any, Any, Any]]:
    """`values`, `keys` and `timestamps_ms` in pieces of equal lengths.

    Raises ValueError where one ends before the others; what came before has been given out by then.
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
    """The next entries: `ITERATOR_ROWS_MAX`, or fewer where they have `piece_bytes` before."""
    piece: list[Any] = []
    size = 0
    for entry in islice(entries, ITERATOR_ROWS_MAX):
        piece.append(entry)
        size += len(entry) if isinstance(entry, (bytes, str)) else 0
        if size >= piece_bytes:
            break
    return piece


def _entries(column: Any) -> Iterator[Any]:
    """As Python values."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        return iter(column)
    starts = range(0, len(column), ITERATOR_ROWS_MAX)
    return (entry for start in starts for entry in column.slice(start, ITERATOR_ROWS_MAX).to_pylist())
