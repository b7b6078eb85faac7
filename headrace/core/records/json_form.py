"""Records as JSON, for people and for any language: `{"records": [...]}`, or a record a line (NDJSON).

    {"key": "N14228", "value": {"carrier": "UA"}, "timestamp": 1763715600000, "headers": {"source": "curl"}}

Going in, a string is its UTF-8 bytes, any other JSON value its compact text, null is no bytes (a tombstone as value);
`keyBase64` and `valueBase64` carry bytes instead. A value must be there, so that a forgotten one is never taken for a
tombstone; key, `timestamp` (default: now) and `headers` (a map, or a list of {"name", "value" | "valueBase64"}) may be
left out. Numbers are what IEEE doubles and Python's whole numbers make of them. Coming out, bytes that are UTF-8 are
text, others Base64; headers are a list, because a map would lose duplicates.

Every refusal is an InvalidRequestError that names the line (from 1) or index (from 0), the field, the value and the
rule; `details` has `line` or `index`, and `field`. Called by the broker (HTTP) and the command line.
"""

import json
import reprlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NoReturn

from headrace.core.errors import BatchTooLargeError, InvalidRequestError
from headrace.core.limits import JSON_DEPTH_MAX, JSON_LINE_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.records.record import Record, RecordHeaders
from headrace.core.types import Offset

ValueFormat = Literal["text", "json"]
"""How values come out: as strings, or as the JSON that they are."""

_RECORD_FIELDS: Final = frozenset({"key", "keyBase64", "value", "valueBase64", "timestamp", "headers"})
_PLACE_FIELDS: Final = frozenset({"topic", "partition", "offset"})
_HEADER_FIELDS: Final = frozenset({"name", "value", "valueBase64"})
_TIMESTAMP_MAX: Final = (1 << 63) - 1
_SHOWN_CHARACTERS: Final = 60


def parse_json_records(body: bytes, *, now_ms: int) -> list[Record]:
    """The records of `{"records": [...]}`; one at least. Raises InvalidRequestError."""
    try:
        document = _DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("records"), list):
        raise _refused("records", f'the body is {_shown(document)}, must be {{"records": [{{"value": ...}}, ...]}}')
    _check_fields(document, frozenset({"records"}), "the body")
    items = document["records"]
    if not items:
        raise _refused("records", "records is [], must hold one record or more")
    return [_record_at(index, item, now_ms) for index, item in enumerate(items)]


def parse_ndjson(body: bytes, now_ms: int) -> list[Record]:
    """The records of a body with one JSON record a line; blank lines are skipped.

    Raises InvalidRequestError, and BatchTooLargeError for a line over JSON_LINE_BYTES_MAX.
    """
    records = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line or line.isspace():
            continue
        try:
            records.append(_record(_item_of_line(line), now_ms))
        except (InvalidRequestError, BatchTooLargeError) as error:
            raise _located(error, "line", number) from error
    if not records:
        raise InvalidRequestError("the body has no lines, must hold one record or more")
    return records


def parse_printed_line(line: bytes, now_ms: int) -> Record:
    """The record of one line as readers print it; `topic`, `partition` and `offset`, where it stood, are left out.

    Raises as `parse_ndjson` does.
    """
    item = _item_of_line(line)
    if isinstance(item, dict):
        item = {name: value for name, value in item.items() if name not in _PLACE_FIELDS}
    return _record(item, now_ms)


def to_json(record: Record, offset: Offset, *, value_format: ValueFormat = "text") -> dict[str, Any]:
    """The record as a JSON object. Where `json` is asked for, a value that is no JSON comes out as with `text`."""
    value_out = _bytes_out if value_format == "text" else _json_out
    return {
        "offset": offset,
        "timestamp": record.timestamp_ms,
        **_bytes_out("key", record.key),
        **value_out("value", record.value),
        "headers": [{"name": name, **_bytes_out("value", value)} for name, value in record.headers],
    }


def _record_at(index: int, item: object, now_ms: int) -> Record:
    try:
        return _record(item, now_ms)
    except InvalidRequestError as error:
        raise _located(error, "index", index) from error


def _item_of_line(line: bytes) -> object:
    if len(line) > JSON_LINE_BYTES_MAX:
        raise BatchTooLargeError(
            f"{len(line)} bytes, a line has {JSON_LINE_BYTES_MAX} at most", limit=JSON_LINE_BYTES_MAX
        )
    try:
        return _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{_shown(line.decode(errors='replace'))} is not JSON: {error}") from error


