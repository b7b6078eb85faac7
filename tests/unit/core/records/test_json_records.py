"""Records as JSON: the rules of what goes in and comes out, and refusals that name place, field, value and rule."""

import json
from contextlib import suppress
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BatchTooLargeError, HeadraceError, InvalidRequestError
from headrace.core.limits import JSON_LINE_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.records.json_records import (
    JSON_DEPTH_MAX,
    ValueFormat,
    json_line,
    parse_json_records,
    parse_ndjson,
    parse_printed_line,
    to_json,
)
from headrace.core.types import Offset, RecordContent
from tests.support.batches import RECORDS

NOW_MS = 1_763_715_600_000
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def parsed(record: Any) -> RecordContent:
    """The one record of a body, by all ways in."""
    return parsed_text(json.dumps(record))


def parsed_text(text: str) -> RecordContent:
    (by_list,) = parse_json_records(f'{{"records": [{text}]}}'.encode(), now_ms=NOW_MS)
    (by_line,) = parse_ndjson(text.encode(), NOW_MS)
    assert by_list == by_line == parse_printed_line(text.encode(), NOW_MS)
    return by_line


def line_of(record: RecordContent, value_format: ValueFormat = "text") -> dict[str, Any]:
    line = json_line(record, Offset(7), value_format=value_format)
    assert not set(line) & set("\r\n")
    document: dict[str, Any] = json.loads(line)
    return document


@given(record=RECORDS)
def test_should_come_back_from_its_own_output(record: RecordContent) -> None:
    out = line_of(record)
    assert out == to_json(record, Offset(7))
    assert out.pop("offset") == 7
    assert parsed(json.loads(json.dumps(out))) == record


@given(value=JSON_VALUES.filter(lambda value: not isinstance(value, str)))
def test_should_come_back_as_json_when_json_is_asked_for(value: Any) -> None:
    record = parsed({"value": value})
    assert record.value is None if value is None else record.value == compact(value)
    assert line_of(record, "json")["value"] == value


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"value": "ü"}, RecordContent(None, "ü".encode(), NOW_MS)),
        ({"value": ""}, RecordContent(None, b"", NOW_MS)),
        ({"value": None}, RecordContent(None, None, NOW_MS)),
        ({"value": {"b": [1, 2.5], "a": "ü"}}, RecordContent(None, '{"b":[1,2.5],"a":"ü"}'.encode(), NOW_MS)),
        ({"value": 12, "key": True}, RecordContent(b"true", b"12", NOW_MS)),
        ({"key": "k", "value": "v", "timestamp": 5}, RecordContent(b"k", b"v", 5)),
        ({"value": "v", "timestamp": 5.0}, RecordContent(None, b"v", 5)),
        ({"key": None, "value": False, "timestamp": 0}, RecordContent(None, b"false", 0)),
        ({"keyBase64": "AP8=", "valueBase64": "/w=="}, RecordContent(b"\x00\xff", b"\xff", NOW_MS)),
        (
            {"value": "v", "headers": {"a": "1", "b": None}},
            RecordContent(None, b"v", NOW_MS, (("a", b"1"), ("b", None))),
        ),
        (
            {"value": "v", "headers": [{"name": "a", "value": 1}, {"name": "a", "valueBase64": "/w=="}]},
            RecordContent(None, b"v", NOW_MS, (("a", b"1"), ("a", b"\xff"))),
        ),
        ({"value": "v", "headers": [{"name": "a"}]}, RecordContent(None, b"v", NOW_MS, (("a", None),))),
    ],
)
def test_should_read_strings_json_and_base64(record: Any, expected: RecordContent) -> None:
    assert parsed(record) == expected


NUMBERS = [
    *("1.10", "1E5", "1e+05", "-0", "-0.0", "1e400", "1E-400", "10000000001922600.0", "9007199254740993"),
    *("123456789012345678901234567890.123456789", "0.1000000000000000055511151231257827", "1" * 5000),
]


@pytest.mark.parametrize("number", NUMBERS)
def test_should_keep_each_number_as_it_is_written(number: str) -> None:
    record = parsed_text(f'{{"key": {number}, "value": [{number}, {{"a": {number}}}], "headers": {{"h": {number}}}}}')
    assert record.key == number.encode()
    assert record.value == f'[{number},{{"a":{number}}}]'.encode()
    assert record.headers == (("h", number.encode()),)
    assert f'"value": [{number},{{"a":{number}}}],' in json_line(record, Offset(0), value_format="json")


