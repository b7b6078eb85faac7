"""Every record has its line, whatever its bytes are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.record_formats import RecordRows, json_lines, table, table_title, values
from headrace.core.records.json_records import to_json
from headrace.core.types import Offset, RecordContent, RecordHeaders

SOME_BYTES = st.none() | st.text().map(str.encode) | st.binary()


def rows(value: bytes | None, key: bytes | None = None, time_ms: int = 0, headers: RecordHeaders = ()) -> RecordRows:
    return RecordRows("orders", 3, [12], [time_ms], [key], [value], [headers])


@given(SOME_BYTES, SOME_BYTES, st.integers(0, 1 << 62), st.lists(st.tuples(st.text(), SOME_BYTES), max_size=2))
def test_should_give_the_brokers_json_form_and_the_partition(
    value: bytes | None, key: bytes | None, time_ms: int, headers: list[tuple[str, bytes | None]]
) -> None:
    (line,) = json_lines(rows(value, key, time_ms, tuple(headers)))
    expected = {"partition": 3, **to_json(RecordContent(key, value, time_ms, tuple(headers)), Offset(12))}
    assert line == json.dumps(expected, ensure_ascii=False).encode()
    assert b"\n" not in line


@pytest.mark.parametrize("value", [b"tea", b"\xff"])
def test_should_name_the_topic_where_there_are_several(value: bytes) -> None:
    (line,) = json_lines(rows(value), with_topic=True)
    (alone,) = json_lines(rows(value))
    assert [*json.loads(line).items()] == [("topic", "orders"), *json.loads(alone).items()]
    (row,) = table(rows(value), None, topic_width=8)
    assert row.split()[:3] == [b"orders", b"3", b"12"]
    assert table_title(topic_width=8).index(b"PARTITION") == row.index(b"3") == 9


def test_should_give_values_as_they_are() -> None:
    assert list(values(rows(b"\xff\n"))) == [b"\xff\n"]
    assert list(values(rows(None))) == [b""]


def test_should_align_the_rows_of_a_table_under_their_titles() -> None:
    (row,) = table(rows(b"tea", b"ada", 1_763_715_600_000), None)
    assert table_title().split() == [b"PARTITION", b"OFFSET", b"TIMESTAMP", b"KEY", b"VALUE"]
    assert row.split() == [b"3", b"12", b"2025-11-21T09:00:00.000Z", b"ada", b"tea"]
    assert table_title().index(b"VALUE") == row.index(b"tea")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"a\nb\x1b[31m", rb"a\nb\x1b[31m"), (b"\xff", rb"\xff"), (None, b"-"), ("ü".encode(), "ü".encode())],
)
def test_should_let_no_value_break_its_row_or_command_the_terminal(value: bytes | None, shown: bytes) -> None:
    (row,) = table(rows(value), None)
    assert row.endswith(b" " + shown)


def test_should_cut_rows_at_the_width() -> None:
    (row,) = table(rows(b"x" * 500, time_ms=1 << 62), 80)
    assert len(row) == 80
    assert b"4611686018427387904 ms" in row
