"""What users may hand in as key, value or header: bytes, text, or nothing. One place says so, in one sentence."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headrace.client.record import Headers
from headrace.core.errors import LocalError
from headrace.core.limits import RECORD_HEADERS_MAX

Bytes: TypeAlias = bytes | bytearray | memoryview | str | None
HeadersInput: TypeAlias = Iterable[tuple[str, Bytes]] | Mapping[str, Bytes]


def as_bytes(name: str, value: Bytes) -> bytes | None:
    """`value` as bytes: text as UTF-8, None stays None. Raises TypeError with the remedy for anything else."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(wrong_type(name, value))


def wrong_type(name: str, value: object) -> str:
    """The sentence for a `value` that is neither bytes nor text."""
    return (
        f"{name} is {type(value).__name__}, not bytes, str or None: turn it into bytes first,"
        f" for example json.dumps({name}) or str({name})"
    )


def as_headers(headers: HeadersInput) -> Headers:
    """Headers as they are stored: pairs in the order given, duplicates kept. Raises TypeError or LocalError."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = tuple((_header_name(name), as_bytes(f"header {name!r}", value)) for name, value in pairs)
    if len(checked) > RECORD_HEADERS_MAX:
        raise LocalError(f"a record has {len(checked)} headers; the limit is {RECORD_HEADERS_MAX}")
    return checked


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name is {type(name).__name__}, not str: headers are (name, value) pairs")
    return name
