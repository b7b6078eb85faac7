"""Request bodies with records: read whole before anything is done with them, decoded, counted, bounded.

A body may come gzipped. It is decoded in small steps, in a thread, and each step is counted among all bodies that this
broker holds before the next one is made: kilobytes that decode to gigabytes cost `REQUEST_BODY_BYTES_MAX` at most.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from headrace.core.errors import UnsupportedEncodingError
from headrace.core.limits import REQUEST_BODY_BYTES_MAX
from headrace.http2.bodies import arriving_chunks, read_chunks, too_large
from headrace.http2.codings import InflatedTooLargeError, Inflater, is_gzip
from headrace_broker.serving import BodyBudget, Serving

Chunks = Sequence[bytes | memoryview]


@asynccontextmanager
async def body_of(request: web.Request, serving: Serving) -> AsyncIterator[Chunks]:
    """The request's body, decoded, counted among all that this broker holds until the context is left.

    Raises UnsupportedEncodingError, BatchTooLargeError, ThrottledError, InvalidRequestError.
    """
    gzipped = _is_gzipped(request)
    share = _Share(serving.bodies)
    try:
        if gzipped:
            yield await _inflated(request, share)
        elif request.content_length is not None:
            # All of it at once: whoever has no room is told before the upload.
            share.take(min(request.content_length, REQUEST_BODY_BYTES_MAX))
            yield await read_chunks(request, REQUEST_BODY_BYTES_MAX)
        else:
            yield await _counted(request, share)
    finally:
        share.give_back()


class _Share:
    """What one body takes of the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, size: int) -> None:
        """Raises ThrottledError."""
        self._budget.take(size)
        self._taken += size

    def give_back(self) -> None:
        self._budget.give_back(self._taken)


def _is_gzipped(request: web.Request) -> bool:
    coding = ",".join(request.headers.getall("Content-Encoding", [])).strip()
    if coding.lower() in ("", "identity"):
        return False
    if is_gzip(coding):
        return True
    raise UnsupportedEncodingError(
        f"Content-Encoding {coding!r}: must be gzip or identity; compress with gzip, or send the body as it is",
        field="Content-Encoding",
    )


async def _counted(request: web.Request, share: _Share) -> Chunks:
    chunks: list[bytes] = []
    async for arrived in arriving_chunks(request, REQUEST_BODY_BYTES_MAX):
        share.take(sum(map(len, arrived)))
        chunks += arrived
    return chunks


async def _inflated(request: web.Request, share: _Share) -> Chunks:
    inflater = Inflater(REQUEST_BODY_BYTES_MAX)
    decoded: list[bytes] = []
    try:
        async for arrived in arriving_chunks(request, REQUEST_BODY_BYTES_MAX):
            steps = inflater.steps(b"".join(arrived))
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                share.take(len(step))
                decoded.append(step)
    except InflatedTooLargeError:
        raise too_large("has more bytes once it is decoded", REQUEST_BODY_BYTES_MAX) from None
    inflater.finish()
    return decoded
