"""The decoded batches that a consumer hands out: as columns with their place, or as records. Pure.

`allocate` gives the memory into which sessions receive batches, so that they are decoded where they lie. Keys and
values are never copied.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.client.record import Record, TopicPartition
from headrace.core.records.arrays import HEADERS_TYPE, bytes_array, header_rows, number_array
from headrace.core.records.columns import DecodedBatch

CONSUMED_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("headers", HEADERS_TYPE, nullable=False),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
"""The columns of `Consumer.batches()`; each RecordBatch comes from one partition, by ascending offset."""


def allocate(nbytes: int) -> memoryview:
    """Return memory for batches from the network, aligned as Arrow wants it: they are decoded where they are.

    Arrow's allocator takes the memory back and gives it out again. The system's allocator would give new memory each
    time, with a page fault for every 4 KiB.
    """
    return memoryview(pa.allocate_buffer(nbytes)).cast("B")


def between(batch: DecodedBatch, start: int, end: int | None) -> DecodedBatch:
    """Return only the records from `start` on and below `end` (None: to the end of the batch)."""
    batch = batch.since(start)
    if end is None:
        return batch
    rows = int(np.searchsorted(batch.offsets, end))
    if rows == len(batch.offsets):
        return batch
    return DecodedBatch(batch.header, batch.records.slice(0, rows), batch.offsets[:rows])


def columns(partition: TopicPartition, batch: DecodedBatch) -> Any:
    """A pyarrow.RecordBatch of CONSUMED_SCHEMA; keys and values are not copied."""
    rows = batch.records.num_rows
    zeros = number_array(np.zeros(rows, np.int32))
    topic = bytes_array([partition.topic.encode()], pa.string())
    place = [
        pa.DictionaryArray.from_arrays(zeros, topic),
        number_array(np.full(rows, partition.partition, np.int32)),
        number_array(batch.offsets),
    ]
    return pa.RecordBatch.from_arrays([*batch.records.columns, *place], schema=CONSUMED_SCHEMA)


def records(partition: TopicPartition, batch: DecodedBatch) -> Iterator[Record]:
    """Return the records one by one; the tuples are built in C."""
    keys, values, times, headers = batch.records.columns
    return map(
        Record,
        repeat(partition.topic),
        repeat(partition.partition),
        batch.offsets.tolist(),
        times.to_pylist(),
        keys.to_pylist(),
        values.to_pylist(),
        header_rows(headers),
    )
