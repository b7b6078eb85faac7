"""Records as JSON, for people and for any language: `{"records": [...]}`, or a record a line (NDJSON).

    {"key": "N14228", "value": {"carrier": "UA"}, "timestamp": 1763715600000, "headers": {"source": "curl"}}

Going in, a string is its UTF-8 bytes, any other JSON value its compact text, null is no bytes (a tombstone as value);
`keyBase64` and `valueBase64` carry bytes instead. A value must be there, so that a forgotten one is never taken for a
tombstone; key, `timestamp` (default: now) and `headers` (a map, or a list of {"name", "value" | "valueBase64"}) may be
left out. A field that is there twice is refused, but a map of headers may name one twice. A byte order mark before a
text is left out. Coming out, bytes that are UTF-8 are text, others Base64; headers are a list, because most readers of
a map lose duplicates. Every refusal is an InvalidRequestError that names the line (from 1) or index (from 0), the
field, the value and the rule; `details` has `line` or `index`, and `field`.

Numbers and doubled names stay as they are written: Python's `json` reads `1.10` as 1.1, `1E5` as 100000.0, a long
decimal as the nearest double, `1e400` as no JSON at all, and keeps the last of two members with one name. `parse_json`
and `json_text` work on a tree instead, and the decoder's work stays in C. NaN and Infinity are no JSON.

    string  str           number  its text, as bytes           object  tuple of (name, value)           array  list

Called by the broker (HTTP) and the command line.
"""

import codecs
import json
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from json.encoder import encode_basestring as quoted
from typing import Any, Final, Literal, NoReturn, TypeAlias

from headrace.core.errors import BatchTooLargeError, InvalidRequestError
from headrace.core.limits import JSON_LINE_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.types import Offset, RecordContent, RecordHeaders

JSON_DEPTH_MAX = 128
"""The depth of nesting above which a value comes out as a string where JSON values were asked for."""


JsonTree: TypeAlias = Any
"""A tree: str, bytes, tuple, list, True, False or None, as above."""

_SCALARS: Final[dict[object, str]] = {None: "null", True: "true", False: "false"}
_BRACKETS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
ValueFormat = Literal["text", "json"]
"""The form in which values come out: as strings, or as the JSON that they are."""
_RECORD_FIELDS: Final = frozenset({"key", "keyBase64", "value", "valueBase64", "timestamp", "headers"})
_PRINTED_FIELDS: Final = _RECORD_FIELDS | {"topic", "partition", "offset"}
_HEADER_FIELDS: Final = frozenset({"name", "value", "valueBase64"})
_TIMESTAMP_MAX: Final = (1 << 63) - 1
_TIMESTAMP_DIGITS: Final = 19
_SHOWN_CHARACTERS: Final = 60
_UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def parse_json(text: str) -> JsonTree:
    """Parse JSON. Raises ValueError where the whole of it is no JSON, RecursionError where it is nested too deeply."""
    return _DECODER.decode(text)


def json_text(tree: JsonTree) -> str:
    """Return the text of a tree. Raises RecursionError; half of a surrogate pair in a string stays one."""
    kind = type(tree)
    if kind is str:
        return quoted(tree)
    if kind is bytes:
        return str(tree, "ascii")
    if kind is tuple:
        return "{" + ",".join([f"{quoted(name)}:{json_text(value)}" for name, value in tree]) + "}"
    if kind is list:
        return "[" + ",".join(map(json_text, tree)) + "]"
    return _SCALARS[tree]


def is_deeper(text: str, limit: int) -> bool:
    """Return whether arrays and objects are nested deeper than that. `text` is JSON."""
    if text.count("{") + text.count("[") <= limit:
        return False
    depth = 0
    for token in _BRACKETS.findall(text):
        if token in "[{":
            depth += 1
            if depth > limit:
                return True
        elif token in "]}":
            depth -= 1
    return False


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(
    parse_float=str.encode,
    parse_int=str.encode,
    parse_constant=_not_json,
    object_pairs_hook=tuple,
)


