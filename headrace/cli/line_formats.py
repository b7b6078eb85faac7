"""The lines of the input of `headrace produce`, and the records that `--format` makes of them.

Lines come in large pieces from a file, and at once from a pipe where a person types. A line that cannot be read is
named by its number.

    lines    each line is a value, byte for byte
    jsonl    each line is a JSON value, kept as it is written; blank lines are left out
    csv      the first row names the columns, each further row becomes a JSON object of texts
    records  each line is a record as `headrace consume -o json` prints it, with key, headers, time and tombstones

With `--key-field` the key is that field of the object: text as UTF-8, other values as compact JSON (numbers as they are
written), null as no key; an object without it is an error, unless that is asked for. A byte order mark before all
belongs to no line. All but `lines_of` is pure.
"""

import csv
import json
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO, UnsupportedOperation
from typing import BinaryIO, Final, NamedTuple

from headrace.core.errors import InvalidRequestError, LocalError
from headrace.core.limits import JSON_LINE_BYTES_MAX
from headrace.core.records.json_records import JsonTree, json_text, parse_json, parse_printed_line
from headrace.core.types import RecordHeaders

_READ_BYTES: Final = 256 << 10
_SHOWN_CHARACTERS = 60
_compact: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark that begins text files of some systems."""
_COMPRESSED: Final = {b"\x1f\x8b": "zcat", b"\x28\xb5\x2f\xfd": "zstdcat", b"\xfd7zXZ\x00": "xzcat"}
"""The first bytes of files that hold no lines, and the command that makes lines of them."""


def lines_of(file: BinaryIO, before_waiting: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines with their ends; `before_waiting` is called before each read that may take without limit.

    A line that is longer than any format takes comes in its first part, so that memory stays bounded.
    """
    read = getattr(file, "read1", file.read)  # Read what the pipe has, and do not wait until so many bytes have come.
    rest = b""
    while True:
        if not _has_something(file):
            before_waiting()
        piece = read(_READ_BYTES)
        lines = BytesIO(rest + piece).readlines()
        if not piece:
            yield from lines
            return
        rest = b"" if lines[-1].endswith(b"\n") or len(lines[-1]) > JSON_LINE_BYTES_MAX else lines.pop()
        yield from lines


def _has_something(file: BinaryIO) -> bool:
    """Return whether a read gives something (or the end) at once. Reads leave nothing behind in the file's own
    buffer."""
    try:
        return bool(select.select([file], [], [], 0)[0])
    except UnsupportedOperation:  # It is no file of the operating system.
        return False


class InputRecord(NamedTuple):
    line: int
    """The line's number, from 1; the last line where the record has several (CSV)."""
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()
    timestamp_ms: int | None = None
    """The time; None: the time when it is sent."""


class LineError(LocalError):
    """A line of the input cannot be read: its number and the reason are in the message."""

    code = "Line"

    @property
    def line(self) -> int:
        """Return the line that is to be read again."""
        line = self.details["line"]
        assert isinstance(line, int), "whoever raises it says so"
        return line


def _line_error(line: int, reason: str) -> LineError:
    return LineError(f"line {line}: {reason}", line=line)


def plain_lines(lines: Iterable[bytes]) -> Iterator[InputRecord]:
    for number, line in _numbered(lines):
        _check_length(number, line)
        yield InputRecord(number, None, line.removesuffix(b"\n").removesuffix(b"\r"))


def json_lines(lines: Iterable[bytes], key_field: str | None, *, may_lack_key: bool = False) -> Iterator[InputRecord]:
    for number, text in _json_texts(lines):
        try:
            document = parse_json(text.decode())
        except (ValueError, RecursionError) as error:
            raise _line_error(number, f"{_shown(text)} is not JSON: {error}") from error
        lacks_key = isinstance(document, tuple) and all(name != key_field for name, _ in document)
        if key_field is not None and lacks_key and not may_lack_key:
            raise _line_error(
                number,
                f"there is no field {key_field!r} for the key; --allow-missing-key writes such records without one",
            )
        yield InputRecord(number, _key_of(number, document, key_field), text)


