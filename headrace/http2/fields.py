"""Header fields between HTTP/2 and what programs speak: checked on the way out, merged on the way in.

HTTP/2 spells names in lower case, has pseudo headers where HTTP/1.1 has lines, and knows no connection headers
(RFC 9113 sections 8.2 and 8.3). Everything here is checked before it reaches the engine, because a bad field found
half-way through HPACK would spoil the connection for every other stream.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from headrace.core import limits
from headrace.http2.events import Fields, LocalProtocolError

_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"host"})
"""Connection headers (RFC 9113 section 8.2.2), and `host`, which travels as `:authority`."""
_FIELD_OVERHEAD_BYTES = 32
"""How RFC 9113 section 6.5.2 counts a field beside its text."""
_NAMES_REMEMBERED_MAX = 256
"""Programs use few names, and each with every message."""
_NAME = re.compile(r"[0-9a-z!#$%&'*+.^_`|~-]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00\r\n]|^[ \t]|[ \t]$")


def encode_fields(headers: Iterable[tuple[str, str]]) -> Fields:
    """Ordinary fields for the wire, connection headers left out. Raises `LocalProtocolError` on an invalid one."""
    fields: Fields = []
    size = 0
    for name, value in headers:
        encoded = _encoded_name(name)
        # What `str` itself knows to be harmless need not be searched.
        if not value.isprintable() or value[:1] == " " or value[-1:] == " ":
            _check_value(name, value)
        if encoded not in _HOP_BY_HOP:
            text = value.encode("utf-8", "surrogateescape")
            fields.append((encoded, text))
            size += len(encoded) + len(text) + _FIELD_OVERHEAD_BYTES
    if size > limits.H2_HEADER_LIST_BYTES_MAX // 2:
        raise LocalProtocolError(
            f"the headers are {size} bytes; at most {limits.H2_HEADER_LIST_BYTES_MAX // 2} are sent"
        )
    return fields


@lru_cache(_NAMES_REMEMBERED_MAX)
def _encoded_name(name: str) -> bytes:
    lower = name.lower()
    if not _NAME.fullmatch(lower):
        raise LocalProtocolError(f"header name {name!r} is not valid: only letters, digits and !#$%&'*+-.^_`|~ are")
    return lower.encode("ascii")


def _check_value(name: str, value: str) -> None:
    if _FORBIDDEN_IN_VALUE.search(value):
        raise LocalProtocolError(f"header {name} has an invalid value {value!r}: no line breaks, no outer spaces")


def request_fields(method: str, scheme: str, authority: str, path: str, headers: Mapping[str, str]) -> Fields:
    """A request head. `path` is the encoded path and query."""
    if not method.isascii() or not method.isalpha():
        raise LocalProtocolError(f"method {method!r} is not valid: letters only")
    pseudo = [
        (b":method", method.upper().encode("ascii")),
        (b":scheme", scheme.encode("ascii")),
        (b":authority", authority.encode("ascii")),
        (b":path", path.encode("ascii")),
    ]
    return pseudo + encode_fields(headers.items())


def decode_fields(fields: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Text pairs; bytes that are not UTF-8 survive as surrogates, as aiohttp has them. Cookies become one field."""
    pairs: list[tuple[str, str]] = []
    cookies: list[str] = []
    for name, value in fields:
        text = value.decode("utf-8", "surrogateescape")
        if name == b"cookie":
            cookies.append(text)  # RFC 9113 section 8.2.3: they may come in crumbs.
        else:
            pairs.append((name.decode("latin-1"), text))
    if cookies:
        pairs.append(("cookie", "; ".join(cookies)))
    return pairs


def response_head(fields: Fields) -> tuple[int, dict[str, str]]:
    """Status, and headers by lower-case name; a name that comes more than once is joined with commas."""
    status = 0
    headers: dict[str, str] = {}
    for name, value in decode_fields(fields):
        if name == ":status":
            status = int(value)
        else:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return status, headers
