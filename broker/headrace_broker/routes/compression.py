"""Answers are gzipped for clients that take it, the same over both protocols; batches never, they compress themselves.

Streams are not touched: a watch compresses its lines as they come.
"""

import asyncio

from aiohttp import web

from headrace.http2.bodies import GZIP, accepts_gzip, gzipped
from headrace_broker.routes.record_bodies import BodyFormat

COMPRESSED_IN_LOOP_BYTES = 32 << 10
"""A larger body is compressed in a thread."""


def takes_gzip(request: web.Request) -> bool:
    accepted = request.headers.getall("Accept-Encoding", ())
    return bool(accepted) and accepts_gzip(",".join(accepted))


async def compressed(request: web.Request, response: web.Response) -> web.Response:
    """The same answer, gzipped where that may be and is wanted. One that has been sent is left alone."""
    if response.prepared or response.content_type == BodyFormat.BATCHES:
        return response
    headers = response.headers
    vary = headers.get("Vary", "")
    if "Accept-Encoding" not in vary:
        headers["Vary"] = f"{vary}, Accept-Encoding" if vary else "Accept-Encoding"
    body = response.body
    if isinstance(body, bytes) and body and "Content-Encoding" not in headers and takes_gzip(request):
        small = len(body) <= COMPRESSED_IN_LOOP_BYTES
        response.body = gzipped(body) if small else await asyncio.to_thread(gzipped, body)
        headers["Content-Encoding"] = GZIP
    return response
