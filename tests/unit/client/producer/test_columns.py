"""Columns of all kinds become batches of one partition each, never larger than the limit.

Columns that come one by one are cut into pieces of bounded size, others alongside; nothing is lost between them.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.batches import BATCH_OVERHEAD_BYTES, Row, row_bytes
from headrace.client.producer.columns import (
    ITERATOR_ROWS_MAX,
    by_partition,
    checked_columns,
    column_pieces,
    cut,
    is_iterated,
)
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.record import TopicPartition
from headrace.core.errors import LocalError
from headrace.core.records.columns import encode_batch
from headrace.core.records.header import Compression
from tests.support.client_columns import batch_columns

keys_or_values = st.one_of(st.none(), st.binary(max_size=300))
texts = st.text(max_size=20)
LOCAL_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).astimezone().replace(tzinfo=None)


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
        np.array([0, 1_500_000], "datetime64[us]"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 1, 0, 1, 500_000, timezone(timedelta(hours=1)))],
        [LOCAL_EPOCH, LOCAL_EPOCH + timedelta(milliseconds=1_500)],
        pd.Series([LOCAL_EPOCH, LOCAL_EPOCH + timedelta(milliseconds=1_500)], dtype=object),
        pd.Series(pd.to_datetime([0, 1_500], unit="ms")),
        [pd.Timestamp(0), pd.Timestamp(1_500, unit="ms")],
        [np.datetime64("1970"), np.datetime64("1970-01-01T00:00:01.500")],
        pa.array([0, 1_500_999], pa.timestamp("us")).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([0, 1_500_999_999], pa.timestamp("ns"))),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([0, 1_500])),
        pd.Series(pd.to_datetime([0, 1_500], unit="ms")).astype("category"),
        pa.array([0.0, 1_500.0]),
        iter([0, 1_500]),
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
    with pytest.raises(ValueError, match="keys: 1 entries for 2 values"):
        batch_columns(["a", "b"], ["k"], None, now_ms=0)


@pytest.mark.parametrize("kind", ["S", "U", "O", np.dtypes.StringDType()])
def test_should_keep_what_stands_behind_a_nul_in_a_numpy_column(kind: Any) -> None:
    column = np.array([b"a\0b", b"c"] if kind == "S" else ["a\0b", "c"], dtype=kind)
    assert batch_columns(column, None, None, 0).column("value").to_pylist() == [b"a\0b", b"c"]


def test_should_take_what_a_numpy_mask_hides_as_null() -> None:
    column = np.ma.array([b"a", b"b"], mask=[False, True])
    assert batch_columns(column, None, None, 0).column("value").to_pylist() == [b"a", None]


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_should_refuse_half_of_a_surrogate_pair_by_name(kind: Any) -> None:
    said = r"in row 1 cannot be stored as UTF-8: character 1 is '\\ud800', half of a surrogate pair; give whole char"
    column = kind(["b", "a\ud800"])
    with pytest.raises(ValueError, match=f"^keys {said}"):
        batch_columns(["v", "v"], column, None, 0)
    with pytest.raises(ValueError, match=f"^values {said}"):
        batch_columns(column, None, None, 0)


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        (pa.array([5], pa.duration("s")), r"duration\[s\]"),
        ([timedelta(seconds=5)], r"duration\[us\]"),
        (np.array([5], "timedelta64[s]"), r"duration\[s\]"),
        (pa.array([5], pa.time32("s")), r"time32\[s\]"),
        ([True], "bool"),
        (["5"], "string"),
        ([b"5"], "binary"),
        (pd.Series(pd.period_range("2024", periods=1, freq="D")), "extension<pandas.period"),
    ],
)
def test_should_refuse_times_that_are_none_by_their_kind(times: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"timestamps_ms is a column of {kind}.*: give whole milliseconds"):
        batch_columns(["v"], None, times, 0)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([2**60], pa.timestamp("s")),
        np.array([2**60], "datetime64[s]"),
        np.array([2**50], "datetime64[D]"),
        pa.array([-1], pa.timestamp("us")),
        pa.array([-1], pa.timestamp("ns")),
        np.array([-1], "datetime64[us]"),
    ],
)
def test_should_refuse_times_that_are_not_stored_as_they_are(times: Any) -> None:
    with pytest.raises(LocalError, match="timestamps_ms"):
        batch_columns(["v"], None, times, 0)


def test_should_refuse_numbers_beyond_64_bits_as_times() -> None:
    with pytest.raises(TypeError, match=r"timestamps_ms: .*give whole milliseconds"):
        batch_columns(["v"], None, [2**63], 0)


def test_should_refuse_true_as_a_time() -> None:
    with pytest.raises(TypeError, match="timestamps_ms is bool"):
        batch_columns(["v"], None, True, 0)  # noqa: FBT003 - what is tested


ARROW_KINDS = [
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.string(), pa.large_string(), pa.string_view()),
]


def _runs(entries: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(np.arange(1, len(entries) + 1, dtype=np.int32), entries)


def _dictionary(entries: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(range(len(entries)), pa.int32()), entries)


def _same(entries: pa.Array) -> pa.Array:
    return entries


def _in_two(entries: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([entries[:1], entries[1:]], entries.type)


def _sliced(entries: pa.Array) -> pa.Array:
    return pa.concat_arrays([entries, entries])[len(entries) :]


@given(st.data(), st.sampled_from(ARROW_KINDS), st.lists(st.sampled_from([_same, _runs, _dictionary, _sliced])))
def test_should_keep_the_bytes_of_every_kind_and_layout(
    data: st.DataObject, kind: pa.DataType, layouts: list[Callable[[pa.Array], pa.Array]]
) -> None:
    entry = st.text(max_size=20) if "string" in str(kind) else st.binary(max_size=20)
    entries = data.draw(st.lists(st.none() | entry, min_size=1, max_size=5))
    column: Any = pa.array(entries, kind)
    for layout in layouts[:2]:
        column = layout(column)
    expected = [each.encode() if isinstance(each, str) else each for each in entries]
    for given_column in (column, _in_two(column)):
        records = batch_columns(given_column, given_column, None, 0)
        assert records.column("value").to_pylist() == records.column("key").to_pylist() == expected


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
        batch.add(row)
        batch.size_bytes += row_bytes(row)
    encoded = sum(len(buffer) for buffer in encode_batch(batch.records(), compression=compression))
    assert encoded <= batch.size_bytes


def test_should_slice_long_columns_into_pieces() -> None:
    columns = checked_columns([b"x" * 100] * 1_000, None, None, now_ms=0)
    parts = list(columns.pieces(20_000))
    assert 5 <= len(parts) <= 8
    assert sum(part.num_rows for part in parts) == 1_000
    assert list(checked_columns([], None, None, now_ms=0).pieces(100)) == []


def test_should_say_that_values_are_missing() -> None:
    with pytest.raises(TypeError, match="values is None: give a column of them"):
        batch_columns(None, None, None, 0)


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EST5")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_new_york")
def test_should_take_datetimes_without_a_zone_as_local_and_columns_without_one_as_utc() -> None:
    naive = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    arrow = pa.array([naive])
    for times, hours in [(naive, 5), ([naive], 5), (arrow, 0), (arrow.to_numpy(), 0), (arrow.to_pandas(), 0)]:
        records = batch_columns(["a"], None, times, 0)
        assert records.column("timestamp_ms").to_pylist() == [hours * 3_600_000]


@pytest.mark.parametrize("unit", ["D", "W", "h", "m", "s", "ns"])
def test_should_take_numpy_times_of_every_unit(unit: str) -> None:
    times = np.array(["1970-01-01", "1970-01-08"], "datetime64[D]").astype(f"datetime64[{unit}]")
    assert batch_columns(["a", "b"], None, times, 0).column("timestamp_ms").to_pylist() == [0, 7 * 86_400_000]


def test_should_take_one_moment_for_all_and_days_of_arrow() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert batch_columns(["a", "b"], None, moment, 0).column("timestamp_ms").to_pylist() == [2_000, 2_000]
    assert batch_columns(["a"], None, pa.array([1], pa.date32()), 0).column("timestamp_ms").to_pylist() == [86_400_000]


@pytest.mark.parametrize(
    "times",
    [
        *("2026-01-01", 1.5, ["2026-01-01", "x"], [1.5, 2.0], [1, datetime.now(UTC)], [datetime.now(UTC), None]),
        *([date(2026, 1, 1)] * 2, {"a": 1}, {1, 2}, np.array([0, "NaT"], "datetime64[s]"), pd.DataFrame({"t": [1, 2]})),
    ],
)
def test_should_name_the_remedy_when_a_time_is_none(times: Any) -> None:
    with pytest.raises(TypeError, match=r"^timestamps_ms.*: "):
        batch_columns(["a", "b"], None, times, 0)


@pytest.mark.parametrize(
    ("column", "remedy"),
    [
        (pd.DataFrame({"value": ["a"]}), r"is a DataFrame: give one of its columns, for example df\['value'\]"),
        (pa.table({"value": ["a"]}), "is a Table: give one of its columns"),
        (pa.record_batch({"value": ["a"]}), "is a RecordBatch: give one of its columns"),
        ({"value": ["a"]}, r"is a dict: give a column, for example list\(d.values\(\)\) or d\['value'\]"),
        ({"a"}, r"is a set, which has no order: give a list, for example sorted\(s\)"),
        (frozenset("a"), "is a frozenset, which has no order"),
    ],
)
def test_should_ask_for_a_column_when_it_is_given_a_table_or_a_collection(column: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=f"values {remedy}"):
        batch_columns(column, None, None, 0)
    with pytest.raises(TypeError, match=f"keys {remedy}"):
        batch_columns(["a"], column, None, 0)


@pytest.mark.parametrize("column", [(n for n in "ab"), map(str, "ab"), {"a": 1}.values(), {b"a"}, iter([])])
def test_should_know_what_comes_one_by_one(column: Any) -> None:
    assert is_iterated(column)


@pytest.mark.parametrize(
    "column", [None, 5, "text", b"bytes", ["a"], ("a",), pa.array(["a"]), np.array(["a"]), pd.Series(["a"])]
)
def test_should_know_what_is_there_as_a_whole(column: Any) -> None:
    assert not is_iterated(column)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=10))), st.integers(1, 100))
def test_should_give_every_entry_once_in_pieces_of_bounded_size(entries: list[Any], piece_bytes: int) -> None:
    numbers = range(len(entries))
    pieces = list(column_pieces(iter(entries), list(map(str, numbers)), 7, piece_bytes=piece_bytes))
    assert [value for values, _, _ in pieces for value in values] == entries
    assert [int(key) for _, keys, _ in pieces for key in keys] == list(numbers)
    assert all(times == 7 for _, _, times in pieces)
    for values, _, _ in pieces:
        assert sum(len(value or b"") for value in values[:-1]) < piece_bytes


def test_should_bound_the_rows_of_a_piece_when_they_are_small() -> None:
    pieces = column_pieces((None for _ in range(ITERATOR_ROWS_MAX + 1)), None, None, piece_bytes=1)
    assert [len(values) for values, _, _ in pieces] == [ITERATOR_ROWS_MAX, 1]


@pytest.mark.parametrize(
    "keys",
    [
        *(["a\0b", None], pa.chunked_array([["a\0b"], [None]]), pd.Series(["a\0b", None], dtype="category")),
        *(np.ma.array(["a\0b", "x"], mask=[False, True]), pa.array(["a\0b", None], pa.string_view())),
        iter([b"a\0b", None]),
    ],
)
def test_should_cut_any_column_beside_an_iterator(keys: Iterable[Any]) -> None:
    assert list(column_pieces(iter("xy"), keys, None, piece_bytes=9)) == [(["x", "y"], [b"a\0b", None], None)]


def test_should_take_an_extension_beside_an_iterator_as_it_takes_one_alone() -> None:
    keys = pa.array([bytes(16)], pa.uuid())
    assert list(column_pieces(iter("x"), keys, None, piece_bytes=9)) == [(["x"], [bytes(16)], None)]


def test_should_take_times_beside_an_iterator_as_it_takes_them_alone() -> None:
    utc = pd.Series(pd.to_datetime([0, 1_500], unit="ms"))
    days = np.array(["1970-01-01", "1970-01-02"], "datetime64[D]")
    assert [times for _, _, times in column_pieces(iter("ab"), None, utc, piece_bytes=9)] == [[0, 1_500]]
    assert [times for _, _, times in column_pieces(iter("ab"), None, days, piece_bytes=9)] == [[0, 86_400_000]]
    moment = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert [times for _, _, times in column_pieces(iter("ab"), None, moment, piece_bytes=9)] == [2_000]


def test_should_refuse_sets_which_have_no_order() -> None:
    with pytest.raises(TypeError, match="keys is a set, which has no order"):
        next(column_pieces(iter("a"), {"a"}, None, piece_bytes=9))
    with pytest.raises(TypeError, match="timestamps_ms is a set, which has no order"):
        next(column_pieces(iter("a"), None, {1}, piece_bytes=9))
