"""Batches of a few records, encoded without Arrow: byte by byte what Arrow makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatchError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import BatchHeader, Compression
from headrace.core.records.raw import HEARTBEAT
from headrace.core.records.small_batches import FEW_ROWS_BYTES_MAX, FEW_ROWS_MAX, are_few, decode_rows, encode_rows

CELLS = st.binary(max_size=200)
TIMES = st.integers(min_value=-(1 << 62), max_value=1 << 62)


@given(st.lists(st.tuples(CELLS, CELLS, TIMES), min_size=1, max_size=FEW_ROWS_MAX), st.booleans())
def test_the_bytes_are_those_that_arrow_makes(rows: list[tuple[bytes, bytes, int]], has_keys: bool) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    some_keys = keys if has_keys else []
    assert are_few(values, some_keys, 0)
    expected = encode_batch(record_columns(values, some_keys or None, timestamps_ms=times))
    assert b"".join(encode_rows(values, some_keys, times)) == b"".join(expected)


def test_what_is_long_or_has_nulls_is_left_to_arrow() -> None:
    assert not are_few([b"v"] * (FEW_ROWS_MAX + 1), [], 0)
    assert not are_few([b"v"], [], FEW_ROWS_BYTES_MAX + 1)
    assert not are_few([None], [], 0)
    assert not are_few([b"v", b"w"], [b"k", None], 0)


def test_keys_and_values_are_read_where_there_are_no_nulls() -> None:
    batch = memoryview(b"".join(encode_rows([b"v", b""], [b"k", b"key"], [1, 2])))
    assert decode_rows(batch, BatchHeader.unpack(batch)) == ([b"k", b"key"], [b"v", b""])
    nulls = memoryview(b"".join(encode_batch(record_columns([None], [b"k"], timestamps_ms=7))))
    assert decode_rows(nulls, BatchHeader.unpack(nulls)) is None


@given(st.lists(st.tuples(CELLS, CELLS, TIMES), min_size=1, max_size=FEW_ROWS_MAX))
def test_what_was_encoded_can_be_read(rows: list[tuple[bytes, bytes, int]]) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    batch = memoryview(b"".join(encode_rows(values, keys, times)))
    assert decode_rows(batch, BatchHeader.unpack(batch)) == (keys, values)


@given(st.lists(st.tuples(CELLS, st.none() | CELLS), min_size=1, max_size=9), st.sampled_from(Compression))
def test_what_arrow_made_is_read_or_left_to_it(rows: list[tuple[bytes, bytes | None]], how: Compression) -> None:
    """Whether there are nulls is not among the numbers that are written over, but where their buffers lie is."""
    columns = record_columns([value for _, value in rows], [key for key, _ in rows], timestamps_ms=7)
    batch = memoryview(b"".join(encode_batch(columns, compression=how)))
    read = decode_rows(batch, BatchHeader.unpack(batch))
    expected = [key for key, _ in rows], [value for _, value in rows]
    assert read is None or read == expected
    assert read is None or how is Compression.NONE


def test_keyless_short_and_damaged_batches_are_not_read() -> None:
    keyless = memoryview(b"".join(encode_rows([b"v"], [], [1])))
    assert decode_rows(keyless, BatchHeader.unpack(keyless)) is None
    empty = memoryview(HEARTBEAT)
    assert decode_rows(empty, BatchHeader.unpack(empty)) is None
    damaged = bytearray(b"".join(encode_rows([b"value"], [b"key"], [1])))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="damaged"):
        decode_rows(memoryview(damaged), BatchHeader.unpack(damaged))
