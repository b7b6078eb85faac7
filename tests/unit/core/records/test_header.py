"""The 64-byte header: layout, checksums, and every rule that a header can break.

Counting batches: as whole headers would be counted, and not beyond what the buffer holds.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from headrace.core.records.header import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    MAGIC,
    NO_PRODUCER,
    SPARSE_BIT,
    BatchHeader,
    BatchRun,
    Compression,
    skim_batches,
    stamp,
)
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from tests.support.batches import sealed

I16, I32, I64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
HEADER = BatchHeader(
    base_offset=Offset(7),
    leader_epoch=LeaderEpoch(3),
    batch_bytes=704,
    magic=MAGIC,
    crc32c=0xDEADBEEF,
    attributes=Compression.ZSTD,
    producer_epoch=-1,
    last_offset_delta=9,
    record_count=10,
    base_sequence=-1,
    base_timestamp_ms=1000,
    max_timestamp_ms=2000,
    producer_id=-1,
)


@st.composite
def headers(draw: st.DrawFn) -> BatchHeader:
    """Any well-formed header."""
    count = draw(st.integers(1, BATCH_RECORDS_MAX))
    gaps = draw(st.integers(0, 1000))
    flags = draw(st.sampled_from([0, APPEND_TIME_BIT, CONTROL_BIT])) | (SPARSE_BIT if gaps else 0)
    return BatchHeader(
        Offset(draw(st.integers(0, (1 << 62)))),
        LeaderEpoch(draw(st.integers(0, (1 << 31) - 1))),
        64 * draw(st.integers(2, BATCH_BYTES_MAX // 64)),
        MAGIC,
        draw(st.integers(0, (1 << 32) - 1)),
        draw(st.sampled_from(Compression)) | flags,
        draw(I16),
        count - 1 + gaps,
        count,
        *(draw(kind) for kind in (I32, I64, I64, I64)),
    )


@given(header=headers(), before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_should_come_back_from_its_bytes_wherever_they_start(header: BatchHeader, before: bytes, after: bytes) -> None:
    packed = header.pack()
    assert len(packed) == 64
    assert BatchHeader.unpack(before + packed + after, len(before)) == header
    assert BatchHeader.unpack(packed).pack() == packed


def test_should_lie_in_the_bytes_as_the_protocol_says() -> None:
    packed = HEADER.pack()
    fields = struct.unpack("<qiIBBHIHhiiiqqq", packed)
    stamp_checksum = crc32c(packed[:18]) & 0xFFFF
    assert fields == (7, 3, 704, 1, 0, stamp_checksum, 0xDEADBEEF, 2, -1, 9, 10, -1, 1000, 2000, -1)


@given(header=headers(), offset=st.integers(0, 1 << 62), epoch=st.integers(0, (1 << 31) - 1))
def test_should_change_nothing_but_offset_epoch_and_their_checksum_when_stamped(
    header: BatchHeader, offset: int, epoch: int
) -> None:
    head = bytearray(header.pack())
    stamp(head, Offset(offset), LeaderEpoch(epoch))
    assert BatchHeader.unpack(head) == header._replace(base_offset=Offset(offset), leader_epoch=LeaderEpoch(epoch))
    assert head[20:] == header.pack()[20:]


def test_should_say_where_its_records_lie_and_what_they_are() -> None:
    assert (HEADER.last_offset, HEADER.next_offset) == (16, 17)
    assert HEADER.compression is Compression.ZSTD
    assert not any((HEADER.is_control, HEADER.is_sparse, HEADER.has_append_time, HEADER.is_heartbeat))
    flagged = HEADER._replace(attributes=CONTROL_BIT | SPARSE_BIT | APPEND_TIME_BIT)
    assert flagged.is_control
    assert flagged.is_sparse
    assert flagged.has_append_time
    assert not HEADER.is_empty
    emptied = HEADER._replace(record_count=0)
    assert emptied.is_empty
    assert not emptied.is_heartbeat
    assert emptied._replace(last_offset_delta=-1).is_heartbeat


@given(header=headers(), bit=st.integers(0, 18 * 8 - 1))
def test_should_refuse_any_flipped_bit_in_what_the_stamp_covers(header: BatchHeader, bit: int) -> None:
    damaged = bytearray(header.pack())
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptBatchError, match="stamp_checksum is 0x"):
        BatchHeader.unpack(damaged)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"magic": 2}, "magic is 2, must be 1"),
        ({"batch_bytes": 0}, "batch_bytes is 0, must be a multiple of 64"),
        ({"batch_bytes": 705}, "batch_bytes is 705, must be a multiple of 64"),
        ({"batch_bytes": BATCH_BYTES_MAX + 64}, f"to {BATCH_BYTES_MAX}"),
        ({"attributes": 3}, "attributes are 0x0003: unknown bits or an unknown compression"),
        ({"attributes": 0x40}, "attributes are 0x0040"),
        ({"record_count": -1}, "record_count is -1, must be from 0"),
        ({"record_count": BATCH_RECORDS_MAX + 1}, f"record_count is {BATCH_RECORDS_MAX + 1}"),
        ({"last_offset_delta": 10}, "last_offset_delta is 10, must be record_count - 1 = 9"),
        ({"last_offset_delta": 8, "attributes": SPARSE_BIT}, "last_offset_delta is 8"),
        ({"last_offset_delta": -1, "record_count": 0}, "record_count is 0, batch_bytes 704"),
        ({"last_offset_delta": -1, "record_count": 0, "batch_bytes": 64}, "attributes 0x0002, last_offset_delta -1"),
        ({"last_offset_delta": 0, "record_count": 0, "batch_bytes": 64}, "must be record_count - 1 = -1"),
        (
            {"last_offset_delta": -1, "record_count": 0, "batch_bytes": 64, "attributes": SPARSE_BIT},
            "that of gaps",
        ),
        ({"base_offset": -1}, "base_offset is -1"),
        ({"leader_epoch": -1}, "leader_epoch -1"),
        ({"base_offset": (1 << 63) - 10}, "must fit 63 bits"),
    ],
)
def test_should_name_field_value_and_rule_when_one_is_broken(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(CorruptBatchError, match=rule):
        BatchHeader.unpack(HEADER._replace(**change).pack())


def test_should_refuse_a_reserved_byte_that_is_not_zero() -> None:
    packed = bytearray(HEADER.pack())
    packed[17] = 5
    with pytest.raises(CorruptBatchError, match="reserved byte is 5, must be 0"):
        BatchHeader.unpack(sealed(packed))


@pytest.mark.parametrize(("size", "at", "left"), [(0, 0, 0), (63, 0, 63), (100, 40, 60), (64, 70, 0)])
def test_should_refuse_what_is_too_short(size: int, at: int, left: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"{left} bytes are left"):
        BatchHeader.unpack(bytes(size), at)


@given(data=st.binary(min_size=64, max_size=64))
def test_should_give_a_header_or_refuse_when_sealed_bytes_are_random(data: bytes) -> None:
    try:
        header = BatchHeader.unpack(sealed(data))
    except CorruptBatchError:
        return
    assert header.pack() == sealed(data)


def test_should_not_let_a_record_change() -> None:
    record = RecordContent(b"k", None, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.key = b"x"  # type: ignore[misc]  # the assignment is what is tested


def _run(counts: Sequence[int]) -> tuple[bytes, list[BatchHeader]]:
    """Headers alone, each with a body of zeros."""
    headers, offset = list[BatchHeader](), 0
    for count in counts:
        headers.append(
            BatchHeader(
                base_offset=Offset(offset),
                leader_epoch=LeaderEpoch(1),
                batch_bytes=64 * (2 + count % 3),
                magic=MAGIC,
                crc32c=0,
                attributes=0,
                producer_epoch=NO_PRODUCER,
                last_offset_delta=count - 1,
                record_count=count,
                base_sequence=NO_PRODUCER,
                base_timestamp_ms=0,
                max_timestamp_ms=0,
                producer_id=NO_PRODUCER,
            )
        )
        offset += count
    return b"".join(each.pack().ljust(each.batch_bytes, b"\0") for each in headers), headers


@pytest.mark.parametrize(("records_max", "batches", "records"), [(0, 1, 2), (2, 1, 2), (3, 2, 5), (100, 3, 6)])
def test_should_take_one_batch_at_least_and_stop_at_enough(records_max: int, batches: int, records: int) -> None:
    buffer, headers = _run([2, 3, 1])
    expected = sum(each.batch_bytes for each in headers[:batches])
    assert skim_batches(buffer, records_max) == BatchRun(expected, batches, records, Offset(records))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 100))
def test_should_take_whole_batches_until_there_are_enough_records(counts: list[int], records_max: int) -> None:
    buffer, headers = _run(counts)
    taken = [each for i, each in enumerate(headers) if i == 0 or sum(counts[:i]) < records_max]
    assert skim_batches(buffer, records_max) == BatchRun(
        sum(each.batch_bytes for each in taken),
        len(taken),
        sum(each.record_count for each in taken),
        taken[-1].next_offset,
    )


@pytest.mark.parametrize("cut", [1, 64, 100])
def test_should_refuse_a_run_that_ends_within_a_batch(cut: int) -> None:
    buffer, _ = _run([1, 2])
    with pytest.raises(CorruptBatchError):
        skim_batches(buffer[:-cut], 100)


def test_should_refuse_a_length_that_leads_nowhere() -> None:
    buffer, _ = _run([1])
    damaged = buffer[:12] + bytes(4) + buffer[16:]
    with pytest.raises(CorruptBatchError, match="stamp_checksum"):
        skim_batches(damaged, 100)
    with pytest.raises(CorruptBatchError, match="ends within a batch"):
        skim_batches(b"", 100)