JSON_SPACE = st.text(" \t\r", max_size=2)
JSON_NUMBERS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?\Z")
JSON_STRINGS = st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False))
JSON_TEXTS = st.recursive(
    st.sampled_from(["null", "true", "false", "{}", "[]"]) | JSON_NUMBERS | JSON_STRINGS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda texts: [*"[", *_joined(texts), "]"])
        | st.lists(st.tuples(JSON_STRINGS, inner), max_size=3).map(
            lambda members: [*"{", *_joined([[name, ":", value] for name, value in members]), "}"]
        )
    ),
    max_leaves=8,
)
"""JSON as its tokens, in lists in lists."""


def _joined(parts: list[Any]) -> list[Any]:
    return [token for part in parts for token in (",", part)][1:]


def _tokens(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [token for part in tree for token in _tokens(part)]


@given(tree=JSON_TEXTS, spaces=st.lists(JSON_SPACE, min_size=1, max_size=5))
def test_should_keep_any_json_but_the_space_between_its_tokens(tree: Any, spaces: list[str]) -> None:
    tokens = _tokens(tree)
    value = "".join(space + token for space, token in zip(cycle(spaces), tokens, strict=False))
    record = parsed_text(f'{{"key": [{value}], "value": [{value}], "headers": {{"h": [{value}], "h": "2"}}}}')
    compacted = f"[{''.join(tokens)}]".encode()
    assert (record.key, record.value) == (compacted, compacted)
    assert record.headers == (("h", compacted), ("h", b"2"))
    assert f'"value": {compacted.decode()}, ' in json_line(record, Offset(0), value_format="json")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ('{"x": [ {"a" : 1.0,\t"b": 2, "a":null} ] }', '{"x":[{"a":1.0,"b":2,"a":null}]}'),
        (" \t{ } ", "{}"),
        ("[ true , false,null ]", "[true,false,null]"),
        (r'{"\u00e9\/": "\u00E9 \ud83d\ude00 \u0041\n\u0007\""}', r'{"é/":"é 😀 A\n\u0007\""}'),
    ],
)
def test_should_keep_all_but_space_between_tokens_and_long_escapes(value: str, expected: str) -> None:
    assert parsed_text(f'{{"value": {value}}}').value == expected.encode()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a":1.10,"a":1E5}', '{"a":1.10,"a":1E5}'),
        (b' {\r\n "a" : "\\u00e9"\n} ', r' {   "a" : "\u00e9" } '),
        (b"1e400", "1e400"),
        (b"Infinity", '"Infinity"'),
    ],
)
def test_should_show_json_values_as_they_are_written_in_one_line(value: bytes, shown: str) -> None:
    line = json_line(RecordContent(None, value, 5), Offset(0), value_format="json")
    assert line == f'{{"offset": 0, "timestamp": 5, "key": null, "value": {shown}, "headers": []}}'


def test_should_keep_headers_that_a_map_names_twice() -> None:
    assert parsed_text('{"value": "v", "headers": {"a": "1", "b": null, "a": "2"}}').headers == (
        ("a", b"1"),
        ("b", None),
        ("a", b"2"),
    )


@pytest.mark.parametrize("time", ["5", "5.0", "5.000", "0.5e1", "50E-1", "9007199254740993.0", "-0", "0.0"])
def test_should_take_times_that_are_whole_however_they_are_written(time: str) -> None:
    expected = {"9007199254740993.0": 9007199254740993, "-0": 0, "0.0": 0}.get(time, 5)
    assert parsed_text(f'{{"value": 1, "timestamp": {time}}}').timestamp_ms == expected


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_should_leave_out_a_byte_order_mark(mark: bytes) -> None:
    expected = RecordContent(None, "ü".encode(), NOW_MS)
    record = '{"value": "ü"}'.encode()
    assert parse_json_records(mark + b'{"records": [%s]}' % record, now_ms=NOW_MS) == [expected]
    assert parse_ndjson(mark + record + b"\r\n" + mark + record, NOW_MS) == [expected, expected]
    assert parse_printed_line(mark + record, NOW_MS) == expected


def test_should_say_what_utf16_is() -> None:
    body = '{"records": [{"value": 1}]}'.encode("utf-16")
    rule = "byte order mark of UTF-16: send UTF-8"
    with pytest.raises(InvalidRequestError, match=rule):
        parse_json_records(body, now_ms=NOW_MS)
    with pytest.raises(InvalidRequestError, match=f"line 1: .*{rule}"):
        parse_ndjson(body, NOW_MS)


