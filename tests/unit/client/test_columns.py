"""Whatever columns users hold become batches of one partition each, never larger than they say."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.batches import BATCH_OVERHEAD_BYTES, Row, row_bytes
from headrace.client.columns import batch_columns, by_partition, cut, pieces
from headrace.client.deliveries import ThreadRows
from headrace.client.record import TopicPartition
from headrace.core.records.columns import encode_batch
from headrace.core.records.header import Compression

keys_or_values = st.one_of(st.none(), st.binary(max_size=300))
texts = st.text(max_size=20)


@pytest.mark.parametrize(
    "column",
    [
        ["a", None, "ü"],
        [b"a", None, "ü".encode()],
        ("a", None, "ü"),
        pa.array(["a", None, "ü"]),
        pa.array(["a", None, "ü"], pa.large_string()),
        pa.array(["a", None, "ü"]).dictionary_encode(),
        pa.table({"v": ["a", None, "ü"]})["v"],
        pd.Series(["a", None, "ü"]),
        pd.Series(["a", None, "ü"], dtype=object),
        pd.Series(["a", None, "ü"], dtype="category"),
        np.array(["a", None, "ü"], dtype=object),
    ],
)
def test_should_take_every_kind_of_column(column: Any) -> None:
    records = batch_columns(column, column, None, now_ms=7)
    assert records.column("value").to_pylist() == [b"a", None, b"\xc3\xbc"]
    assert records.column("key").to_pylist() == [b"a", None, b"\xc3\xbc"]
    assert records.column("timestamp_ms").to_pylist() == [7, 7, 7]


@pytest.mark.parametrize(
    "times",
    [
        [0, 1_500],
        pa.array([0, 1_500]),
        pa.array([0, 1_500_999], pa.timestamp("us")),
        pa.table({"t": pa.array([0, 1_500], pa.timestamp("ms", "UTC"))})["t"],
        pd.Series([datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)]),
        np.array([0, 1_500]),
    ],
)
def test_should_take_numbers_and_times_as_timestamps(times: Any) -> None:
    assert batch_columns(["a", "b"], None, times, now_ms=7).column("timestamp_ms").to_pylist() == [0, 1_500]


@pytest.mark.parametrize("column", [[1, 2], [{"a": 1}], pa.array([1.5]), pd.Series([1, 2]), np.array([1, 2])])
def test_should_name_the_remedy_when_a_column_is_no_text(column: Any) -> None:
    with pytest.raises(TypeError, match=r"values.*json\.dumps"):
        batch_columns(column, None, None, now_ms=0)


def test_should_point_to_send_when_values_is_one_text() -> None:
    with pytest.raises(TypeError, match=r"use send\(\) for a single record"):
        batch_columns("abc", None, None, now_ms=0)


def test_should_refuse_columns_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="key: 1 entries for 2 values"):
        batch_columns(["a", "b"], ["k"], None, now_ms=0)


@given(st.lists(st.tuples(keys_or_values, st.integers(0, 3)), min_size=1, max_size=50))
def test_should_keep_the_order_within_each_partition(rows: list[tuple[bytes | None, int]]) -> None:
    records = batch_columns([value for value, _ in rows], None, None, now_ms=0)
    divided = dict(by_partition(records, np.array([p for _, p in rows])))
    expected: dict[int, list[bytes | None]] = {}
    for value, partition in rows:
        expected.setdefault(partition, []).append(value)
    assert {p: part.column("value").to_pylist() for p, part in divided.items()} == expected


@given(
    st.lists(st.tuples(keys_or_values, keys_or_values), min_size=1, max_size=40),
    st.integers(BATCH_OVERHEAD_BYTES + 700, BATCH_OVERHEAD_BYTES + 3_000),
    st.sampled_from(Compression),
)
def test_should_cut_batches_that_are_never_larger_than_they_say(
    rows: list[tuple[bytes | None, bytes | None]], batch_bytes: int, compression: Compression
) -> None:
    records = batch_columns([v for _, v in rows], [k for k, _ in rows], None, now_ms=0)
    slices = list(cut(records, batch_bytes))
    assert [v for part, _ in slices for v in part.column("value").to_pylist()] == [v for _, v in rows]
    for part, bound in slices:
        assert sum(len(buffer) for buffer in encode_batch(part, compression=compression)) <= bound <= batch_bytes


def test_should_leave_an_oversized_row_alone_in_its_slice() -> None:
    records = batch_columns([b"a", b"x" * 10_000, b"b"], None, None, now_ms=0)
    slices = list(cut(records, BATCH_OVERHEAD_BYTES + 100))
    assert [part.num_rows for part, _ in slices] == [1, 1, 1]
    assert slices[1][1] > 10_000


@given(
    st.lists(
        st.tuples(keys_or_values, keys_or_values, st.lists(st.tuples(texts, keys_or_values), max_size=4)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(Compression),
)
def test_should_bound_the_encoded_size_of_rows(rows: list[tuple[Any, Any, Any]], compression: Compression) -> None:
    batch = ThreadRows(TopicPartition("t", 0), 0)
    for key, value, headers in rows:
        row: Row = (key, value, 0, tuple(headers))
        batch.add(row, row_bytes(*row))
    encoded = sum(len(buffer) for buffer in encode_batch(batch.records(), compression=compression))
    assert encoded <= batch.size_bytes


def test_should_slice_long_columns_into_pieces() -> None:
    records = batch_columns([b"x" * 100] * 1_000, None, None, now_ms=0)
    parts = list(pieces(records, 20_000))
    assert 5 <= len(parts) <= 8
    assert sum(part.num_rows for part in parts) == 1_000
    assert list(pieces(batch_columns([], None, None, now_ms=0), 100)) == []


def test_should_say_that_values_are_missing() -> None:
    with pytest.raises(TypeError, match="values is None: give a column of them"):
        batch_columns(None, None, None, 0)
