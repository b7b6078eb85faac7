"""Whether a head is one that HTTP/2 allows (RFC 9113 sections 8.1 to 8.3), and what it says of its body. Pure.

What is malformed costs the peer its stream, not the connection: `MalformedError` says why. Called by
`headrace.http2.engine` for every head that comes, before anybody else sees it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from headrace.core.slotted import dataclass
from headrace.http2.events import Fields

_REQUEST_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path"})
_CONNECTION_FIELDS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
"""RFC 9113 section 8.2.2: they belong to HTTP/1.1."""
_NAME: Final = re.compile(rb"[0-9a-z!#$%&'*+.^_`|~-]+")
_LOOKED_AT: Final = frozenset({b"content-length", b"host", b"te"})
_SHORT_NAME_BYTES: Final = 64
_BODYLESS: Final = frozenset({b"204", b"304"})


class MalformedError(Exception):
    """The message is malformed; the words say how."""


@dataclass(frozen=True, slots=True)
class Message:
    content_length: int | None
    """What the head announces; None where it is silent."""

    is_bodyless: bool = False
    """A response whose status has no body, whatever `content_length` says."""

    is_interim: bool = False
    """A 1xx response: the final one is still to come."""


_SILENT: Final = Message(None)


def check_request(fields: Fields) -> Message:
    """Raises `MalformedError`, as all of these."""
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
    """Pseudo headers, each of them once, and what comes after them."""
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
    """RFC 9113 section 8.3.1; section 8.5 has CONNECT."""
    if pseudo[b":method"] == b"CONNECT":
        if pseudo.keys() != {b":method", b":authority"}:
            raise MalformedError("a CONNECT has :method and :authority alone")
        return
    path = pseudo.get(b":path", b"")
    if not pseudo.get(b":scheme") or not (path[:1] == b"/" or (path == b"*" and pseudo[b":method"] == b"OPTIONS")):
        raise MalformedError("it needs :scheme, and a :path that begins with a slash")


def _check_fields(fields: Fields, rest: Fields, pseudo: Mapping[bytes, bytes]) -> int | None:
    """Names and values, and that nothing belongs to a connection. The content length that is announced."""
    values = [value for _, value in fields]
    joined = b"".join(values)
    # RFC 9113 section 8.2.1. Bytes by bytes: a pattern would cost more than all else that is done with a request.
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
        elif value != b"trailers":  # It is `te`.
            raise MalformedError("it has a header field of HTTP/1.1 connections")
    return length


def _judge(name: bytes) -> bool:
    """Whether its value does not matter here, as with all but three. Raises `MalformedError` where it may not be."""
    if name in _CONNECTION_FIELDS:
        raise MalformedError("it has a header field of HTTP/1.1 connections")
    if not _NAME.fullmatch(name):
        raise MalformedError("a name of a header field is not valid, or is a pseudo header that comes too late")
    return name not in _LOOKED_AT


_is_plain = lru_cache(maxsize=1024)(_judge)
"""The same, remembered: of short names only, as they stay in memory."""


def _content_length(value: bytes, before: int | None) -> int:
    if not value.isdigit() or len(value) > 18 or before not in (None, int(value)):
        raise MalformedError("its content-length is not one number")
    return int(value)
