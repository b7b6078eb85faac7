"""What is sent: records of 100 bytes, as columns and as batches that are encoded once."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.records.columns import encode_batch, record_columns

VALUE_BYTES = 100
BATCH_RECORDS = 9_000
"""About 1 MiB a batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    buffers: tuple[Any, ...]
    """As `encode_batch` gives them: bytes-like, header first."""
    records: int


def values(count: int) -> pa.Array:
    """`count` values of VALUE_BYTES random bytes, as one Arrow column."""
    data = np.random.default_rng(count).integers(0, 256, count * VALUE_BYTES, dtype=np.uint8)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(VALUE_BYTES), count, [None, pa.py_buffer(data)])
    return fixed.cast(pa.binary())


def batch(records: int) -> Batch:
    columns = record_columns(values(records), timestamps_ms=time.time_ns() // 1_000_000)
    return Batch(tuple(encode_batch(columns)), records)
