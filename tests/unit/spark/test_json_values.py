"""JSON values as columns: a row for each value, whatever the values are."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import LocalError
from headrace.core.records.columns import decode_batch, encode_batch, record_columns
from headrace.spark.columns import JsonValues, Rows
from headrace.spark.errors import BadValueError
from headrace.spark.offsets import SourcePartition

_PARTITION = SourcePartition("flights", "u", 3)
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
