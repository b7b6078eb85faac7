"""The header fields of requests and responses: checked on the way out, checked and merged on the way in. Pure.

HTTP/2 spells names in lower case, has pseudo headers where HTTP/1.1 has lines, and knows no connection headers
(RFC 9113 sections 8.1 to 8.3). Fields that go out are checked before they reach the engine, because a bad field found
half-way through HPACK would spoil the connection for every other stream.

The receiver checks every head that comes before it passes it on, and reads from it how long the body is. A malformed
head costs the peer its stream, not the connection, and `MalformedError` has the reason.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headrace.core import limits
from headrace.http2.events import Fields, LocalProtocolError

_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"host"})
"""Connection headers (RFC 9113 section 8.2.2), and `host`, which travels as `:authority`."""
_FIELD_OVERHEAD_BYTES = 32
"""The bytes that RFC 9113 section 6.5.2 counts for a field beside its text."""
_NAMES_REMEMBERED_MAX = 256
"""The number of names that are remembered: programs use few names, and each with every message."""
_TEXT_NAME = re.compile(r"[0-9a-z!#$%&'*+.^_`|~-]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00\r\n]|^[ \t]|[ \t]$")
_REQUEST_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path"})
_CONNECTION_FIELDS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
"""Header fields that belong to HTTP/1.1 (RFC 9113 section 8.2.2)."""
_NAME: Final = re.compile(rb"[0-9a-z!#$%&'*+.^_`|~-]+")
_LOOKED_AT: Final = frozenset({b"content-length", b"host", b"te"})
_SHORT_NAME_BYTES: Final = 64
_BODYLESS: Final = frozenset({b"204", b"304"})


def encode_fields(headers: Iterable[tuple[str, str]]) -> Fields:
    """Return ordinary fields as they are sent, without connection headers. Raises `LocalProtocolError` on an invalid
    one."""
    fields: Fields = []
    size = 0
    for name, value in headers:
        encoded = _encoded_name(name)
        # What `str` itself recognizes as harmless need not be searched.
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
    if not _TEXT_NAME.fullmatch(lower):
        raise LocalProtocolError(f"header name {name!r} is not valid: only letters, digits and !#$%&'*+-.^_`|~ are")
    return lower.encode("ascii")


def _check_value(name: str, value: str) -> None:
    if _FORBIDDEN_IN_VALUE.search(value):
        raise LocalProtocolError(f"header {name} has an invalid value {value!r}: no line breaks, no outer spaces")


def request_fields(method: str, scheme: str, authority: str, path: str, headers: Mapping[str, str]) -> Fields:
    """Return a request head. `path` is the encoded path and query."""
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
    """Return pairs of text; bytes that are not UTF-8 survive as surrogates, as in aiohttp. Cookies become one field."""
    pairs: list[tuple[str, str]] = []
    cookies: list[str] = []
    for name, value in fields:
        text = value.decode("utf-8", "surrogateescape")
        if name == b"cookie":
            cookies.append(text)  # RFC 9113 section 8.2.3: cookies may come in several fields.
        else:
            pairs.append((name.decode("latin-1"), text))
    if cookies:
        pairs.append(("cookie", "; ".join(cookies)))
    return pairs


def response_head(fields: Fields) -> tuple[int, dict[str, str]]:
    """Return the status, and headers by lower-case name; a name that comes more than once is joined with commas."""
    status = 0
    headers: dict[str, str] = {}
    for name, value in decode_fields(fields):
        if name == ":status":
            status = int(value)
        else:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return status, headers


class MalformedError(Exception):
    """The message is malformed; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Message:
    content_length: int | None
    """The length that the head announces; None where it announces none."""

    is_bodyless: bool = False
    """True for a response whose status has no body, whatever `content_length` says."""

    is_interim: bool = False
    """True for a 1xx response: the final one is still to come."""


_SILENT: Final = Message(None)


