"""The metadata of an Arrow message, read by hand: agrees with pyarrow, and refuses each kind of nonsense by name."""

import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from headrace.core.records.arrow_message import ArrowMessage, read_message, unpacked_bytes
from headrace.core.records.columns import columns_of, decode_batch
from headrace.core.records.header import BatchHeader, Compression
from headrace.core.types import RecordContent
from tests.support.batches import RECORDS, batch_of, encoded, mislabelled, sealed

METADATA_AT = 72
PLAIN = encoded(columns_of([RecordContent(b"k", b"v" * 100, 5, (("a", b"1"),))] * 50))
ZSTD = encoded(columns_of([RecordContent(b"k", b"v" * 100, 5, (("a", b"1"),))] * 50), Compression.ZSTD)


def message_in(batch: bytes | bytearray) -> ArrowMessage:
    return read_message(memoryview(batch), len(batch))


def buffers_at(batch: bytes | bytearray) -> int:
    """Where the (offset, length) of the first buffer stand in the batch."""
    position = METADATA_AT + message_in(batch).record_batch.field(2)
    return position + int(struct.unpack_from("<I", batch, position)[0]) + 4


def first_compressed_at(batch: bytearray) -> int:
    """Where the first buffer that is not empty claims its decompressed length."""
    message = message_in(batch)
    at = next(at for at, size in message.record_batch.pairs(2) if size)
    return message.body_at + at


@given(records=st.lists(RECORDS, min_size=1, max_size=9), compression=st.sampled_from(Compression))
def test_should_read_what_pyarrow_reads(records: list[RecordContent], compression: Compression) -> None:
    batch = encoded(columns_of(records), compression)
    message = message_in(batch)
    arrows = pa.ipc.read_message(pa.py_buffer(batch[64:]))
    assert message.row_count == len(records)
    assert message.body_bytes == arrows.body.size
    assert message.body_at == METADATA_AT + arrows.metadata.size


def drop_buffers(batch: bytearray) -> None:
    table = message_in(batch).record_batch
    struct.pack_into("<H", batch, METADATA_AT + table.vtable_at + 4 + 2 * 2, 0)


def count_too_many_buffers(batch: bytearray) -> None:
    struct.pack_into("<I", batch, buffers_at(batch) - 4, 1 << 28)


def point_out_of_the_metadata(batch: bytearray) -> None:
    struct.pack_into("<I", batch, METADATA_AT + message_in(batch).record_batch.field(2), 1 << 20)


def first_buffer(at: int, size: int) -> Callable[[bytearray], None]:
    def change(batch: bytearray) -> None:
        struct.pack_into("<qq", batch, buffers_at(batch), at, size)

    return change


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (drop_buffers, "the body has 0 buffers, the schema of records has 17"),
        (count_too_many_buffers, "a vector in the body's metadata ends at byte"),
        (point_out_of_the_metadata, "points outside of itself"),
        (first_buffer(-8, 8), "a buffer of 8 bytes at -8 lies outside"),
        (first_buffer(0, -1), "a buffer of -1 bytes at 0 lies outside"),
        (first_buffer(4, 8), "a buffer of 8 bytes at 4 lies outside"),
        (first_buffer(0, 1 << 40), "a buffer of 1099511627776 bytes at 0 lies outside"),
    ],
)
def test_should_refuse_buffers_that_are_not_there(change: Callable[[bytearray], None], rule: str) -> None:
    batch = bytearray(PLAIN)
    change(batch)
    with pytest.raises(CorruptBatchError, match=rule):
        decode_batch(sealed(batch))


def test_should_count_no_rows_when_the_vtable_has_no_fields() -> None:
    batch = bytearray(batch_of(b"a"))
    struct.pack_into("<H", batch, METADATA_AT + message_in(batch).record_batch.vtable_at, 4)
    assert message_in(batch).row_count == 0


def test_should_refuse_an_unknown_codec() -> None:
    batch = bytearray(ZSTD)
    position = METADATA_AT + message_in(batch).record_batch.field(3)
    table_at = position + int(struct.unpack_from("<I", batch, position)[0])
    vtable_at = table_at - int(struct.unpack_from("<i", batch, table_at)[0])
    codec_at = table_at + int(struct.unpack_from("<H", batch, vtable_at + 4)[0])
    batch[codec_at] = 7
    with pytest.raises(CorruptBatchError, match=r"Arrow codec is 7, must be 0 \(LZ4 frame\) or 1"):
        decode_batch(sealed(batch))


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        (-2, "claims -2 bytes once decompressed"),
        (BATCH_DECOMPRESSED_BYTES_MAX, f"the limit is {BATCH_DECOMPRESSED_BYTES_MAX}"),
        ((1 << 63) - 1, f"the limit is {BATCH_DECOMPRESSED_BYTES_MAX}"),
    ],
)
def test_should_refuse_a_decompression_bomb_before_it_is_allocated(claim: int, rule: str) -> None:
    batch = bytearray(ZSTD)
    struct.pack_into("<q", batch, first_compressed_at(batch), claim)
    with pytest.raises(CorruptBatchError, match=rule):
        decode_batch(sealed(batch))


def test_should_refuse_a_compressed_buffer_without_room_for_its_length() -> None:
    batch = bytearray(ZSTD)
    first_buffer(0, 4)(batch)
    with pytest.raises(CorruptBatchError, match="a compressed buffer of 4 bytes claims"):
        decode_batch(sealed(batch))


def test_should_say_what_a_batch_is_once_it_is_decompressed() -> None:
    def unpacked(batch: bytes | bytearray) -> int:
        return unpacked_bytes(memoryview(batch), BatchHeader.unpack(batch))

    assert unpacked(PLAIN) == len(PLAIN)
    assert len(ZSTD) < 50 * 100 < unpacked(ZSTD) < len(PLAIN)
    with pytest.raises(CorruptBatchError, match="the body's compression is NONE, attributes say ZSTD"):
        unpacked(mislabelled(PLAIN))
    claiming = bytearray(ZSTD)
    struct.pack_into("<q", claiming, first_compressed_at(claiming), 1 << 40)
    assert unpacked(claiming) > 1 << 40
    first_buffer(1 << 40, 8)(claiming)
    with pytest.raises(CorruptBatchError, match="lies outside of its batch"):
        unpacked(claiming)
