"""Content codings of HTTP bodies: gzip in bounded steps, and what a client says that it takes. No I/O.

The application codes and decodes, the same over both protocols: `server.serve` tells aiohttp's parser to leave bodies
alone. Used by the broker's routes, which decide what runs in a thread.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from headrace.core.errors import InvalidRequestError
from headrace.core.limits import GZIP_MEMBERS_MAX

GZIP: Final = "gzip"
_GZIP_NAMES: Final = frozenset({"gzip", "x-gzip"})
"""RFC 9110 section 8.4.1.3: the second means the first."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""Of zlib: with gzip's header and checksum."""
_LEVEL: Final = 1
"""The processor's time is dearer than the last tenth of the bytes."""
_STEP_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 64 << 10
"""zlib copies what it leaves of its input at the end of each member and step: so much at most."""


def is_gzip(coding: str) -> bool:
    return coding.strip().lower() in _GZIP_NAMES


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client that sends this `Accept-Encoding` takes gzip (RFC 9110 section 12.5.3); not where it is silent.

    `gzip` itself decides where it is named, else `*` does; `q=0` refuses.
    """
    weights: dict[str, float] = {}
    for part in accept_encoding.split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip().lower()] = _weight(parameters)
    named = [weights[name] for name in _GZIP_NAMES if name in weights]
    return (max(named) if named else weights.get("*", 0.0)) > 0


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def gzipped(body: bytes) -> bytes:
    """All of a body. Takes its time for large ones."""
    return zlib.compress(body, _LEVEL, _GZIP_WINDOW)


class Deflater:
    """One gzip stream, piece by piece: each piece can be read at the other end as soon as it arrives."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    def piece(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._deflate.flush()


class InflatedTooLargeError(Exception):
    """There is more in it than the limit allows; no more than that was decoded."""


class Inflater:
    """Decodes one gzip body, several members one after the other included, up to `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        self._begun = False
        """Whether the current member has had any byte."""
        self._members_left = GZIP_MEMBERS_MAX

    def steps(self, data: bytes | memoryview) -> Iterator[bytes]:
        """What these bytes decode to, at most `_STEP_BYTES` at a time and not before it is asked for.

        Raises InvalidRequestError for what is no gzip, InflatedTooLargeError where the limit is passed.
        """
        view = memoryview(data)
        for at in range(0, len(view), _SLICE_BYTES):
            yield from self._steps(view[at : at + _SLICE_BYTES])

    def _steps(self, rest: bytes | memoryview) -> Iterator[bytes]:
        while rest:
            self._begun = True
            try:
                step = self._inflate.decompress(rest, min(_STEP_BYTES, self._left + 1))
            except zlib.error as error:
                raise _damaged(str(error)) from error
            if len(step) > self._left:
                raise InflatedTooLargeError
            self._left -= len(step)
            rest = self._inflate.unconsumed_tail
            if self._inflate.eof:
                rest = self._inflate.unused_data
                self._next_member()
            if step:
                yield step

    def _next_member(self) -> None:
        self._members_left -= 1
        if not self._members_left:
            raise _damaged(f"it has {GZIP_MEMBERS_MAX} members or more")
        self._inflate, self._begun = zlib.decompressobj(_GZIP_WINDOW), False

    def finish(self) -> None:
        """The body has ended. Raises InvalidRequestError where the gzip stream has not."""
        if self._begun:
            raise _damaged("it ends before its checksum")


def _damaged(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Content-Encoding 'gzip': the body is not what it says: {why}; send whole gzip, or no Content-Encoding",
        field="Content-Encoding",
    )
