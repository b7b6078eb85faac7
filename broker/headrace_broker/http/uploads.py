"""The request bodies: read whole before anything is done with them, decoded, counted, bounded.

The bytes that have arrived are counted, never the announced length: that is compared with the bounds, so that a client
for which there is no room is told before the upload, and no room is kept for bytes that may never come.

A body may come gzipped. It is decoded in small steps, in a thread, and each step is counted among all bodies that this
broker holds before the next one is made: kilobytes that decode to gigabytes cost `REQUEST_BODY_BYTES_MAX` at most.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from headrace.core.errors import SlowClientError, ThrottledError, UnsupportedEncodingError
from headrace.core.limits import H2_REQUEST_WINDOW_BYTES
from headrace.http2.bodies import InflatedTooLargeError, Inflater, arriving_chunks, is_gzip, too_large
from headrace.http2.new_connections import Crowd
from headrace_broker.admission import Budget, BudgetShare, Requests
from headrace_broker.http.callers import Callers

CONTROL_UPLOADS_MAX = 64
"""Questions whose bodies are on their way in, which take no place until then; one more ends the oldest ..."""
CONTROL_BODY_TIMEOUT_MS = 5_000
"""... of the client that has most, and each ends after this time."""


Chunks = Sequence[bytes | memoryview]
_JOINED_BYTES_MAX = 4 << 10


async def take_body(request: web.Request, share: BudgetShare, limit_bytes: int) -> Chunks:
    """Return the request's body, decoded. It is counted in `share`, which the caller keeps for as long as the body.

    Raises UnsupportedEncodingError, BatchTooLargeError, ThrottledError, InvalidRequestError.
    """
    if _is_gzipped(request):
        return await _inflated(request, share, limit_bytes)
    if request.content_length is not None:
        share.check(min(request.content_length, limit_bytes))
    return await _counted(request, share, limit_bytes)


class Questions:
    """The questions of operators and other brokers, which no load of clients may keep waiting.

    Until its body is there a question takes no place of those that are answered. `CONTROL_UPLOADS_MAX` may be on their
    way in, for a short time; one more ends the oldest of the client that has most on its way. So no client's unfinished
    questions keep out an operator's, which come whole. One per process.
    """

    def __init__(self, callers: Callers, bodies: Budget) -> None:
        """Begin without questions; `bodies` is the budget of their bodies alone."""
        self._callers = callers
        self._bodies = bodies
        self._arriving = Crowd(CONTROL_UPLOADS_MAX)
        self.timeout_ms = CONTROL_BODY_TIMEOUT_MS

    @property
    def arriving(self) -> int:
        return len(self._arriving)

    @asynccontextmanager
    async def asked(self, request: web.Request, places: Requests, limit_bytes: int) -> AsyncIterator[bytes]:
        """Yield the body, for as long as the question is answered in one of these places.

        Raises what `take_body` raises, ThrottledError, SlowClientError.
        """
        holder = self._callers.holder(request)
        with self._bodies.share(holder) as share:
            body = b"".join(await self._arrived(request, share, limit_bytes))
            with places.one_more(holder):
                yield body

    async def _arrived(self, request: web.Request, share: BudgetShare, limit_bytes: int) -> Chunks:
        arriving = _Arriving(self._arriving, asyncio.timeout(self.timeout_ms / 1000))
        self._arriving.join(arriving, share.holder or "brokers")
        try:
            async with arriving.timeout:
                return await take_body(request, share, limit_bytes)
        except TimeoutError:
            if arriving.gave_way:
                raise ThrottledError("too many questions are on their way in; send the body at once") from None
            raise SlowClientError(
                f"the body is not there after {self.timeout_ms / 1000:g} s; send it at once, or less at a time"
            ) from None
        finally:
            self._arriving.leave(arriving)


class _Arriving:
    """A question until its body is there."""

    def __init__(self, crowd: Crowd, timeout: asyncio.Timeout) -> None:
        self._crowd = crowd
        self.timeout = timeout
        self.gave_way = False

    def abort(self) -> None:
        self._crowd.leave(self)
        self.gave_way = True
        if not self.timeout.expired():  # If this is false, its time was up in this very turn of the loop.
            self.timeout.reschedule(asyncio.get_running_loop().time())


def _is_gzipped(request: web.Request) -> bool:
    codings = request.headers.getall("Content-Encoding", ())
    if not codings:
        return False
    coding = ",".join(codings).strip()
    if coding.lower() in ("", "identity"):
        return False
    if is_gzip(coding):
        return True
    raise UnsupportedEncodingError(
        f"Content-Encoding {coding!r}: must be gzip or identity; compress with gzip, or send the body as it is",
        field="Content-Encoding",
    )


async def _counted(request: web.Request, share: BudgetShare, limit_bytes: int) -> Chunks:
    chunks: list[bytes] = []
    async for arrived in arriving_chunks(request, limit_bytes):
        share.take(sum(map(len, arrived)))
        if chunks and len(chunks[-1]) + len(arrived[0]) <= _JOINED_BYTES_MAX:
            # A body that comes byte by byte must not cost forty times what it is counted for.
            chunks[-1] += arrived.pop(0)
        chunks += arrived
    return chunks


async def _inflated(request: web.Request, share: BudgetShare, limit_bytes: int) -> Chunks:
    inflater = Inflater(limit_bytes)
    decoded: list[bytes] = []
    try:
        # A small window, because nobody has counted what waits for its turn in a thread.
        async for arrived in arriving_chunks(request, limit_bytes, H2_REQUEST_WINDOW_BYTES):
            steps = inflater.steps(b"".join(arrived))
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                share.take(len(step))
                decoded.append(step)
    except InflatedTooLargeError:
        raise too_large("has more bytes once it is decoded", limit_bytes) from None
    inflater.finish()
    return decoded
