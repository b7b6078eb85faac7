"""Batches as columns: what goes in comes out, in every compression; what users get wrong is named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BatchTooLargeError, CorruptBatchError, UnreadableBatchError
from headrace.core.limits import BATCH_DECOMPRESSED_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.records.arrays import entry_ends
from headrace.core.records.columns import (
    RECORD_SCHEMA,
    SPARSE_RECORD_SCHEMA,
    check_body,
    columns_of,
    decode_batch,
    decode_batches,
    encode_batch,
    record_columns,
)
from headrace.core.records.header import APPEND_TIME_BIT, SPARSE_BIT, BatchHeader, Compression
from headrace.core.records.raw import HEARTBEAT, RawBatch, split_batches
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from tests.support.batches import (
    RECORDS,
    TIMESTAMP_MS,
    batch_of,
    encoded,
    message_of,
    mislabelled,
    packed,
    poisoned,
    sealed,
)

TWO = record_columns([b"a", b"b"], timestamps_ms=TIMESTAMP_MS)


def rows_of(batch: bytes) -> list[RecordContent]:
    return [record for _, record in decode_batch(batch).rows()]


@given(records=st.lists(RECORDS, min_size=1, max_size=20), compression=st.sampled_from(Compression))
def test_should_come_back_from_its_bytes(records: list[RecordContent], compression: Compression) -> None:
    batch = encoded(columns_of(records), compression)
    decoded = decode_batch(batch)
    times = [record.timestamp_ms for record in records]
    assert rows_of(batch) == records
    assert decoded.records.schema == RECORD_SCHEMA
    assert len(batch) % 64 == 0
    assert decoded.header == BatchHeader(
        *(Offset(0), LeaderEpoch(0), len(batch), 1, decoded.header.crc32c, compression, -1),
        *(len(records) - 1, len(records), -1, times[0], max(times), -1),
    )


@given(records=st.lists(RECORDS, min_size=2, max_size=20), at=st.integers(0, 19))
def test_should_encode_slices_of_columns(records: list[RecordContent], at: int) -> None:
    start = at % (len(records) - 1)
    assert rows_of(encoded(columns_of(records).slice(start))) == records[start:]


@given(runs=st.lists(st.lists(RECORDS, min_size=1, max_size=4), max_size=4), beats=st.integers(0, 2))
def test_should_give_every_batch_of_a_fetch_without_heartbeats(runs: list[list[RecordContent]], beats: int) -> None:
    fetched = b"".join(encoded(columns_of(run)) + HEARTBEAT * beats for run in runs)
    assert [[record for _, record in batch.rows()] for batch in decode_batches(fetched)] == runs


def test_should_leave_out_heartbeats_and_give_nothing_of_an_empty_fetch() -> None:
    fetched = HEARTBEAT + batch_of(b"a") + HEARTBEAT + HEARTBEAT + batch_of(b"b", b"c")
    found = [[record.value for _, record in batch.rows()] for batch in decode_batches(fetched)]
    assert found == [[b"a"], [b"b", b"c"]]
    assert list(decode_batches(b"")) == []


def test_should_decode_a_batch_that_is_not_aligned() -> None:
    shifted = b"\0" + batch_of(b"a", None)
    assert [record.value for _, record in decode_batch(shifted, 1).rows()] == [b"a", None]


def test_should_view_the_bytes_it_came_from() -> None:
    batch = np.frombuffer(bytearray(batch_of(b"x" * 1000)), np.uint8)
    values = decode_batch(pa.py_buffer(batch)).records.column(1).buffers()[2]
    assert np.shares_memory(np.frombuffer(values, np.uint8), batch)


@given(shift=st.integers(0, 9))
def test_should_decode_wherever_a_batch_starts_in_memory(shift: int) -> None:
    data = bytes(shift) + batch_of(b"a", None)
    assert [record.value for _, record in decode_batch(data, shift).rows()] == [b"a", None]


def test_should_keep_null_apart_from_empty() -> None:
    batch = encoded(record_columns([b"", None, "ü"], [None, "", b"k"], timestamps_ms=[3, 1, 2]))
    assert rows_of(batch) == [
        RecordContent(None, b"", 3),
        RecordContent(b"", None, 1),
        RecordContent(b"k", "ü".encode(), 2),
    ]
    header = decode_batch(batch).header
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (3, 3)


class Series:
    """A column of another library that speaks Arrow's protocol, as pandas does."""

    def __arrow_array__(self, type: object = None) -> Any:  # noqa: A002 (Arrow's own name)
        return pa.chunked_array([["a"], [None]], pa.string())


