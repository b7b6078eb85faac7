"""Batches of a few records, encoded without Arrow: byte by byte what Arrow makes of them."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import FEW_ROWS_BYTES_MAX, FEW_ROWS_MAX
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.few_rows import are_few, encode_rows

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
