"""Batches as Spark's columns: joined, cut, and with the types that Spark wants.

JSON values as columns: a row for each value, whatever the values are.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import LocalError
from headrace.core.records.columns import DecodedBatch, decode_batch, encode_batch, record_columns
from headrace.spark.columns import SPARK_ROWS_GATHERED, SPARK_ROWS_MAX, JsonValues, Rows, gathered, maker_of
from headrace.spark.errors import BadValueError
from headrace.spark.offsets import SourcePartition
from tests.support.examples import examples

_PARTITION = SourcePartition("flights", "u", 3)


def batches_of(*counts: int) -> Iterator[DecodedBatch]:
    """With so many records, one after the other."""
    first = 0
    for count in counts:
        values = [b"%d" % number for number in range(first, first + count)]
        batch = decode_batch(b"".join(encode_batch(record_columns(values, timestamps_ms=5))))
        yield DecodedBatch(batch.header, batch.records, np.arange(first, first + count))
        first += count


@examples(0.5)
@given(st.lists(st.sampled_from([1, 7, 1000, SPARK_ROWS_GATHERED, SPARK_ROWS_MAX + 3]), max_size=6))
def test_should_keep_every_record_once_when_batches_are_joined_and_cut(counts: list[int]) -> None:
    pieces = list(gathered(_PARTITION, batches_of(*counts)))
    offsets = [offset for rows in pieces for offset in maker_of("offset", None)(rows).to_pylist()]
    values = [int(value) for rows in pieces for value in maker_of("value", None)(rows).to_pylist()]
    assert offsets == values == list(range(sum(counts)))
    assert all(0 < rows.count <= SPARK_ROWS_MAX for rows in pieces)
    assert all(len(maker_of("topic", None)(rows)) == rows.count for rows in pieces)


def test_should_join_small_batches_when_they_follow_each_other() -> None:
    assert [rows.count for rows in gathered(_PARTITION, batches_of(*[100] * 20))] == [2000]


def test_should_not_copy_a_value_when_a_batch_is_large_enough() -> None:
    (batch,) = batches_of(SPARK_ROWS_GATHERED)
    (rows,) = gathered(_PARTITION, [batch])
    assert rows.raw(1).buffers()[2].address == batch.records.column(1).buffers()[2].address


def test_should_have_microseconds_when_spark_asks_for_times() -> None:
    (rows,) = gathered(_PARTITION, batches_of(3))
    times = maker_of("timestamp", None)(rows)
    assert times.type == pa.timestamp("us", "UTC")
    assert times.cast(pa.int64()).to_pylist() == [5000] * 3


def test_should_be_the_last_time_that_spark_has_when_a_record_is_later() -> None:
    encoded = b"".join(encode_batch(record_columns([b"a", b"b"], timestamps_ms=[7, 2**63 - 1])))
    (rows,) = gathered(_PARTITION, [decode_batch(encoded)])
    assert maker_of("timestamp", None)(rows).cast(pa.int64()).to_pylist() == [7000, (2**63 - 1) // 1000 * 1000]


def test_should_say_who_has_set_the_time_when_that_changes() -> None:
    create, append = batches_of(2, 3)
    append = DecodedBatch(append.header._replace(attributes=8), append.records, append.offsets)
    pieces = list(gathered(_PARTITION, [create, append]))
    assert [maker_of("timestampType", None)(rows).to_pylist() for rows in pieces] == [[0, 0], [1, 1, 1]]


def test_should_rename_headers_when_a_batch_was_cut() -> None:
    headers = [[("a", b"1")], [], [("b", None), ("c", b"3")]]
    encoded = b"".join(encode_batch(record_columns([b"x"] * 3, timestamps_ms=0, headers=headers)))
    (rows,) = gathered(_PARTITION, [decode_batch(encoded).since(1)])
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    found = maker_of("headers", kind)(rows)
    assert found.type == kind
    assert found.to_pylist() == [[], [{"key": "b", "value": None}, {"key": "c", "value": b"3"}]]


_NUMBER = [pa.field("n", pa.int32())]


def rows_of(*values: bytes | None) -> Rows:
    encoded = b"".join(encode_batch(record_columns(list(values), timestamps_ms=0)))
    return Rows(_PARTITION, [decode_batch(encoded)])


def numbers(*values: bytes | None, permissive: bool = False) -> list[Any]:
    (column,) = JsonValues(_NUMBER, is_permissive=permissive).columns(rows_of(*values))
    found: list[Any] = column.to_pylist()
    return found


def test_should_keep_rows_apart_when_values_hold_newlines() -> None:
    assert numbers(b'{"n":\n1\n}', None, b'{"m": 5}', b"null", b'\n{"n": 2}\r\n') == [1, None, None, None, 2]


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b" ", b"no json", b'{"n": 1', b'{"n": 1}}', b'{"n": 1}{"n": 2}', b'{"n": 1}\n{"n": 2}'),
        *(b'{"n": 1}}\n{"v": {"n": 2}', b'{"n": 1}}{"v": {"n": 2}', b'{"n": 1}, "v": {"n": 2}'),
        *(b'{"n": "x"}', b'{"n": 1.5}', b'{"n": 3000000000}', b"[1]", b"5", b'"x"', b'{"n": 1, "n": 2}'),
    ],
)
def test_should_name_the_record_when_a_value_is_no_such_object(value: bytes) -> None:
    good = [b'{"n": %d}' % number for number in range(3)]
    with pytest.raises(BadValueError, match="the value at offset 3 of flights/3 is no JSON object"):
        numbers(*good, value, *good)
    assert numbers(*good, value, b"", None, *good, permissive=True) == [0, 1, 2, None, None, None, 0, 1, 2]


def test_should_refuse_bytes_that_are_no_text() -> None:
    fields = [pa.field("s", pa.string())]
    with pytest.raises(BadValueError, match="offset 1"):
        JsonValues(fields, is_permissive=False).columns(rows_of(b'{"s": "a"}', b'{"s": "\xff"}'))


def test_should_refuse_days_that_there_are_not() -> None:
    fields = [pa.field("day", pa.date32())]
    values = JsonValues(fields, is_permissive=True)
    (days,) = values.columns(rows_of(b'{"day": "2013-02-28"}', b'{"day": "2013-02-30"}', b"{}"))
    assert [str(day) for day in days.to_pylist()] == ["2013-02-28", "None", "None"]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.map_(pa.string(), pa.int32()), pa.list_(pa.date32()), pa.struct([("b", pa.binary())])]
)
def test_should_refuse_types_that_no_json_is_read_as(kind: Any) -> None:
    with pytest.raises(LocalError, match=r"column \w+\): take it as STRING"):
        JsonValues([pa.field("n", kind)], is_permissive=False)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=6)), min_size=1, max_size=30))
def test_should_give_each_value_its_row_when_some_are_anything(values: list[Any]) -> None:
    written = [json.dumps({"n": each}).encode() if isinstance(each, int) else each for each in values]
    found = numbers(*written, permissive=True)
    assert len(found) == len(values)
    for value, number in zip(values, found, strict=True):
        assert number == value if isinstance(value, int) else number is None or isinstance(value, bytes)


def test_should_name_the_offset_of_the_record_when_batches_have_gaps() -> None:
    batch = decode_batch(b"".join(encode_batch(record_columns([b'{"n": 1}', b"?"], timestamps_ms=0))))
    gapped = type(batch)(batch.header, batch.records, np.array([4, 9]))
    with pytest.raises(BadValueError, match="the value at offset 9"):
        JsonValues(_NUMBER, is_permissive=False).columns(Rows(_PARTITION, [gapped]))