@pytest.mark.parametrize(
    "column",
    [
        Series(),
        pa.array(["a", None], pa.string()),
        pa.array(["a", None], pa.large_string()),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([b"a", None], pa.binary(1)),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([b"a", None], pa.binary(1)).dictionary_encode(),
        pa.array(["a", None], pa.string_view()),
        pa.array(["x" * 30, "a", None], pa.string_view()).slice(1),
        pa.array([b"a", None], pa.binary_view()),
        pa.chunked_array([["a"], [None]], pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None], pa.string_view())),
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["a"]).dictionary_encode()),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["a", None])),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["a", None], pa.string_view())),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["a", None]).dictionary_encode()),
        pa.RunEndEncodedArray.from_arrays([4, 5, 9], pa.array([b"x", b"a", None])).slice(4, 2),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(["a", None])),
        pa.chunked_array([["a"], [None]]),
        pa.array(["x", "a", None]).slice(1),
        [bytearray(b"a"), None],
        np.array([b"a", None], dtype=object),
    ],
)
def test_should_take_columns_of_text_and_bytes(column: Any) -> None:
    records = record_columns(column, column, timestamps_ms=pa.chunked_array([[5], [6]]))
    assert records.column(0).to_pylist() == records.column(1).to_pylist() == [b"a", None]
    assert records.column(2).to_pylist() == [5, 6]


def test_should_take_every_letter_of_a_numpy_column() -> None:
    records = record_columns(np.array(["é", "bcd"]), np.array([b"k1", b"k"]), timestamps_ms=5)
    assert records.column(1).to_pylist() == ["é".encode(), b"bcd"]
    assert records.column(0).to_pylist() == [b"k1", b"k"]


def test_should_take_each_entry_of_a_run() -> None:
    column = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int16()), pa.array(["a", None, "b"]))
    for entries in (column, column.slice(1, 3), column.slice(4), column.slice(5), pa.chunked_array([column, column])):
        expected = [entry and entry.encode() for entry in entries.to_pylist()]
        assert record_columns(entries, timestamps_ms=5).column(1).to_pylist() == expected


def test_should_take_what_an_extension_stores() -> None:
    column = pa.array([bytes(range(16)), None], pa.uuid())
    assert record_columns(column, timestamps_ms=5).column(1).to_pylist() == [bytes(range(16)), None]


def test_should_take_what_stands_behind_a_nul_in_a_numpy_column() -> None:
    assert record_columns(np.array([b"a\0b"]), timestamps_ms=5).column(1).to_pylist() == [b"a\0b"]


def test_should_refuse_half_of_a_surrogate_pair() -> None:
    said = r"cannot be stored as UTF-8: character 0 is '\\ud800', half of a surrogate pair; give whole characters, or"
    with pytest.raises(ValueError, match=f"values in row 0 {said}"):
        record_columns(["\ud800"], timestamps_ms=5)
    unused = pd.Series(["b"]).astype(pd.CategoricalDtype(["b", "\ud800"]))
    with pytest.raises(ValueError, match=f"values {said}"):
        record_columns(unused, timestamps_ms=5)
    for header in (("\ud800", b"a"), ("a", "\ud800")):
        with pytest.raises(ValueError, match=f"a header {said}"):
            record_columns(["v"], timestamps_ms=5, headers=[[header]])


def test_should_take_a_column_of_nulls_as_tombstones() -> None:
    assert record_columns(pa.nulls(2), timestamps_ms=5).column(1).to_pylist() == [None, None]


