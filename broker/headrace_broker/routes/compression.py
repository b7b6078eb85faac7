"""Answers are gzipped for clients that take it, the same over both protocols; batches never, they compress themselves.

Streams are not touched: a watch compresses its lines as they come.
"""

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler

from headrace.http2.codings import GZIP, accepts_gzip, gzipped
from headrace_broker.routes.record_bodies import BodyFormat

COMPRESSED_IN_LOOP_BYTES = 32 << 10
"""A larger body is compressed in a thread."""


def takes_gzip(request: web.Request) -> bool:
    return accepts_gzip(",".join(request.headers.getall("Accept-Encoding", [])))


@web.middleware
async def compression_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    if not isinstance(response, web.Response) or response.content_type == BodyFormat.BATCHES:
        return response
    if "Accept-Encoding" not in response.headers.get("Vary", ""):
        vary = response.headers.get("Vary")
        response.headers["Vary"] = f"{vary}, Accept-Encoding" if vary else "Accept-Encoding"
    body = response.body
    if isinstance(body, bytes) and body and "Content-Encoding" not in response.headers and takes_gzip(request):
        small = len(body) <= COMPRESSED_IN_LOOP_BYTES
        response.body = gzipped(body) if small else await asyncio.to_thread(gzipped, body)
        response.headers["Content-Encoding"] = GZIP
    return response