def _record(item: object, now_ms: int) -> Record:
    if not isinstance(item, dict):
        raise InvalidRequestError(f'{_shown(item)} is not a record, must be an object such as {{"value": "text"}}')
    _check_fields(item, _RECORD_FIELDS, "a record")
    if "value" not in item and "valueBase64" not in item:
        raise _refused("value", "value is missing: give value (null for a tombstone) or valueBase64")
    return Record(
        _bytes_in(item, "key", "keyBase64"),
        _bytes_in(item, "value", "valueBase64"),
        _timestamp(item["timestamp"]) if "timestamp" in item else now_ms,
        _headers(item["headers"]) if "headers" in item else (),
    )


def _bytes_in(item: Mapping[str, Any], name: str, base64_name: str) -> bytes | None:
    if base64_name in item:
        if name in item:
            raise _refused(base64_name, f"{base64_name} stands beside {name}: give one of them")
        return _base64_in(base64_name, item[base64_name])
    value = item.get(name)
    return None if value is None else _text_in(name, value)


def _text_in(name: str, value: object) -> bytes:
    """UTF-8 of a string, compact text of anything else."""
    try:
        return (value if isinstance(value, str) else _ENCODER.encode(value)).encode()
    except UnicodeEncodeError as error:
        raise _refused(name, f"{name} is {_shown(value)}, must be Unicode: half of a surrogate pair is not") from error
    except (ValueError, RecursionError) as error:
        raise _refused(name, f"{name} cannot be written as JSON again: {error}") from error


def _base64_in(name: str, value: object) -> bytes:
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except ValueError as error:
        raise _refused(name, f"{name} is {_shown(value)}, must be Base64 (RFC 4648, section 4): {error}") from error
    raise _refused(name, f"{name} is {_shown(value)}, must be a string of Base64")


def _timestamp(value: object) -> int:
    # As in JSON Schema, 1.0 is a whole number: languages whose numbers are doubles may write it so.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(whole) is int and 0 <= whole <= _TIMESTAMP_MAX:
        return whole
    raise _refused("timestamp", f"timestamp is {_shown(value)}, must be whole milliseconds since 1970 from 0 to 2^63-1")


def _headers(value: object) -> RecordHeaders:
    """From a map or a list; a header's value is read as a record's is."""
    if isinstance(value, dict):
        headers = tuple((_name(name), _header_value(name, entry)) for name, entry in value.items())
    elif isinstance(value, list):
        headers = tuple(map(_listed_header, value))
    else:
        raise _refused("headers", f"headers is {_shown(value)}, must be a map of names to values, or a list")
    if len(headers) > RECORD_HEADERS_MAX:
        raise _refused("headers", f"headers has {len(headers)} entries, at most {RECORD_HEADERS_MAX} are allowed")
    return headers


def _header_value(name: str, value: object) -> bytes | None:
    return None if value is None else _text_in(f"headers.{name}", value)


def _listed_header(entry: object) -> tuple[str, bytes | None]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise _refused("headers", f'headers has {_shown(entry)}, must be {{"name": "...", "value": ...}}')
    _check_fields(entry, _HEADER_FIELDS, "a header")
    return _name(entry["name"]), _bytes_in(entry, "value", "valueBase64")


def _name(name: str) -> str:
    _text_in("headers.name", name)
    return name


def _check_fields(item: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    if not item.keys() <= known:
        field = min(item.keys() - known)
        raise _refused(field, f"{_shown(field)} is not a field of {what}; there are {', '.join(sorted(known))}")


def _bytes_out(name: str, value: bytes | None) -> dict[str, Any]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(value or b"").decode()}


def _json_out(name: str, value: bytes | None) -> dict[str, Any]:
    try:
        parsed = None if value is None else _DECODER.decode(value.decode())
    except (ValueError, RecursionError):
        return _bytes_out(name, value)
    return _bytes_out(name, value) if value and _is_deep(value, parsed) else {name: parsed}


def _is_deep(text: bytes, value: object) -> bool:
    """Whether writing `value` as JSON could exceed the interpreter's stack, though reading `text` did not."""
    if text.count(b"{") + text.count(b"[") <= JSON_DEPTH_MAX:
        return False
    level: Iterable[object] = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _located(
    error: InvalidRequestError | BatchTooLargeError, place: Literal["line", "index"], number: int
) -> InvalidRequestError | BatchTooLargeError:
    where = f"line {number}" if place == "line" else f"records[{number}]"
    return type(error)(f"{where}: {error.message}", **error.details, **{place: number})


def _refused(field: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, field=field)


def _shown(value: object) -> str:
    """The value, shortened, for an error message. Lists and objects may be nested too deeply for `json`."""
    text = reprlib.repr(value) if isinstance(value, dict | list) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_not_json)
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
