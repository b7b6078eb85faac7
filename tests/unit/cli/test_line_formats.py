"""Every line becomes a record or a sentence with its number.

Lines come whole whatever the reads are, and nobody waits for a second line to see the first.
"""

import csv
import gzip
import io
import json
import lzma
import os
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import record_formats
from headrace.cli.line_formats import (
    InputRecord,
    LineError,
    csv_rows,
    json_lines,
    lines_of,
    plain_lines,
    printed_records,
)
from headrace.cli.record_formats import RecordRows
from headrace.core.limits import JSON_LINE_BYTES_MAX
from headrace.core.records.arrays import header_rows
from headrace.core.records.columns import columns_of
from headrace.core.types import RecordContent
from tests.support.batches import RECORDS


def test_should_take_lines_as_they_are() -> None:
    assert list(plain_lines([b"tea\n", b"\n", b"with\r\n", b"\xff"])) == [
        InputRecord(1, None, b"tea"),
        InputRecord(2, None, b""),
        InputRecord(3, None, b"with"),
        InputRecord(4, None, b"\xff"),
    ]


@given(st.lists(st.binary(max_size=20).filter(lambda line: not set(line) & set(b"\r\n"))))
def test_should_keep_the_bytes_of_any_line(values: list[bytes]) -> None:
    lines = [b"first\n", *(value + b"\n" for value in values)]
    assert [record.value for record in plain_lines(lines)][1:] == values


def test_should_take_the_key_from_a_field() -> None:
    lines = [b'{"id": "a", "n": 1}\n', b"\n", b'{"id": 7}', b'{"id": null}', b'{"n": 2}', b'{"id": {"x": "\xc3\xbc"}}']
    assert list(json_lines(lines, "id", may_lack_key=True)) == [
        InputRecord(1, b"a", b'{"id": "a", "n": 1}'),
        InputRecord(3, b"7", b'{"id": 7}'),
        InputRecord(4, None, b'{"id": null}'),
        InputRecord(5, None, b'{"n": 2}'),
        InputRecord(6, '{"x":"ü"}'.encode(), b'{"id": {"x": "\xc3\xbc"}}'),
    ]


def test_should_keep_the_text_of_numbers_in_keys() -> None:
    lines = [b'{"id": 9007199254740993.0}', b'{"id": 9007199254740992.0}', b'{"id": -0}', b'{"id": [1.10, {"a": 1E5}]}']
    keys = [record.key for record in json_lines(lines, "id")]
    assert keys == [b"9007199254740993.0", b"9007199254740992.0", b"-0", b'[1.10,{"a":1E5}]']


def test_should_keep_the_text_of_numbers_in_records() -> None:
    (record,) = printed_records([b'{"key": 1.10, "value": {"a": 1E5, "a": 1e400}}'], lambda: 9)
    assert (record.key, record.value) == (b"1.10", b'{"a":1E5,"a":1e400}')


def test_should_leave_the_mark_before_the_first_line_out() -> None:
    assert list(json_lines([b'\xef\xbb\xbf{"id": "a"}\n'], "id")) == [InputRecord(1, b"a", b'{"id": "a"}')]
    assert list(plain_lines([b"\xef\xbb\xbftea\n", b"\xef\xbb\xbf\n"])) == [
        InputRecord(1, None, b"tea"),
        InputRecord(2, None, b"\xef\xbb\xbf"),
    ]
    assert list(plain_lines([b"\xef\xbb\xbf"])) == []


@pytest.mark.parametrize(
    ("content", "program"),
    [
        (gzip.compress(b"tea\n", mtime=0), "zcat"),
        (b"\x28\xb5\x2f\xfd...", "zstdcat"),
        (lzma.compress(b"tea\n"), "xzcat"),
    ],
    ids=["gzip", "zstd", "xz"],
)
def test_should_say_how_to_read_what_is_compressed(content: bytes, program: str) -> None:
    says = rf"line 1: the input is compressed: `{program} FILE \| headrace produce TOPIC`"
    for read in (plain_lines, partial(json_lines, key_field=None), partial(csv_rows, key_field=None)):
        with pytest.raises(LineError, match=says):
            list(read(content.splitlines(keepends=True)))


