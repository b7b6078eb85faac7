"""Request bodies with records: read whole before anything is done with them, decoded, counted, bounded.

What has arrived is counted, never what is announced: that is compared with the bounds, so that whoever has no room is
told before the upload, and no room is kept for bytes that may never come.

A body may come gzipped. It is decoded in small steps, in a thread, and each step is counted among all bodies that this
broker holds before the next one is made: kilobytes that decode to gigabytes cost `REQUEST_BODY_BYTES_MAX` at most.
"""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from headrace.core.errors import UnsupportedEncodingError
from headrace.core.limits import H2_REQUEST_WINDOW_BYTES
from headrace.http2.bodies import arriving_chunks, too_large
from headrace.http2.codings import InflatedTooLargeError, Inflater, is_gzip
from headrace_broker.admission import Share

Chunks = Sequence[bytes | memoryview]
_JOINED_BYTES_MAX = 4 << 10


async def take_body(request: web.Request, share: Share, limit_bytes: int) -> Chunks:
    """The request's body, decoded. It is counted in `share`, which the caller keeps for as long as the body.

    Raises UnsupportedEncodingError, BatchTooLargeError, ThrottledError, InvalidRequestError.
    """
    if _is_gzipped(request):
        return await _inflated(request, share, limit_bytes)
    if request.content_length is not None:
        share.check(min(request.content_length, limit_bytes))
    return await _counted(request, share, limit_bytes)


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


async def _counted(request: web.Request, share: Share, limit_bytes: int) -> Chunks:
    chunks: list[bytes] = []
    async for arrived in arriving_chunks(request, limit_bytes):
        share.take(sum(map(len, arrived)))
        if chunks and len(chunks[-1]) + len(arrived[0]) <= _JOINED_BYTES_MAX:
            # A body that comes byte by byte must not cost forty times what it is counted for.
            chunks[-1] += arrived.pop(0)
        chunks += arrived
    return chunks


async def _inflated(request: web.Request, share: Share, limit_bytes: int) -> Chunks:
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
