"""Columns that come one by one are cut into pieces of bounded size, others alongside; nothing is lost between them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.columns import ITERATOR_ROWS_MAX, column_pieces, is_iterated


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
