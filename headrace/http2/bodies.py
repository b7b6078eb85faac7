"""Request and response bodies as lists of buffers, for handlers that never want them joined, and their gzip coding.

`arriving_chunks` takes a request body as it comes, over either protocol; `BuffersResponse` answers with several
buffers. `RequestBody` is the `content` of a request over HTTP/2: the part of aiohttp's `StreamReader` that requests and
handlers use, without its ties to aiohttp's own protocol. Invariants of `RequestBody`: `feed` never waits, as the peer's
window bounds what can come, and is small until the consumer counts on more; credit goes back when the bytes are taken,
and for what is discarded; after an exception or the end nothing more is taken.

The application codes and decodes gzip, in bounded steps and the same over both protocols: `server.serve` sets aiohttp's
parser to leave bodies alone. The broker's routes decide what runs in a thread.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from headrace.core.errors import BatchTooLargeError, InvalidRequestError, SlowClientError
from headrace.core.limits import H2_REQUEST_WINDOW_BYTES, H2_STREAM_WINDOW_BYTES
from headrace.http2.frames import Buffer
from headrace.http2.slow_clients import Pace, Patience

GZIP_MEMBERS_MAX = 1000
"""The number of gzip files joined into one request body: empty ones would cost time without ever reaching the limit of
bytes."""


GZIP: Final = "gzip"
_GZIP_NAMES: Final = frozenset({"gzip", "x-gzip"})
"""The names of gzip (RFC 9110 section 8.4.1.3: the second means the first)."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""The window that zlib takes for gzip's header and checksum."""
_LEVEL: Final = 1
"""The compression level: the processor's time is dearer than the last tenth of the bytes."""
_STEP_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 64 << 10
"""The size of zlib's input steps: zlib copies what it leaves of its input at the end of each member and step, at most
so much."""
PATIENCE = web.AppKey("patience", Patience)
"""The patience of an application's server with its clients."""
_PATIENCE = Patience()
MEANINGLESS_IN = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods whose bodies are not read (RFC 9110 section 9.3): a handler that waits must not keep them in memory."""
_JOINED_BYTES_MAX = 1 << 10
"""The size below which chunks become one: a body that comes byte by byte must not cost forty times its length."""
_WRITE_BYTES = 1 << 20
"""The size of a write; larger buffers are written in such pieces, because what a socket does not take at once is
copied."""


def is_gzip(coding: str) -> bool:
    return coding.strip().lower() in _GZIP_NAMES


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client that sends this `Accept-Encoding` takes gzip (RFC 9110 section 12.5.3); False where it names no
    coding.

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
    """Compress a whole body; large ones take time."""
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
    """The body holds more than the limit allows; no more than that was decoded."""


class Inflater:
    """A decoder of one gzip body, several members one after the other included, up to `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        self._begun = False
        """True once the current member has had a byte."""
        self._members_left = GZIP_MEMBERS_MAX

    def steps(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Decode these bytes, at most `_STEP_BYTES` at a time and not before the next step is asked for.

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
        """End the body. Raises InvalidRequestError where the gzip stream has not ended."""
        if self._begun:
            raise _damaged("it ends before its checksum")


def _damaged(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Content-Encoding 'gzip': the body is not what it says: {why}; send whole gzip, or no Content-Encoding",
        field="Content-Encoding",
    )


class RequestBody:
    """The body of one request as it arrives, for one consumer."""

    def __init__(self, credit: Callable[[int], None], size_window: Callable[[int], None]) -> None:
        self._credit = credit
        self.size_window = size_window
        """Sets how much may lie here or be on its way; `H2_REQUEST_WINDOW_BYTES` before the first call."""
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._exception: BaseException | None = None
        self._is_unwanted = False
        self._waiter: asyncio.Future[None] | None = None
        self.at_once: Callable[[bytes], bool] | None = None
        """A function that is asked while the consumer waits: whether it has taken these bytes on the spot, without
        being woken."""

    def feed(self, data: bytes, *, alone: bool = False) -> None:
        """Take bytes that have arrived. `alone`: nothing else came with them."""
        if self._is_unwanted:
            self._credit(len(data))
            return
        waits = alone and self._waiter is not None and not self._waiter.done()
        if waits and self.at_once is not None and self.at_once(data):
            self._credit(len(data))
            return
        if self._chunks and len(self._chunks[-1]) + len(data) <= _JOINED_BYTES_MAX:
            self._chunks[-1] += data
        else:
            self._chunks.append(data)
        self._wake()

    def feed_eof(self) -> None:
        self._ended = True
        self._wake()

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """Every read from here on raises `exc`."""
        if exc_cause is not None and exc_cause is not exc:
            exc.__cause__ = exc_cause
        self._exception = exc
        self._wake()

    def exception(self) -> BaseException | None:
        return self._exception

    def discard(self) -> None:
        """Discard the rest, which will not be read, and give its credit back."""
        self._is_unwanted = True
        self._take()

    def is_eof(self) -> bool:
        """Return whether all of it has arrived."""
        return self._ended

    def at_eof(self) -> bool:
        """Return whether all of it has arrived and was taken."""
        return self._ended and not self._chunks

    @property
    def has_something(self) -> bool:
        """Return whether `take_chunks` would not wait."""
        return bool(self._chunks) or self._ended or self._exception is not None

    def set_read_chunk_size(self, n: int) -> None:
        """Accepted for `Request.read`; the HTTP/2 window is the only bound here."""

    async def take_chunks(self) -> list[bytes]:
        """Wait for chunks and return all that have arrived, at least one; an empty list at the end."""
        while not self.has_something:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._exception is not None:
            raise self._exception
        return self._take()

    async def readany(self) -> bytes:
        """Return what has arrived, joined; b"" at the end."""
        return b"".join(await self.take_chunks())

    async def read(self, n: int = -1) -> bytes:
        """Return the rest of the body (`n` < 0), or at most `n` bytes; b"" at the end."""
        if n == 0:
            return b""
        chunks = await self.take_chunks()
        if n < 0:
            while more := await self.take_chunks():
                chunks.extend(more)
            return b"".join(chunks)
        joined = b"".join(chunks)
        if len(joined) > n:
            self._chunks.appendleft(joined[n:])
            self._credit(n - len(joined))
        return joined[:n]

    async def iter_any(self) -> AsyncIterator[bytes]:
        while chunk := await self.readany():
            yield chunk

    def _take(self) -> list[bytes]:
        chunks = list(self._chunks)
        self._chunks.clear()
        if chunks:
            self._credit(sum(map(len, chunks)))
        return chunks

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def arriving_chunks(
    request: web.Request, limit_bytes: int, window_bytes: int = H2_STREAM_WINDOW_BYTES
) -> AsyncIterator[list[bytes]]:
    """Yield the request's body as it comes, all that has arrived at a time: over HTTP/2 at most `window_bytes`.

    Raises `BatchTooLargeError` as soon as the announced or the received length is over `limit_bytes`, and
    `SlowClientError` where it does not come or comes too slowly. Where the client aborts its upload this raises, and
    the handler's task is cancelled besides.
    """
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise too_large(f"is {announced} bytes", limit_bytes)
    received = 0
    body: object = request.content  # A `RequestBody` over HTTP/2.
    if isinstance(body, RequestBody) and (announced is None or announced > H2_REQUEST_WINDOW_BYTES):
        body.size_window(window_bytes)
    pace: Pace | None = None
    while True:
        if isinstance(body, RequestBody) and body.has_something:
            arrived = await body.take_chunks()
        else:
            pace = pace or Pace(request.config_dict.get(PATIENCE, _PATIENCE), received, _now_ms())
            arrived = await _arriving(request, pace, received)
        size = sum(map(len, arrived))
        if not size:
            return
        received += size
        if received > limit_bytes:
            raise too_large("has more bytes", limit_bytes)
        yield arrived


async def _arriving(request: web.Request, pace: Pace, received: int) -> list[bytes]:
    body: object = request.content
    try:
        async with asyncio.timeout(max(0, pace.judged_ms - _now_ms()) / 1000):
            arrived = await body.take_chunks() if isinstance(body, RequestBody) else [await request.content.readany()]
    except TimeoutError:
        arrived = []
        is_over = False
    else:
        is_over = not arrived or not arrived[0]
    if not is_over and pace.is_too_slow(received + sum(map(len, arrived)), _now_ms()):
        raise SlowClientError(
            f"of the request's body {received} bytes have come, and it stalls; send it at once, or less at a time"
        )
    return arrived if arrived or is_over else await _arriving(request, pace, received)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def too_large(what: str, limit_bytes: int) -> BatchTooLargeError:
    message = f"the request body {what}; at most {limit_bytes} bytes are taken: send fewer records a request"
    return BatchTooLargeError(message, limit=limit_bytes)


class BuffersResponse(web.StreamResponse):
    """A response whose body is several buffers, sent one after the other without joining them."""

    def __init__(
        self,
        buffers: Sequence[Buffer],
        *,
        status: int = 200,
        content_type: str = "application/octet-stream",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._buffers = [memoryview(buffer).cast("B") for buffer in buffers]
        length = str(sum(map(len, self._buffers)))
        super().__init__(
            status=status, headers={**(headers or {}), "Content-Type": content_type, "Content-Length": length}
        )

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if request.method == "HEAD":
            self._buffers = []
        return await super().prepare(request)

    async def write_eof(self, data: bytes = b"") -> None:
        buffers, self._buffers = self._buffers, []
        # The last buffer goes with the end, and where it is the only one also with the head.
        last: Any = buffers.pop() if buffers else data
        for buffer in buffers:
            await self._write_pieces(buffer)
        if len(last) > _WRITE_BYTES:
            await self._write_pieces(last[:-_WRITE_BYTES])
            last = last[-_WRITE_BYTES:]
        await super().write_eof(last)

    async def _write_pieces(self, buffer: memoryview) -> None:
        for at in range(0, len(buffer), _WRITE_BYTES):
            await self.write(buffer[at : at + _WRITE_BYTES])
