"""Batches as the columns that Spark is given, without a step per row.

Keys and values stay where the network has put them; offsets, times and headers are made anew a column at a time; what
is the same in every record (topic, partition) is made once, and sliced. Small batches are joined until they are worth
one of Spark's; large ones are cut. Called in Spark's Python workers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.limits import SPARK_BYTES_GATHERED, SPARK_ROWS_GATHERED, SPARK_ROWS_MAX
from headrace.core.records.arrays import bytes_array, long_numbers, number_array
from headrace.core.records.columns import DecodedBatch
from headrace.spark.offsets import Partition

CREATE_TIME, LOG_APPEND_TIME = 0, 1
_US_PER_MS = 1000
_MS_MAX = (2**63 - 1) // _US_PER_MS
"""Later times than Spark has are the last that it has: the year 294247."""


class Rows:
    """Some records in a row, of one partition and one type of time."""

    def __init__(self, partition: Partition, batches: Sequence[DecodedBatch]) -> None:
        self.partition = partition
        self._batches = batches
        self.count = sum(len(batch.offsets) for batch in batches)

    def raw(self, index: int) -> Any:
        """The column of RECORD_SCHEMA; of one batch it is not copied."""
        pieces = [batch.records.column(index) for batch in self._batches]
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    @property
    def offsets(self) -> Any:
        pieces = [batch.offsets for batch in self._batches]
        return number_array(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))

    @property
    def timestamps(self) -> Any:
        times = long_numbers(self.raw(2))
        if any(batch.header.max_timestamp_ms > _MS_MAX for batch in self._batches):
            times = np.minimum(times, _MS_MAX)
        micros = pa.py_buffer(np.multiply(times, _US_PER_MS))
        return pa.Array.from_buffers(pa.timestamp("us", "UTC"), self.count, [None, micros], null_count=0)

    def headers(self, kind: Any) -> Any:
        """The same bytes under the names that Spark has for them."""
        stored = self.raw(3)
        items = stored.values
        pairs = pa.StructArray.from_arrays([items.field(0), items.field(1)], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(stored.offsets, pairs, type=kind)

    @property
    def time_type(self) -> int:
        return LOG_APPEND_TIME if self._batches[0].header.has_append_time else CREATE_TIME

    def constant(self, value: str | int) -> Any:
        return _repeated(value)[: self.count]


@lru_cache(maxsize=64)
def _repeated(value: str | int) -> Any:
    """Without `pa.repeat`: it would load pandas, 0.2 s of a worker's first task."""
    if isinstance(value, int):
        return number_array(np.full(SPARK_ROWS_MAX, value, np.int32))
    return bytes_array([value.encode()] * SPARK_ROWS_MAX, pa.string())


Maker = Callable[[Rows], Any]


def maker_of(name: str, kind: Any) -> Maker:
    """What makes the column of that name, of this Arrow type."""
    makers: dict[str, Maker] = {
        "key": lambda rows: rows.raw(0),
        "value": lambda rows: rows.raw(1),
        "topic": lambda rows: rows.constant(rows.partition.topic),
        "partition": lambda rows: rows.constant(rows.partition.number),
        "offset": lambda rows: rows.offsets,
        "timestamp": lambda rows: rows.timestamps,
        "timestampType": lambda rows: rows.constant(rows.time_type),
        "headers": lambda rows: rows.headers(kind),
    }
    return makers[name]


def gathered(partition: Partition, batches: Iterable[DecodedBatch]) -> Iterator[Rows]:
    """As they come, joined and cut to what Spark takes at a time."""
    waiting: list[DecodedBatch] = []
    rows = size = 0
    for batch in _cut(batches):
        count = len(batch.offsets)
        if waiting and (rows + count > SPARK_ROWS_MAX or _differ(waiting[0], batch)):
            yield Rows(partition, waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += count
        size += batch.header.batch_bytes
        if rows >= SPARK_ROWS_GATHERED or size >= SPARK_BYTES_GATHERED:
            yield Rows(partition, waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield Rows(partition, waiting)


def _differ(one: DecodedBatch, other: DecodedBatch) -> bool:
    return one.header.has_append_time != other.header.has_append_time


def _cut(batches: Iterable[DecodedBatch]) -> Iterator[DecodedBatch]:
    for batch in batches:
        for first in range(0, len(batch.offsets), SPARK_ROWS_MAX):
            offsets = batch.offsets[first : first + SPARK_ROWS_MAX]
            yield DecodedBatch(batch.header, batch.records.slice(first, len(offsets)), offsets)
