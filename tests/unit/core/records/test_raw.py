"""A broker splits, checks and stamps the bytes of a produce request, and never copies a body.

A topic may ask for the leader's time instead of the producer's (KIP-32).
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BatchTooLargeError, CorruptBatchError
from headrace.core.records.arrow_message import BATCH_METADATA_BYTES_MAX
from headrace.core.records.columns import columns_of, decode_batch, encode_batch
from headrace.core.records.header import APPEND_TIME_BIT, CONTROL_BIT, BatchHeader, Compression, ProducerNumbers
from headrace.core.records.raw import HEARTBEAT, RawBatch, emptied_batch, renumbered, split_batches, split_replicated
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from tests.support.batches import TIMESTAMP_MS, batch_of, message_of, packed, sealed

LIMIT = 8 << 20
ONE = batch_of(b"a")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in chunks that end at `places`."""
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def joined(batch: RawBatch) -> bytes:
    return b"".join(batch.buffers)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    places=st.lists(st.integers(0, 1 << 16), max_size=12),
    compression=st.sampled_from(Compression),
)
def test_should_find_the_same_batches_wherever_chunks_end(
    sizes: list[int], places: list[int], compression: Compression
) -> None:
    sent = [batch_of(*[b"v"] * size, compression=compression) for size in sizes]
    batches = split_batches(cut(b"".join(sent), places), batch_bytes_max=LIMIT)
    assert [joined(batch) for batch in batches] == sent
    assert [batch.header.record_count for batch in batches] == sizes
    assert [batch.nbytes for batch in batches] == [len(batch) for batch in sent]
    assert all(len(batch.buffers[0]) == 64 for batch in batches)


def test_should_say_how_many_bytes_a_batch_has() -> None:
    (batch,) = split_batches([ONE], batch_bytes_max=LIMIT)
    assert batch.nbytes == len(ONE)


def test_should_take_what_a_leader_sent_with_its_heartbeats() -> None:
    sent = [ONE, HEARTBEAT, batch_of(b"b", b"c")]
    assert [joined(batch) for batch in split_replicated(cut(b"".join(sent), [10, 700]))] == sent


@pytest.mark.parametrize("end", [10, 64, len(ONE) - 1])
def test_should_refuse_what_a_leader_sent_when_it_ends_too_soon(end: int) -> None:
    with pytest.raises(CorruptBatchError, match=r"ends within a batch|bytes follow"):
        split_replicated([ONE, ONE[:end]])


def test_should_find_batches_when_every_byte_is_a_chunk() -> None:
    sent = batch_of(b"a") + batch_of(b"b", None)
    batches = split_batches([sent[at : at + 1] for at in range(len(sent))], batch_bytes_max=LIMIT)
    assert b"".join(map(joined, batches)) == sent


def test_should_view_the_body_where_it_arrived_and_own_the_header() -> None:
    chunk = bytearray(batch_of(b"value"))
    (batch,) = split_batches([memoryview(chunk)], batch_bytes_max=LIMIT)
    body_as_array = np.frombuffer(batch.buffers[1], np.uint8)
    assert np.shares_memory(body_as_array, np.frombuffer(chunk, np.uint8))
    before = bytes(chunk)
    batch.stamp(Offset(41), LeaderEpoch(5))
    assert bytes(chunk) == before


def test_should_take_signed_views_as_arrow_gives_them() -> None:
    sent = batch_of(b"\xff" * 9)
    (batch,) = split_batches([memoryview(pa.py_buffer(sent)).cast("b")], batch_bytes_max=LIMIT)
    assert joined(batch) == sent


@given(offset=st.integers(0, 1 << 60), epoch=st.integers(0, (1 << 31) - 1))
def test_should_decode_with_its_place_when_stamped(offset: int, epoch: int) -> None:
    (batch,) = split_batches([batch_of(b"a", b"b")], batch_bytes_max=LIMIT)
    assert batch.stamp(Offset(offset), LeaderEpoch(epoch)) is batch
    decoded = decode_batch(joined(batch))
    assert decoded.header == batch.header
    assert decoded.offsets.tolist() == [offset, offset + 1]


def test_should_take_idempotent_producers() -> None:
    records = columns_of([RecordContent(None, b"v", TIMESTAMP_MS)])
    chunks = encode_batch(records, numbers=ProducerNumbers(1 << 62, 0, 17))
    (batch,) = split_batches(chunks, batch_bytes_max=LIMIT)
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (1 << 62, 0, 17)