def test_should_take_headers_as_an_arrow_column() -> None:
    headers = columns_of([RecordContent(None, None, 5, (("a", b"1"),))]).column(3)
    assert record_columns([b"v"], timestamps_ms=5, headers=headers).column(3).equals(headers)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"values": [1]}, "values: .*give bytes, str"),
        ({"values": [b"a"], "keys": [1.5]}, "keys: .*json.dumps"),
        ({"values": pa.array([1])}, "values is a column of int64: give bytes"),
        ({"values": pa.RunEndEncodedArray.from_arrays([1], pa.array([1]))}, "values is a column of run_end_encoded"),
        ({"values": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))}, "column of extension<arrow"),
        ({"values": np.array([1, 2])}, "values is a column of int64: give bytes"),
        ({"values": np.array([b"a"]), "keys": np.array([1.5])}, "keys is a column of double: .*json.dumps"),
        ({"values": np.array(["2026-01-01"], "datetime64[ms]")}, "values is a column of timestamp"),
        ({"values": np.zeros(2, "V8")}, "values: .*give bytes"),
        ({"values": [b"a"], "timestamps_ms": ["x"]}, "timestamps_ms: .*whole milliseconds"),
        ({"values": [b"a"], "timestamps_ms": [1 << 63]}, "timestamps_ms: .*whole milliseconds"),
        ({"values": [b"a"], "timestamps_ms": [None]}, "timestamps_ms has nulls"),
        ({"values": [b"a"], "headers": [[(1, b"")]]}, "headers: .*give pairs of a name"),
        ({"values": [b"a"], "headers": [[("a", 1)]]}, "headers: .*give pairs of a name"),
        ({"values": [b"a"], "headers": [[(None, b"")]]}, "headers: .*give pairs of a name"),
    ],
)
def test_should_say_what_to_give_when_a_type_is_wrong(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(TypeError, match=rule):
        record_columns(**{"timestamps_ms": 5, **arguments})


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"keys": [b"a"]}, "keys: 1 entries for 2 values"),
        ({"timestamps_ms": [1, 2, 3]}, "timestamps_ms: 3 entries for 2 values"),
        ({"headers": [()]}, "headers: 1 entries for 2 values"),
        ({"headers": [[("a", None)] * (RECORD_HEADERS_MAX + 1), ()]}, "a record has 1025 headers, at most 1024"),
    ],
)
def test_should_say_which_column_when_lengths_are_wrong(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        record_columns([b"a", b"b"], **{"timestamps_ms": 5, **arguments})


def test_should_refuse_a_batch_without_records() -> None:
    with pytest.raises(ValueError, match="0 records: a batch has from 1 to"):
        encode_batch(columns_of([]))


def untouched(size_bytes: int, kind: Any, offset_type: type[np.signedinteger[Any]]) -> pa.Array:
    """A column of one very large value, of memory that is never touched and so never there."""
    offsets = np.array([0, size_bytes], offset_type)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.zeros(size_bytes, np.uint8))])


@pytest.mark.parametrize(
    "column",
    [
        untouched(1 << 31, pa.large_binary(), np.int64),
        pa.chunked_array([untouched(1 << 30, pa.binary(), np.int32)] * 2),
    ],
)
def test_should_refuse_columns_that_no_batch_can_hold(column: Any) -> None:
    with pytest.raises(BatchTooLargeError, match="keys hold more than a batch can"):
        record_columns([b""], column, timestamps_ms=5)


def test_should_refuse_to_compress_what_a_consumer_would_refuse() -> None:
    records = record_columns(untouched(BATCH_DECOMPRESSED_BYTES_MAX, pa.binary(), np.int32), timestamps_ms=5)
    with pytest.raises(BatchTooLargeError, match="send fewer records") as caught:
        encode_batch(records, compression=Compression.ZSTD)
    assert caught.value.details == {"limit": BATCH_DECOMPRESSED_BYTES_MAX}


def test_should_drop_the_records_below_an_offset() -> None:
    batch = sealed(BatchHeader.unpack(encoded(TWO))._replace(base_offset=Offset(10)).pack() + encoded(TWO)[64:])
    decoded = decode_batch(batch)
    assert decoded.since(9) is decoded.since(10) is decoded
    assert decoded.since(11).offsets.tolist() == [11]
    assert [record.value for _, record in decoded.since(11).rows()] == [b"b"]
    assert decoded.since(12).records.num_rows == 0
    assert list(decoded.since(12).rows()) == []


def test_should_keep_headers_with_their_records_when_the_first_are_dropped() -> None:
    records = [RecordContent(None, None, 5, (("a", b"1"),)), RecordContent(None, None, 5, (("b", None), ("b", b"2")))]
    assert [record for _, record in decode_batch(encoded(columns_of(records))).since(1).rows()] == records[1:]


