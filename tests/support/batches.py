"""Batches for tests: built in one call, and sealed again after a test has changed their bytes."""

import struct
from collections.abc import Sequence

import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from headrace.core.records.arrow_message import read_message, time_buffer
from headrace.core.records.columns import RECORD_SCHEMA, columns_of, encode_batch
from headrace.core.records.header import BatchHeader, Compression
from headrace.core.types import RecordContent

TIMESTAMP_MS = 1_763_715_600_000

RECORDS = st.builds(
    RecordContent,
    key=st.none() | st.binary(max_size=12),
    value=st.none() | st.binary(max_size=40),
    timestamp_ms=st.integers(0, (1 << 63) - 1),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
)


def encoded(records: pa.RecordBatch, compression: Compression = Compression.NONE) -> bytes:
    """`encode_batch` in one piece."""
    return b"".join(encode_batch(records, compression=compression))


def batch_of(*values: bytes | None, compression: Compression = Compression.NONE) -> bytes:
    """A batch of keyless records."""
    return encoded(columns_of([RecordContent(None, value, TIMESTAMP_MS) for value in values]), compression)


def sealed(batch: bytes | bytearray) -> bytes:
    """The same bytes with both checksums made right, so that a change reaches what lies behind them."""
    whole = bytearray(batch)
    struct.pack_into("<I", whole, 20, crc32c(whole[24:]))
    struct.pack_into("<H", whole, 18, crc32c(whole[:18]) & 0xFFFF)
    return bytes(whole)


def packed(header: BatchHeader, body: bytes) -> bytes:
    """A batch with any body and a header that says how long it is; both checksums are right."""
    padded = body + bytes(-len(body) % 64)
    return sealed(header._replace(batch_bytes=64 + len(padded)).pack() + padded)


def message_of(columns: Sequence[pa.Array], schema: pa.Schema = RECORD_SCHEMA) -> bytes:
    """An Arrow record-batch message, of the schema of records or of another."""
    batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
    return bytes(memoryview(batch.serialize()).cast("B"))


def body_at(batch: bytes) -> int:
    """Where the buffers begin, behind header and metadata."""
    return 64 + 8 + int.from_bytes(batch[68:72], "little")


def poisoned(batch: bytes) -> bytes:
    """A batch whose header, lengths, checksums and times are right, and whose other buffers nobody can decode."""
    at = body_at(batch)
    times_at, size = time_buffer(read_message(memoryview(batch), len(batch)), BatchHeader.unpack(batch).compression)
    end = times_at + size
    return sealed(batch[:at] + b"\xff" * (times_at - at) + batch[times_at:end] + b"\xff" * (len(batch) - end))


def mislabelled(batch: bytes) -> bytes:
    """A batch whose attributes say ZSTD, with a body that has none."""
    return sealed(batch[:24] + bytes([batch[24] | Compression.ZSTD]) + batch[25:])


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def boastful(batch: bytes) -> bytes:
    """A ZSTD batch whose first compressed buffer says that it holds a tebibyte."""
    at = batch.index(ZSTD_MAGIC) - 8
    return sealed(batch[:at] + (1 << 40).to_bytes(8, "little") + batch[at + 8 :])