def test_should_write_text_where_bytes_are_utf8_and_base64_elsewhere() -> None:
    record = RecordContent(b"\xff", "ü".encode(), 5, (("a", b"\xfe"), ("b", None), ("c", b"x")))
    assert to_json(record, Offset(3)) == {
        "offset": 3,
        "timestamp": 5,
        "keyBase64": "/w==",
        "value": "ü",
        "headers": [{"name": "a", "valueBase64": "/g=="}, {"name": "b", "value": None}, {"name": "c", "value": "x"}],
    }


DEEP = b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1)
SHALLOW = b"[" + b",".join([b'{"a":1}'] * JSON_DEPTH_MAX) + b"]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1}', {"value": {"a": 1}}),
        (b"not json", {"value": "not json"}),
        (b"NaN", {"value": "NaN"}),
        (b"\xff", {"valueBase64": "/w=="}),
        (b"", {"value": ""}),
        (None, {"value": None}),
        (SHALLOW, {"value": [{"a": 1}] * JSON_DEPTH_MAX}),
        (DEEP, {"value": DEEP.decode()}),
        (b'{"a":%s,"a":1}' % DEEP, {"value": f'{{"a":{DEEP.decode()},"a":1}}'}),
        (b'["%s]"]' % DEEP[:200], {"value": [DEEP[:200].decode() + "]"]}),
        (b"[" * 100_000, {"value": "[" * 100_000}),
    ],
)
def test_should_write_json_values_where_they_are_json(value: bytes | None, expected: dict[str, Any]) -> None:
    out = line_of(RecordContent(None, value, 5), "json")
    assert {name: out[name] for name in out if name.startswith("value")} == expected


def test_should_skip_blank_lines_and_take_carriage_returns() -> None:
    body = b'\r\n{"value": "a\xe2\x80\xa8b"}\r\n\n  \n{"value": 2}\n'
    assert [record.value for record in parse_ndjson(body, NOW_MS)] == ["a\u2028b".encode(), b"2"]


@given(record=RECORDS)
def test_should_read_what_it_printed_wherever_it_stood(record: RecordContent) -> None:
    printed = {"topic": "flights", "partition": 3, **to_json(record, Offset(5))}
    assert parse_printed_line(json.dumps(printed).encode(), NOW_MS) == record


@pytest.mark.parametrize(
    ("line", "rule"),
    [(b"5", "5 is not a record"), (b"{", "is not JSON"), (b'{"value": 1, "leader": 0}', '"leader" is not a field')],
)
def test_should_refuse_printed_lines_that_are_no_records(line: bytes, rule: str) -> None:
    with pytest.raises(InvalidRequestError, match=rule):
        parse_printed_line(line, NOW_MS)


def refusal(body: bytes) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse_ndjson(body, NOW_MS)
    return caught.value