def test_should_give_the_leaders_time_when_the_header_says_so() -> None:
    header = BatchHeader.unpack(encoded(TWO))._replace(attributes=APPEND_TIME_BIT, max_timestamp_ms=99)
    batch = packed(header, encoded(TWO)[64:])
    assert [record.timestamp_ms for record in rows_of(batch)] == [99, 99]
    assert decode_batch(batch).records.schema == RECORD_SCHEMA


def sparse(*deltas: int | None, last_offset_delta: int) -> bytes:
    """A batch in which compaction left gaps."""
    records = record_columns([b"v"] * len(deltas), timestamps_ms=5)
    schema = SPARSE_RECORD_SCHEMA.remove(4).append(pa.field("offset_delta", pa.int32()))
    body = message_of([*records.columns, pa.array(deltas, pa.int32())], schema)
    header = BatchHeader.unpack(encoded(records))
    return packed(header._replace(attributes=SPARSE_BIT, last_offset_delta=last_offset_delta), body)


def test_should_give_each_record_its_own_offset_when_there_are_gaps() -> None:
    decoded = decode_batch(sparse(1, 5, 6, last_offset_delta=9))
    assert decoded.offsets.tolist() == [1, 5, 6]
    assert decoded.records.schema == RECORD_SCHEMA
    assert decoded.since(2).offsets.tolist() == [5, 6]


@pytest.mark.parametrize("deltas", [(-1, 2), (2, 2), (3, 1), (0, 8), (None, 2), (0, None)])
def test_should_refuse_offsets_that_do_not_ascend_within_the_batch(deltas: tuple[int | None, ...]) -> None:
    with pytest.raises(CorruptBatchError, match="offset_delta must ascend from 0 or above to 7 at most"):
        decode_batch(sparse(*deltas, last_offset_delta=7))


def test_should_refuse_a_heartbeat_as_a_batch() -> None:
    assert len(HEARTBEAT) == 64
    with pytest.raises(CorruptBatchError, match="a heartbeat or an emptied batch"):
        decode_batch(HEARTBEAT)


@pytest.mark.parametrize("whole", [HEARTBEAT, encoded(TWO)])
def test_should_refuse_damaged_or_shortened_bytes(whole: bytes) -> None:
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="crc32c is"):
        list(decode_batches(damaged))
    with pytest.raises(CorruptBatchError, match=r"bytes follow|bytes are left"):
        list(decode_batches(whole[:-1]))


def body_with(change: Callable[[list[Any]], None], count: int = 2) -> bytes:
    """A batch whose columns were changed behind the back of the schema."""
    columns: list[Any] = list(TWO.columns)
    change(columns)
    schema = pa.schema([pa.field(name, column.type) for name, column in zip("abcdefgh", columns, strict=False)])
    header = BatchHeader.unpack(encoded(TWO))
    return packed(header._replace(record_count=count, last_offset_delta=count - 1), message_of(columns, schema))


def replaced(index: int, column: Any) -> Callable[[list[Any]], None]:
    def change(columns: list[Any]) -> None:
        columns[index] = column

    return change


HEADERS = columns_of([RecordContent(None, None, 5, (("a", b"1"),))] * 2).column(3)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (replaced(2, pa.array([None, 1], pa.int64())), "is null: only keys and values may be"),
        (replaced(3, pa.array([None, []], HEADERS.type)), "is null: only keys and values may be"),
        (replaced(3, pa.array([[None], []], HEADERS.type)), "is null: only keys and values may be"),
        (lambda columns: columns.append(pa.array([1, 2])), "the body has 19 buffers, the schema of records has 17"),
        (lambda columns: columns.pop(), "the body has 8 buffers"),
        (
            replaced(
                3,
                pa.array(
                    [[{"name": b"\xff", "value": b""}], []],
                    pa.list_(pa.struct({"name": pa.binary(), "value": pa.binary()})),
                ),
            ),
            "not a record batch of magic 1",
        ),
    ],
)
def test_should_refuse_a_body_that_breaks_the_schema(change: Callable[[list[Any]], None], rule: str) -> None:
    with pytest.raises(CorruptBatchError, match=rule):
        decode_batch(body_with(change))