def test_should_refuse_a_batch_over_the_topics_limit_and_say_which() -> None:
    small, large = batch_of(b"a"), batch_of(b"a" * 5000)
    with pytest.raises(
        BatchTooLargeError, match=r"batch 1: batch_bytes is 5632, the topic's maxMessageBytes is 704"
    ) as e:
        split_batches([small + large], batch_bytes_max=704)
    assert e.value.details == {"limit": 704, "batch": 1}


def test_should_refuse_an_empty_request() -> None:
    with pytest.raises(CorruptBatchError, match="batch 0: 0 bytes are left"):
        split_batches([], batch_bytes_max=LIMIT)


@given(end=st.integers(1, len(ONE) - 1))
def test_should_refuse_a_batch_that_ends_too_soon(end: int) -> None:
    with pytest.raises(CorruptBatchError, match=r"batch 1: .*(bytes are left|bytes follow)") as caught:
        split_batches([ONE, ONE[:end]], batch_bytes_max=LIMIT)
    assert caught.value.details == {"batch": 1}


@given(bit=st.integers(24 * 8, len(ONE) * 8 - 1), place=st.integers(0, len(ONE)))
def test_should_refuse_any_flipped_bit_in_what_the_crc_covers(bit: int, place: int) -> None:
    damaged = bytearray(ONE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptBatchError):
        split_batches(cut(bytes(damaged), [place]), batch_bytes_max=LIMIT)


def test_should_name_both_checksums_when_the_body_is_damaged() -> None:
    damaged = bytearray(ONE)
    damaged[600] ^= 1
    with pytest.raises(CorruptBatchError, match=r"batch 0: crc32c is 0x[0-9a-f]{8}, the bytes give 0x[0-9a-f]{8}"):
        split_batches([bytes(damaged)], batch_bytes_max=LIMIT)


def test_should_refuse_a_record_count_that_lies() -> None:
    batch = batch_of(b"a", b"b", b"c")
    header = BatchHeader.unpack(batch)._replace(record_count=2, last_offset_delta=1)
    with pytest.raises(CorruptBatchError, match="batch 0: record_count is 2, the body has 3 rows"):
        split_batches([packed(header, batch[64:])], batch_bytes_max=LIMIT)


@pytest.mark.parametrize("bit", [CONTROL_BIT, APPEND_TIME_BIT])
def test_should_refuse_attributes_that_only_a_leader_may_set(bit: int) -> None:
    batch = batch_of(b"a")
    header = BatchHeader.unpack(batch)._replace(attributes=bit)
    with pytest.raises(CorruptBatchError, match="a producer may set bits 0-2"):
        split_batches([packed(header, batch[64:])], batch_bytes_max=LIMIT)


@pytest.mark.parametrize("producer", [(5, -1, -1), (-1, 0, 0), (-2, -2, -2), (7, 0, -1)])
def test_should_refuse_half_an_idempotent_producer(producer: tuple[int, int, int]) -> None:
    batch = batch_of(b"a")
    header = BatchHeader.unpack(batch)._replace(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    with pytest.raises(CorruptBatchError, match="must all be 0 or above, or all -1"):
        split_batches([packed(header, batch[64:])], batch_bytes_max=LIMIT)


def test_should_refuse_a_heartbeat() -> None:
    with pytest.raises(CorruptBatchError, match="record_count is 0"):
        split_batches([HEARTBEAT], batch_bytes_max=LIMIT)


def test_should_refuse_a_body_that_is_another_arrow_message() -> None:
    schema_message = bytes(memoryview(pa.schema([pa.field("a", pa.int8())]).serialize()).cast("B"))
    with pytest.raises(CorruptBatchError, match=r"an Arrow message of type 1, must be 3 \(RecordBatch\)"):
        split_batches([packed(BatchHeader.unpack(ONE), schema_message)], batch_bytes_max=LIMIT)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (bytes(64), "the body starts with 0x00000000"),
        (b"\xff\xff\xff\xff" + bytes(60), "a metadata length of 0"),
        (b"\xff\xff\xff\xff\x04\x00\x00\x00" + bytes(56), "a metadata length of 4"),
        (
            b"\xff\xff\xff\xff" + (BATCH_METADATA_BYTES_MAX + 8).to_bytes(4, "little") + bytes(56),
            f"multiple of 8 up to {BATCH_METADATA_BYTES_MAX}",
        ),
        (b"\xff\xff\xff\xff\x00\x08\x00\x00" + b"\xff" * 56, "points outside of itself"),
        (b"\xff\xff\xff\xff\x38\x00\x00\x00\x04\x00\x00\x00\xff\x00\x00\x00" + bytes(48), "before its own start"),
        (b"", "points outside of itself"),
    ],
)
def test_should_refuse_a_body_without_arrow_metadata(body: bytes, rule: str) -> None:
    with pytest.raises(CorruptBatchError, match=rule):
        split_batches([packed(BatchHeader.unpack(ONE), body)], batch_bytes_max=LIMIT)