@pytest.mark.parametrize(
    ("line", "field", "rule"),
    [
        (b"{", None, r"""line 2: "{" is not JSON: Expecting property name"""),
        (b'"\xff"', None, "line 2: .* is not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"value": NaN}', None, "is not JSON: NaN is not JSON"),
        (b"[" * 100_000, None, r'line 2: "\[+\.\.\. is not JSON: maximum recursion'),
        (b"1" * 5000, None, r"line 2: 1+\.\.\. is not a record"),
        (b"[1]", None, r"line 2: \[1\] is not a record, must be an object"),
        (b'{"carrier": "UA", "value": 1}', "carrier", 'line 2: "carrier" is not a field of a record; there are'),
        (b'{"key": "a"}', "value", "line 2: value is missing: give value"),
        (b'{"value": 1, "valueBase64": ""}', "valueBase64", "valueBase64 stands beside value"),
        (b'{"valueBase64": "a"}', "valueBase64", 'valueBase64 is "a", must be Base64'),
        (b'{"valueBase64": "a-=="}', "valueBase64", "must be Base64"),
        (b'{"valueBase64": "\xc3\xbc"}', "valueBase64", "must be Base64"),
        (b'{"valueBase64": 5}', "valueBase64", "valueBase64 is 5, must be a string of Base64"),
        (b'{"value": "\\ud800"}', "value", "must be Unicode"),
        (b'{"value": {"a": ["\\udc00"]}}', "value", r'value is {"a":\["\\udc00"\]}, must be Unicode'),
        (b'{"value": ' + b"[" * 900 + b"]" * 900 + b"}", "value", "value cannot be written as JSON again"),
        (b'{"key": 1, "value": 1, "key": 2}', "key", 'line 2: "key" is there 2 times in a record: give it once'),
        (b'{"value": 1, "value": 1}', "value", '"value" is there 2 times in a record'),
        (b'{"value": 1, "timestamp": "now"}', "timestamp", 'timestamp is "now", must be whole milliseconds'),
        (b'{"value": 1, "timestamp": true}', "timestamp", "timestamp is true"),
        (b'{"value": 1, "timestamp": -1}', "timestamp", "timestamp is -1"),
        (b'{"value": 1, "timestamp": 1.5}', "timestamp", "timestamp is 1.5"),
        (b'{"value": 1, "timestamp": 1e19}', "timestamp", "timestamp is 1e19"),
        (b'{"value": 1, "timestamp": 9223372036854775807.5}', "timestamp", "timestamp is 9223372036854775807.5"),
        (b'{"value": 1, "timestamp": 1e99999999999999999999}', "timestamp", "timestamp is 1e9+, must be"),
        (b'{"value": 1, "timestamp": 9223372036854775808}', "timestamp", "timestamp is 9223372036854775808"),
        (b'{"value": 1, "headers": 5}', "headers", "headers is 5, must be a map"),
        (b'{"value": 1, "headers": [5]}', "headers", "headers has 5, must be"),
        (b'{"value": 1, "headers": [{"name": 5}]}', "headers", 'headers has {"name":5}, must be'),
        (b'{"value": 1, "headers": [{"name": "a", "name": "b"}]}', "name", '"name" is there 2 times in a header'),
        (b'{"value": 1, "headers": [{"name": "a", "v": 1}]}', "v", '"v" is not a field of a header'),
        (b'{"value": 1, "headers": {"\\ud800": ""}}', "headers.name", "must be Unicode"),
        (b'{"value": 1, "headers": {"a": "\\ud800"}}', "headers.a", "must be Unicode"),
    ],
)
def test_should_name_line_field_value_and_rule(line: bytes, field: str | None, rule: str) -> None:
    with pytest.raises(InvalidRequestError, match=rule) as caught:
        parse_ndjson(b'{"value": 1}\n' + line, NOW_MS)
    assert caught.value.details == ({"line": 2} if field is None else {"line": 2, "field": field})


def test_should_refuse_too_many_headers() -> None:
    line = json.dumps({"value": 1, "headers": [{"name": "a"}] * (RECORD_HEADERS_MAX + 1)}).encode()
    assert f"headers has {RECORD_HEADERS_MAX + 1} entries, at most {RECORD_HEADERS_MAX}" in refusal(line).message


def test_should_refuse_a_line_over_the_limit_and_shorten_values_it_shows() -> None:
    error = refusal(b'{"value": 1}\n' + b" " * JSON_LINE_BYTES_MAX + b"1")
    assert isinstance(error, BatchTooLargeError)
    assert error.details == {"limit": JSON_LINE_BYTES_MAX, "line": 2}
    assert len(refusal(b'{"timestamp": "%s", "value": 1}' % (b"x" * 1000)).message) < 200


@pytest.mark.parametrize("body", [b"", b"\n \n"])
def test_should_refuse_a_body_without_lines(body: bytes) -> None:
    assert "must hold one record or more" in refusal(body).message


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "the body is not JSON: Expecting value"),
        (b"\xff", "the body is not JSON: 'utf-8' codec"),
        (b"[" * 100_000, "the body is not JSON: maximum recursion"),
        (b"[]", r'the body is \[\], must be \{"records": \[\{"value"'),
        (b'{"records": {}}', r'must be \{"records": \[\{"value"'),
        (b'{"records": [], "records": []}', '"records" is there 2 times in the body'),
        (b'{"records": [{"value": 1}], "acks": 1}', '"acks" is not a field of the body; there are records'),
        (b'{"records": []}', "records is \\[\\], must hold one record or more"),
        (b'{"records": [{"value": 1}, {"value": 1, "timestamp": null}]}', r"records\[1\]: timestamp is null, must be"),
        (b'{"records": [' + b"[" * 800 + b"]" * 800 + b"]}", r"records\[0\]: .* is not a record"),
    ],
)
def test_should_name_index_field_value_and_rule(body: bytes, rule: str) -> None:
    with pytest.raises(InvalidRequestError, match=rule):
        parse_json_records(body, now_ms=NOW_MS)


def test_should_give_the_index_apart_from_the_sentence() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_json_records(b'{"records": [{"value": 1}, {}]}', now_ms=NOW_MS)
    assert caught.value.details == {"index": 1, "field": "value"}


@given(body=st.binary(max_size=60) | st.text(alphabet='{}[]":,\n value0\\u', max_size=60).map(str.encode))
def test_should_give_records_or_refuse_whatever_comes(body: bytes) -> None:
    with suppress(InvalidRequestError):
        assert parse_ndjson(body, NOW_MS)
    with suppress(InvalidRequestError):
        assert parse_json_records(body, now_ms=NOW_MS)