def test_should_take_records_with_all_that_they_have() -> None:
    lines = [
        b'{"partition": 1, "offset": 7, "timestamp": 5, "key": "a", "value": null, "headers": []}\n',
        b"\n",
        b'{"keyBase64": "/w==", "value": "tea", "headers": [{"name": "x", "valueBase64": "/w=="}]}\n',
    ]
    assert list(printed_records(lines, lambda: 9)) == [
        InputRecord(1, b"a", None, (), 5),
        InputRecord(3, b"\xff", b"tea", (("x", b"\xff"),), 9),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"key": "a"}', "line 2: value is missing: give value"),
        (b'{"id": 1}', 'line 2: "id" is not a field of a record; there are headers, key'),
        (b"tea", 'line 2: "tea" is not JSON'),
        (b'"' + b"x" * JSON_LINE_BYTES_MAX + b'"', f"line 2: longer than {JSON_LINE_BYTES_MAX} bytes"),
    ],
)
def test_should_name_the_line_when_it_is_no_record(line: bytes, says: str) -> None:
    records = printed_records([b'{"value": 1}\n', line], lambda: 9)
    assert next(records).line == 1
    with pytest.raises(LineError, match=says):
        next(records)


def test_should_keep_any_json_value_when_no_key_is_asked_for() -> None:
    assert [record.value for record in json_lines([b"1", b'"a"', b"[]"], None)] == [b"1", b'"a"', b"[]"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"a":', r"line 2: '\{\"a\":' is not JSON: Expecting value"),
        (b'{"id": NaN}', "line 2: .* is not JSON: NaN is not JSON"),
        (b'{"id": "\xff"}', "line 2: .* is not JSON: 'utf-8' codec"),
        (b"[1]", "line 2: it is no object, so it has no field 'id'"),
        (b'{"id": 1, "id": 2, "n": {"id": 3}}', "line 2: it has the field 'id' 2 times: which of them is the key?"),
        (b'{"id": "\\ud800"}', "line 2: half of a surrogate pair is in 'id': a key must be Unicode"),
        (b'{"id": ' + b"[" * 900 + b"]" * 900 + b"}", "line 2: 'id' is nested too deeply for a key"),
        (b'{"n": 2}', "line 2: there is no field 'id' for the key; --allow-missing-key writes such records"),
        (b"x" * 100, "line 2: 'x{60}…' is not JSON"),
        (b"[" * 100_000, "line 2: .* is not JSON"),
        (b'"' + b"x" * JSON_LINE_BYTES_MAX + b'"', f"line 2: longer than {JSON_LINE_BYTES_MAX} bytes"),
    ],
)
def test_should_name_the_line_when_json_is_malformed(line: bytes, says: str) -> None:
    records = json_lines([b'{"id": 1}\n', line], "id")
    assert next(records).line == 1
    with pytest.raises(LineError, match=says):
        next(records)


def test_should_take_cells_as_long_as_any_line() -> None:
    (record,) = csv_rows([b"id,text\n", b"1," + b"x" * 1_000_000 + b"\n"], "id")
    assert record.value == b'{"id":"1","text":"' + b"x" * 1_000_000 + b'"}'


def test_should_turn_rows_into_objects() -> None:
    lines = [b"\xef\xbb\xbfid,name\r\n", b"1,\xc3\xbc\r\n", b'2,"a\n', b'b"\n', b",x\n"]
    assert list(csv_rows(lines, "id")) == [
        InputRecord(2, b"1", '{"id":"1","name":"ü"}'.encode()),
        InputRecord(4, b"2", b'{"id":"2","name":"a\\nb"}'),
        InputRecord(5, None, b'{"id":"","name":"x"}'),
    ]
    assert list(csv_rows([], None)) == []


CELLS = st.text(max_size=8) | st.sampled_from(
    ["1.10", "a,b", 'a"b', "a\r\nb", "\n", "\r", " a ", "\ufeff", "\u2028", "\0"]
)