def parse_json_records(body: bytes, *, now_ms: int) -> list[RecordContent]:
    """Return the records of `{"records": [...]}`; one at least. Raises InvalidRequestError."""
    try:
        document = _parsed(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    items = dict(document).get("records") if isinstance(document, tuple) else None
    if not isinstance(items, list):
        raise _refused("records", f'the body is {_shown(document)}, must be {{"records": [{{"value": ...}}, ...]}}')
    _fields(document, frozenset({"records"}), "the body")
    if not items:
        raise _refused("records", "records is [], must hold one record or more")
    return [_record_at(index, item, now_ms) for index, item in enumerate(items)]


def parse_ndjson(body: bytes, now_ms: int) -> list[RecordContent]:
    """Return the records of a body with one JSON record a line; blank lines are skipped.

    Raises InvalidRequestError, and BatchTooLargeError for a line over JSON_LINE_BYTES_MAX.
    """
    records = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line or line.isspace():
            continue
        try:
            records.append(_record(_item_of_line(line), now_ms, _RECORD_FIELDS))
        except (InvalidRequestError, BatchTooLargeError) as error:
            raise _located(error, "line", number) from error
    if not records:
        raise InvalidRequestError("the body has no lines, must hold one record or more")
    return records


def parse_printed_line(line: bytes, now_ms: int) -> RecordContent:
    """Return the record of one line as readers print it; `topic`, `partition` and `offset`, where it stood, are left
    out.

    Raises what `parse_ndjson` raises.
    """
    return _record(_item_of_line(line), now_ms, _PRINTED_FIELDS)


def to_json(record: RecordContent, offset: Offset) -> dict[str, Any]:
    """Return the record as a JSON object, its value as text."""
    return {
        "offset": offset,
        "timestamp": record.timestamp_ms,
        **_bytes_out("key", record.key),
        **_bytes_out("value", record.value),
        "headers": [{"name": name, **_bytes_out("value", value)} for name, value in record.headers],
    }


def json_line(record: RecordContent, offset: Offset, *, value_format: ValueFormat = "text") -> str:
    """Return the same as text, in one line.

    Where `json` is asked for, a value that is JSON stands in it as it is written, except that line ends between its
    tokens are spaces; one that is no JSON, or is nested too deeply, comes out as with `text`.
    """
    as_json = _as_it_is(record.value) if value_format == "json" else None
    value = _member_out("value", record.value) if as_json is None else f'"value": {as_json}'
    headers = ", ".join(
        [f'{{"name": {quoted(name)}, {_member_out("value", content)}}}' for name, content in record.headers]
    )
    return (
        f'{{"offset": {offset}, "timestamp": {record.timestamp_ms}, {_member_out("key", record.key)}, {value},'
        f' "headers": [{headers}]}}'
    )


def _record_at(index: int, item: JsonTree, now_ms: int) -> RecordContent:
    try:
        return _record(item, now_ms, _RECORD_FIELDS)
    except InvalidRequestError as error:
        raise _located(error, "index", index) from error


def _item_of_line(line: bytes) -> JsonTree:
    if len(line) > JSON_LINE_BYTES_MAX:
        raise BatchTooLargeError(
            f"{len(line)} bytes, a line has {JSON_LINE_BYTES_MAX} at most", limit=JSON_LINE_BYTES_MAX
        )
    try:
        return _parsed(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{_shown(line.decode(errors='replace'))} is not JSON: {error}") from error


def _parsed(content: bytes) -> JsonTree:
    """Parse JSON. Raises ValueError and RecursionError."""
    if content.startswith(_UTF16_MARKS):
        raise ValueError("it begins with the byte order mark of UTF-16: send UTF-8")
    return parse_json(content.removeprefix(codecs.BOM_UTF8).decode())


def _record(item: JsonTree, now_ms: int, known: frozenset[str]) -> RecordContent:
    if not isinstance(item, tuple):
        raise InvalidRequestError(f'{_shown(item)} is not a record, must be an object such as {{"value": "text"}}')
    fields = _fields(item, known, "a record")
    if "value" not in fields and "valueBase64" not in fields:
        raise _refused("value", "value is missing: give value (null for a tombstone) or valueBase64")
    return RecordContent(
        _bytes_in(fields, "key", "keyBase64"),
        _bytes_in(fields, "value", "valueBase64"),
        _timestamp(fields["timestamp"]) if "timestamp" in fields else now_ms,
        _headers(fields["headers"]) if "headers" in fields else (),
    )


def _fields(members: tuple[tuple[str, JsonTree], ...], known: frozenset[str], what: str) -> Mapping[str, JsonTree]:
    """Return an object's members by name: each name is known, and there once."""
    fields = dict(members)
    if not fields.keys() <= known:
        field = min(fields.keys() - known)
        raise _refused(field, f"{_shown(field)} is not a field of {what}; there are {', '.join(sorted(known))}")
    if len(fields) < len(members):
        field, times = Counter(name for name, _ in members).most_common(1)[0]
        raise _refused(field, f"{_shown(field)} is there {times} times in {what}: give it once")
    return fields


def _bytes_in(fields: Mapping[str, JsonTree], name: str, base64_name: str) -> bytes | None:
    if base64_name in fields:
        if name in fields:
            raise _refused(base64_name, f"{base64_name} stands beside {name}: give one of them")
        return _base64_in(base64_name, fields[base64_name])
    return _value_in(name, fields.get(name))


def _value_in(name: str, value: JsonTree) -> bytes | None:
    """Return UTF-8 of a string, compact text of anything else, nothing for null."""
    if value is None or isinstance(value, bytes):  # A number is its text already.
        return value
    try:
        return (value if isinstance(value, str) else json_text(value)).encode()
    except UnicodeEncodeError as error:
        raise _refused(name, f"{name} is {_shown(value)}, must be Unicode: half of a surrogate pair is not") from error
    except RecursionError as error:
        raise _refused(name, f"{name} cannot be written as JSON again: {error}") from error


def _base64_in(name: str, value: JsonTree) -> bytes:
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except ValueError as error:
        raise _refused(name, f"{name} is {_shown(value)}, must be Base64 (RFC 4648, section 4): {error}") from error
    raise _refused(name, f"{name} is {_shown(value)}, must be a string of Base64")


def _timestamp(value: JsonTree) -> int:
    whole = _whole(value) if isinstance(value, bytes) else None
    if whole is not None and whole <= _TIMESTAMP_MAX:
        return whole
    raise _refused("timestamp", f"timestamp is {_shown(value)}, must be whole milliseconds since 1970 from 0 to 2^63-1")


def _whole(number: bytes) -> int | None:
    """Return a whole number. As in JSON Schema, 1.0 is one: languages whose numbers are doubles may write it so."""
    if number.isdigit() and len(number) <= _TIMESTAMP_DIGITS:
        return int(number)
    from decimal import Decimal, DecimalException  # This is rarely needed.

    try:
        exact = Decimal(number.decode())
        return int(exact) if 0 <= exact <= _TIMESTAMP_MAX and exact == exact.to_integral_value() else None
    except DecimalException:  # The exponent is beyond all bounds.
        return None


def _headers(value: JsonTree) -> RecordHeaders:
    """Return headers from a map or a list; a header's value is read as a record's is."""
    if isinstance(value, tuple):
        headers = tuple([(_name(name), _value_in(f"headers.{name}", entry)) for name, entry in value])
    elif isinstance(value, list):
        headers = tuple(map(_listed_header, value))
    else:
        raise _refused("headers", f"headers is {_shown(value)}, must be a map of names to values, or a list")
    if len(headers) > RECORD_HEADERS_MAX:
        raise _refused("headers", f"headers has {len(headers)} entries, at most {RECORD_HEADERS_MAX} are allowed")
    return headers


def _listed_header(entry: JsonTree) -> tuple[str, bytes | None]:
    if not isinstance(entry, tuple) or not isinstance(dict(entry).get("name"), str):
        raise _refused("headers", f'headers has {_shown(entry)}, must be {{"name": "...", "value": ...}}')
    fields = _fields(entry, _HEADER_FIELDS, "a header")
    return _name(fields["name"]), _bytes_in(fields, "value", "valueBase64")


def _name(name: str) -> str:
    _value_in("headers.name", name)
    return name


def _bytes_out(name: str, value: bytes | None) -> dict[str, Any]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(value or b"").decode()}


def _member_out(name: str, value: bytes | None) -> str:
    """Return the same as text."""
    if value is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {quoted(value.decode())}'
    except UnicodeDecodeError:
        return f'"{name}Base64": "{b64encode(value).decode()}"'


def _as_it_is(value: bytes | None) -> str | None:
    """Return the value as a part of one line; None where it is no JSON, or is nested too deeply for some reader."""
    try:
        text = "null" if value is None else value.decode()
        parse_json(text)
    except (ValueError, RecursionError):
        return None
    return None if is_deeper(text, JSON_DEPTH_MAX) else text.replace("\r", " ").replace("\n", " ")


def _located(
    error: InvalidRequestError | BatchTooLargeError, place: Literal["line", "index"], number: int
) -> InvalidRequestError | BatchTooLargeError:
    where = f"line {number}" if place == "line" else f"records[{number}]"
    return type(error)(f"{where}: {error.message}", **error.details, **{place: number})


def _refused(field: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, field=field)


def _shown(value: JsonTree) -> str:
    """Return the value, shortened, for an error message; what a terminal would not print is escaped."""
    try:
        text = json_text(value)
    except RecursionError:
        text = "[..." if isinstance(value, list) else "{..."
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:_SHOWN_CHARACTERS]
    )
    return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}..."