def test_should_refuse_a_header_without_a_name() -> None:
    names = pa.array([None, "b"], pa.string())
    items = pa.StructArray.from_arrays([names, pa.array([b"", b""])], ["name", "value"])
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items)
    with pytest.raises(CorruptBatchError, match="is null: only keys and values may be"):
        decode_batch(body_with(replaced(3, column)))


def test_should_refuse_a_record_count_that_lies() -> None:
    with pytest.raises(CorruptBatchError, match="record_count is 3, the body has 2 rows"):
        decode_batch(body_with(lambda columns: None, count=3))


@pytest.mark.parametrize(
    ("said", "done"),
    [(Compression.NONE, Compression.LZ4), (Compression.ZSTD, Compression.LZ4), (Compression.LZ4, Compression.NONE)],
)
def test_should_refuse_another_compression_than_the_header_says(said: Compression, done: Compression) -> None:
    batch = encoded(TWO, done)
    with pytest.raises(CorruptBatchError, match=f"compression is {done.name}, attributes say {said.name}"):
        decode_batch(packed(BatchHeader.unpack(batch)._replace(attributes=said), batch[64:]))


def test_should_tell_where_entries_end_of_a_whole_column_of_a_part_of_it_and_of_an_empty_one() -> None:
    column = pa.array([b"ab", None, b"", b"cde"], pa.binary())
    assert entry_ends(column).tolist() == [0, 2, 2, 2, 5]
    assert entry_ends(column.slice(1, 2)).tolist() == [2, 2, 2]
    assert entry_ends(pa.array([[1, 2], [3]], pa.list_(pa.int32()))).tolist() == [0, 2, 3]
    assert entry_ends(pa.array([], pa.binary())).tolist() == [0]


def produced(*chunks: bytes | memoryview) -> RawBatch:
    (batch,) = split_batches(chunks, batch_bytes_max=1 << 20)
    return batch


MANY = record_columns(
    [b"v%d" % n for n in range(500)], ["k", None] * 250, timestamps_ms=5, headers=[[("ü", b"1")]] * 500
)


@pytest.mark.parametrize("compression", Compression)
def test_should_let_pass_what_producers_encode_wherever_it_was_cut(compression: Compression) -> None:
    whole = encoded(MANY, compression)
    for chunks in ([whole], [memoryview(b"\0" + whole)[1:]], [whole[:70], whole[70:900], whole[900:]]):
        check_body(produced(*chunks))


@pytest.mark.parametrize("compression", Compression)
def test_should_refuse_what_nobody_can_decode_before_and_after_the_append(compression: Compression) -> None:
    for spoiled in (poisoned(encoded(MANY, compression)), mislabelled(encoded(MANY))):
        with pytest.raises(CorruptBatchError) as refused:
            check_body(produced(spoiled))
        with pytest.raises(UnreadableBatchError, match=r"^offsets 0 to 499 cannot be decoded: ") as unreadable:
            decode_batch(spoiled)
        assert (refused.value.code, unreadable.value.code) == ("CorruptBatch", "UnreadableBatch")
        assert unreadable.value.details == {"baseOffset": 0, "lastOffset": 499, "nextOffset": 500}


def test_should_decompress_with_threads_what_is_large() -> None:
    values = np.random.default_rng(1).bytes(1 << 20)
    large = record_columns([values, b"b"], timestamps_ms=5)
    assert rows_of(encoded(large, Compression.LZ4))[0].value == values


def test_should_leave_out_of_a_fetch_what_nobody_can_decode_only_where_that_is_told() -> None:
    fetched = batch_of(b"a") + poisoned(batch_of(b"b", b"c")) + HEARTBEAT + batch_of(b"d")
    told: list[UnreadableBatchError] = []
    found = [record.value for batch in decode_batches(fetched, told.append) for _, record in batch.rows()]
    assert (found, [error.details["nextOffset"] for error in told]) == ([b"a", b"d"], [2])
    with pytest.raises(UnreadableBatchError):
        list(decode_batches(fetched))


def test_should_say_what_a_produced_batch_is_once_it_is_decompressed() -> None:
    assert produced(encoded(MANY)).unpacked_bytes() == len(encoded(MANY))
    packed = encoded(MANY, Compression.ZSTD)
    assert len(packed) < 10_000 < produced(packed[:80], packed[80:]).unpacked_bytes()
