"""Request and response bodies as lists of buffers, for handlers that never want them joined.

`read_chunks` takes a whole request body, whichever protocol it came by; `BuffersResponse` answers with several
buffers. `RequestBody` is what a request over HTTP/2 has as its `content`: the part of aiohttp's `StreamReader` that
requests and handlers use, without its ties to aiohttp's own protocol.

Invariants of `RequestBody`: `feed` never waits, as the peer's window bounds what can come; credit goes back when the
bytes are taken, and for what is discarded; after an exception or the end nothing more is taken.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from headrace.core.errors import BatchTooLargeError
from headrace.http2.outbox import Buffer


class RequestBody:
    """The body of one request as it arrives. One consumer."""

    def __init__(self, credit: Callable[[int], None]) -> None:
        self._credit = credit
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._exception: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
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
        """Nobody will read the rest: give its credit back."""
        self._take()

    def is_eof(self) -> bool:
        """All of it has arrived."""
        return self._ended

    def at_eof(self) -> bool:
        """All of it has arrived and was taken."""
        return self._ended and not self._chunks

    def set_read_chunk_size(self, n: int) -> None:
        """Accepted for `Request.read`; the HTTP/2 window is the only bound here."""

    async def take_chunks(self) -> list[bytes]:
        """All that has arrived, at least one chunk; an empty list at the end."""
        while not self._chunks and not self._ended and self._exception is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._exception is not None:
            raise self._exception
        return self._take()

    async def readany(self) -> bytes:
        """What has arrived, joined; b"" at the end."""
        return b"".join(await self.take_chunks())

    async def read(self, n: int = -1) -> bytes:
        """The rest of the body (`n` < 0), or at most `n` bytes; b"" at the end."""
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


async def read_chunks(request: web.Request, limit_bytes: int) -> list[bytes | memoryview]:
    """The request's body as the chunks that came, in order, never joined. Raises as `arriving_chunks` does."""
    return [chunk async for arrived in arriving_chunks(request, limit_bytes) for chunk in arrived]


async def arriving_chunks(request: web.Request, limit_bytes: int) -> AsyncIterator[list[bytes]]:
    """The request's body as it comes, all that has arrived at a time.

    Raises `BatchTooLargeError` as soon as the announced or the received length is over `limit_bytes`. Where the
    client aborts its upload this raises, and the handler's task is cancelled besides.
    """
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise too_large(f"is {announced} bytes", limit_bytes)
    received = 0
    body: object = request.content  # A `RequestBody` over HTTP/2.
    while True:
        arrived = await body.take_chunks() if isinstance(body, RequestBody) else [await request.content.readany()]
        size = sum(map(len, arrived))
        if not size:
            return
        received += size
        if received > limit_bytes:
            raise too_large("has more bytes", limit_bytes)
        yield arrived


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
        super().__init__(status=status, headers=headers)
        self._buffers = [memoryview(buffer).cast("B") for buffer in buffers]
        self.content_type = content_type
        self.content_length = sum(map(len, self._buffers))

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if request.method == "HEAD":
            self._buffers = []
        return await super().prepare(request)

    async def write_eof(self, data: bytes = b"") -> None:
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            await self.write(buffer)
        await super().write_eof(data)