def printed_records(lines: Iterable[bytes], clock_ms: Callable[[], int]) -> Iterator[InputRecord]:
    """Yield the records; one without a time gets that of `clock_ms`."""
    for number, text in _json_texts(lines):
        try:
            record = parse_printed_line(text, clock_ms())
        except InvalidRequestError as error:
            raise _line_error(number, error.message) from error
        yield InputRecord(number, record.key, record.value, record.headers, record.timestamp_ms)


def csv_rows(lines: Iterable[bytes], key_field: str | None) -> Iterator[InputRecord]:
    # The limit is that of the whole process, which reads no other CSV; 128 KiB by default.
    csv.field_size_limit(JSON_LINE_BYTES_MAX)
    reader = csv.reader(_texts(lines), strict=True)
    try:
        fields = next(reader, None)
        if fields is None:
            return
        if len(set(fields)) < len(fields):
            raise _line_error(1, f"two columns have the same name; there are {', '.join(fields)}")
        if key_field is not None and key_field not in fields:
            raise _line_error(1, f"there is no column {key_field!r}; there are {', '.join(fields)}")
        first_line = reader.line_num + 1
        for row in reader:
            if len(row) not in (0, len(fields)):
                amount = "more" if len(row) > len(fields) else "fewer"
                raise _line_error(first_line, f"{amount} cells than the header has, which are {len(fields)}")
            if row:
                yield _csv_record(reader.line_num, row, fields, key_field)
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise _line_error(reader.line_num, f"not CSV: {error}") from error


def _csv_record(line: int, row: Sequence[str], fields: Sequence[str], key_field: str | None) -> InputRecord:
    document = dict(zip(fields, row, strict=True))
    key = document[key_field].encode() if key_field is not None else None
    return InputRecord(line, key or None, _compact(document).encode())


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield lines with numbers from 1, without a byte order mark. Raises LineError for compressed input."""
    for number, line in enumerate(lines, 1):
        if number > 1:
            yield number, line
            continue
        for magic, program in _COMPRESSED.items():
            if line.startswith(magic):
                raise _line_error(
                    1, f"the input is compressed: `{program} FILE | headrace produce TOPIC` writes the lines in it"
                )
        first = line.removeprefix(_BOM)
        if first or not line:
            yield number, first


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in _numbered(lines):
        _check_length(number, line)
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise _line_error(number, f"not UTF-8: {error.reason} at byte {error.start}") from error


def _json_texts(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, without the space around them, with their numbers."""
    for number, line in _numbered(lines):
        text = line.strip()
        if text:
            _check_length(number, text)
            yield number, text


def _key_of(line: int, document: JsonTree, key_field: str | None) -> bytes | None:
    if key_field is None:
        return None
    if not isinstance(document, tuple):
        raise _line_error(line, f"it is no object, so it has no field {key_field!r} for the key")
    found = [value for name, value in document if name == key_field]
    if len(found) > 1:
        raise _line_error(line, f"it has the field {key_field!r} {len(found)} times: which of them is the key?")
    key = found[0] if found else None
    if key is None or isinstance(key, bytes):  # A number is its text already.
        return key
    try:
        return (key if isinstance(key, str) else json_text(key)).encode()
    except UnicodeEncodeError as error:
        raise _line_error(line, f"half of a surrogate pair is in {key_field!r}: a key must be Unicode") from error
    except RecursionError as error:
        raise _line_error(line, f"{key_field!r} is nested too deeply for a key") from error


def _check_length(line: int, content: bytes) -> None:
    if len(content) > JSON_LINE_BYTES_MAX:
        raise _line_error(line, f"longer than {JSON_LINE_BYTES_MAX} bytes, which a line has at most")


def _shown(text: bytes) -> str:
    shown = text.decode(errors="replace")
    return repr(shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…")