def test_should_refuse_lengths_that_do_not_fit_each_other() -> None:
    body = message_of(columns_of([RecordContent(None, b"a", 5)]).columns)
    with pytest.raises(CorruptBatchError, match="must be their sum rounded up to 64"):
        split_batches([packed(BatchHeader.unpack(ONE), body + bytes(64))], batch_bytes_max=LIMIT)


@given(at=st.integers(64, 64 + 8 + 472 - 1), data=st.binary(min_size=1, max_size=8))
def test_should_give_batches_or_refuse_when_metadata_is_nonsense(at: int, data: bytes) -> None:
    batch = bytearray(batch_of(b"a", b"b"))
    batch[at : at + len(data)] = data
    try:
        batches = split_batches([sealed(batch)], batch_bytes_max=LIMIT)
    except CorruptBatchError:
        return
    assert [b.header.record_count for b in batches] == [2]


@given(places=st.lists(st.integers(0, 1 << 12), max_size=12))
def test_should_take_what_a_leader_sends_as_it_stands_in_its_log(places: list[int]) -> None:
    """Stamped, with the leader's time, emptied by compaction: all that no producer may send."""
    first, second = split_batches([batch_of(b"a") + batch_of(b"b", b"c")], batch_bytes_max=LIMIT)
    first.stamp(Offset(7), LeaderEpoch(3)).take_append_time(TIMESTAMP_MS + 5)
    second.stamp(Offset(8), LeaderEpoch(4))
    emptied = emptied_batch(second.header)
    sent = joined(first) + emptied + joined(second)

    batches = split_replicated(cut(sent, places))

    assert b"".join(map(joined, batches)) == sent
    assert [batch.header.base_offset for batch in batches] == [7, 8, 8]
    assert [batch.header.leader_epoch for batch in batches] == [3, 4, 4]
    assert all(len(batch.buffers[0]) == 64 for batch in batches)
    assert split_replicated([]) == []


def test_should_refuse_what_was_damaged_on_the_way_from_the_leader() -> None:
    damaged = bytearray(ONE)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="damaged on the way"):
        split_replicated([ONE, damaged])
    with pytest.raises(CorruptBatchError, match="bytes follow"):
        split_replicated([ONE, ONE[:-1]])
    with pytest.raises(CorruptBatchError, match="ends within a batch"):
        split_replicated([ONE, ONE[:63]])


def test_should_send_a_stored_batch_as_another_producer() -> None:
    stored = b"".join(map(bytes, encode_batch(columns_of([RecordContent(b"k", b"v", TIMESTAMP_MS)] * 3))))
    (placed,) = split_batches([stored], batch_bytes_max=LIMIT)
    placed.stamp(Offset(70), LeaderEpoch(4))
    log = memoryview(joined(placed) + b"the next one")

    batch = renumbered(log, ProducerNumbers(9, 2, 30))

    assert (batch.header.base_offset, batch.header.leader_epoch) == (0, 0)
    (again,) = split_batches([joined(batch)], batch_bytes_max=LIMIT)
    assert ProducerNumbers(again.header.producer_id, again.header.producer_epoch, again.header.base_sequence) == (
        9,
        2,
        30,
    )
    assert decode_batch(joined(again)).records.equals(decode_batch(stored).records)
    with pytest.raises(CorruptBatchError):
        renumbered(memoryview(bytes(log[:70]) + b"!" + bytes(log[71:])), ProducerNumbers(9, 2, 30))


def test_should_give_every_record_the_leaders_time_and_stay_a_valid_batch() -> None:
    (batch,) = split_batches([batch_of(b"a", b"b")], batch_bytes_max=1 << 20)

    batch.take_append_time(77).stamp(Offset(5), LeaderEpoch(3))

    decoded = decode_batch(b"".join(batch.buffers))
    assert decoded.header == batch.header
    assert [(offset, record.value, record.timestamp_ms) for offset, record in decoded.rows()] == [
        (5, b"a", 77),
        (6, b"b", 77),
    ]