def check_request(fields: Fields) -> Message:
    """Check a request's head. Raises `MalformedError`, as all of these do."""
    pseudo, rest = _split(fields)
    if not pseudo.keys() <= _REQUEST_PSEUDO:
        raise MalformedError("it has a pseudo header that requests do not have")
    if b":method" not in pseudo:
        raise MalformedError("it has no :method")
    _check_target(pseudo)
    length = _check_fields(fields, rest, pseudo)
    return Message(length) if length is not None else _SILENT


def check_response(fields: Fields) -> Message:
    pseudo, rest = _split(fields)
    status = pseudo.get(b":status", b"")
    if len(pseudo) != 1 or len(status) != 3 or not status.isdigit() or status == b"101":
        raise MalformedError("it has not exactly one :status of three digits")
    length = _check_fields(fields, rest, pseudo)
    return Message(length, is_bodyless=status in _BODYLESS, is_interim=status[0] == ord("1"))


def check_trailers(fields: Fields) -> None:
    pseudo, rest = _split(fields)
    if pseudo:
        raise MalformedError("its trailers have a pseudo header")
    _check_fields(fields, rest, pseudo)


def _split(fields: Fields) -> tuple[dict[bytes, bytes], Fields]:
    """Return the pseudo headers, each of them once, and the fields after them."""
    pseudo: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] != b":":
            break
        pseudo[name] = value
    rest = fields[len(pseudo) :]
    if rest and rest[0][0][:1] == b":":
        raise MalformedError("it has a pseudo header twice")
    return pseudo, rest


def _check_target(pseudo: dict[bytes, bytes]) -> None:
    """Check the target by RFC 9113 section 8.3.1, and that of CONNECT by section 8.5."""
    if pseudo[b":method"] == b"CONNECT":
        if pseudo.keys() != {b":method", b":authority"}:
            raise MalformedError("a CONNECT has :method and :authority alone")
        return
    path = pseudo.get(b":path", b"")
    if not pseudo.get(b":scheme") or not (path[:1] == b"/" or (path == b"*" and pseudo[b":method"] == b"OPTIONS")):
        raise MalformedError("it needs :scheme, and a :path that begins with a slash")


def _check_fields(fields: Fields, rest: Fields, pseudo: Mapping[bytes, bytes]) -> int | None:
    """Check names and values, and that no field belongs to a connection. Return the announced content length."""
    values = [value for _, value in fields]
    joined = b"".join(values)
    # RFC 9113 section 8.2.1. The check goes through the bytes: a pattern would cost more than all else that is done
    # with a request.
    if b"\0" in joined or b"\r" in joined or b"\n" in joined or values != [value.strip() for value in values]:
        raise MalformedError("a value of a header field has characters that are not allowed")
    length: int | None = None
    for name, value in rest:
        if (_is_plain if len(name) <= _SHORT_NAME_BYTES else _judge)(name):
            continue
        if name == b"content-length":
            length = _content_length(value, length)
        elif name == b"host":
            if value != pseudo.get(b":authority", value):
                raise MalformedError("its host and its :authority differ")
        elif value != b"trailers":  # The name is `te`.
            raise MalformedError("it has a header field of HTTP/1.1 connections")
    return length


def _judge(name: bytes) -> bool:
    """Return whether its value does not matter here, as with all but three. Raises `MalformedError` where the name may
    not be used."""
    if name in _CONNECTION_FIELDS:
        raise MalformedError("it has a header field of HTTP/1.1 connections")
    if not _NAME.fullmatch(name):
        raise MalformedError("a name of a header field is not valid, or is a pseudo header that comes too late")
    return name not in _LOOKED_AT


_is_plain = lru_cache(maxsize=1024)(_judge)
"""`_judge` with a memory, for short names only, as they stay in memory."""


def _content_length(value: bytes, before: int | None) -> int:
    if not value.isdigit() or len(value) > 18 or before not in (None, int(value)):
        raise MalformedError("its content-length is not one number")
    return int(value)