def _csv_of(rows: list[list[str]], line_end: str) -> bytes:
    """Written as other programs do."""
    text = StringIO(newline="")
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode()


@given(
    st.lists(st.tuples(CELLS, CELLS).map(list), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_should_keep_the_cells_of_any_csv(rows: list[list[str]], line_end: str, mark: bytes) -> None:
    content = mark + _csv_of([["id", "te,xt"], *rows], line_end)
    records = list(csv_rows(BytesIO(content), "id"))
    assert [json.loads(record.value or b"") for record in records] == [{"id": a, "te,xt": b} for a, b in rows]
    assert [record.key for record in records] == [a.encode() or None for a, _ in rows]


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_should_read_the_records_that_consume_prints(records: list[RecordContent]) -> None:
    columns = columns_of(records)
    rows = RecordRows(
        *("orders", 3, list(range(len(records))), columns.column(2).to_pylist()),
        *(columns.column(0).to_pylist(), columns.column(1).to_pylist(), header_rows(columns.column(3))),
    )
    for printed in (record_formats.json_lines(rows), record_formats.json_lines(rows, with_topic=True)):
        read = printed_records([line + b"\r\n" for line in printed], lambda: -1)
        assert [RecordContent(each.key, each.value, each.timestamp_ms or 0, each.headers) for each in read] == records


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([b"id,name\n", b"1,a\n", b"1\n"], "line 3: fewer cells than the header has, which are 2"),
        ([b"id,name\n", b'1,"a\n', b'b"\n', b'"1\n', b'2"\n'], "line 4: fewer cells than the header has"),
        ([b"id,name\n", b"1,a\n", b"1,2,3\n"], "line 3: more cells than the header has, which are 2"),
        ([b"id,a,a\n", b"1,2,3\n"], "line 1: two columns have the same name; there are id, a, a"),
        ([b"name\n", b"a\n"], "line 1: there is no column 'id'; there are name"),
        ([b"id,name\n", b"1,\xff\n"], "line 2: not UTF-8: invalid start byte at byte 2"),
        ([b"id,name\n", b'1,"a"b\n'], "line 2: not CSV"),
    ],
)
def test_should_name_the_line_when_csv_is_malformed(lines: list[bytes], says: str) -> None:
    with pytest.raises(LineError, match=says):
        list(csv_rows(lines, "id"))


class Reads(io.BytesIO):
    """Gives what it holds in pieces of chosen sizes."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        super().__init__(content)
        self._sizes = sizes

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(self._sizes.pop() if self._sizes else size)


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"\r"])), st.lists(st.integers(1, 5)))
def test_should_give_the_lines_of_a_file(parts: list[bytes], sizes: list[int]) -> None:
    content = b"".join(parts)
    assert list(lines_of(Reads(content, sizes), lambda: None)) == io.BytesIO(content).readlines()


def test_should_hand_out_what_there_is_before_it_waits_for_more() -> None:
    reader, writer = os.pipe()
    heard: list[bytes] = []
    waits: list[list[bytes]] = []

    def wait() -> None:
        waits.append(list(heard))
        os.write(writer, b"ke\n") if len(waits) == 1 else os.close(writer)

    os.write(writer, b"tea\ncoffee\nca")
    with open(reader, "rb") as file:
        for line in lines_of(file, wait):
            heard.append(line)  # noqa: PERF402 - to be seen while it grows
    assert heard == [b"tea\n", b"coffee\n", b"cake\n"]
    assert waits == [heard[:2], heard]


def test_should_take_a_file_for_something_that_never_waits(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"tea\n" * 200_000)
    waits: list[None] = []
    with (tmp_path / "lines").open("rb") as file:
        assert sum(1 for _ in lines_of(file, lambda: waits.append(None))) == 200_000
    assert not waits


def test_should_not_gather_a_line_without_end() -> None:
    first, *_ = lines_of(io.BytesIO(b"x" * (JSON_LINE_BYTES_MAX + (1 << 20))), lambda: None)
    assert JSON_LINE_BYTES_MAX < len(first) <= JSON_LINE_BYTES_MAX + (1 << 20)
