"""GET of records with watch=true: one response that goes on for as long as its client reads and this broker leads.

It may go on for days and be silent for most of them: nothing here keeps records once they are written, which is why
names are deleted below.

What is wrong before the first byte is a problem document, as for any request. After it there are two ends: the response
ends as it should (enough records, or the broker drains: ask the next one), or it is broken off (`bridge.break_off`),
and whoever asks again from where the stream ended is told why. A client that leaves cancels the handler.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from aiohttp import web

from headrace.core.errors import HeadraceError, UnreadableBatchError
from headrace.core.limits import JSON_MEMORY_FACTOR
from headrace.core.records.raw import HEARTBEAT
from headrace.http2.bodies import GZIP, Deflater
from headrace.http2.bridge import break_off
from headrace_broker.admission import Share
from headrace_broker.fetch import Buffer
from headrace_broker.partition import Partition
from headrace_broker.requests import Place, WatchQuery
from headrace_broker.routes.compression import COMPRESSED_IN_LOOP_BYTES, takes_gzip
from headrace_broker.routes.headers import fetch_headers
from headrace_broker.routes.record_bodies import BodyFormat, ndjson_pieces, unpacked_bytes_of, with_place
from headrace_broker.serving import Serving
from headrace_broker.watching import Piece, watch

_log = logging.getLogger(__name__)


async def watch_response(
    serving: Serving, request: web.Request, partition: Partition, query: WatchQuery, body_format: BodyFormat
) -> web.StreamResponse:
    """Raises HeadraceError where the stream cannot begin."""
    with serving.watches.one_more(serving.holder(request)), serving.answer_share(request) as share:
        pieces = watch(partition, query, serving.watches, share)
        first = await anext(pieces)
        if body_format is BodyFormat.BATCHES:
            body_format, buffers = BodyFormat.BATCHES, _batches(first, pieces)
        else:
            body_format, buffers = (
                BodyFormat.NDJSON,
                _lines(first, pieces, query, share, serving.admission.json_batch_bytes_max),
            )
        stream = _Stream(serving, request, partition.place, first, body_format)
        del first
        return await stream.send(buffers)


class _Stream:
    """One response on its way."""

    def __init__(
        self, serving: Serving, request: web.Request, place: Place, first: Piece, body_format: BodyFormat
    ) -> None:
        self._serving = serving
        self._place = place
        self._request = request
        headers = fetch_headers(first.fetched, first.fetched.offset)
        headers |= {"Content-Type": body_format.value, "Vary": "Accept, Accept-Encoding"}
        self._deflater = Deflater() if body_format is BodyFormat.NDJSON and takes_gzip(request) else None
        if self._deflater is not None:
            headers["Content-Encoding"] = GZIP
        self._response = web.StreamResponse(headers=headers)

    async def send(self, buffers: AsyncIterator[Buffer]) -> web.StreamResponse:
        try:
            beginning = await anext(buffers)  # What is damaged is refused before the head is out.
        except UnreadableBatchError as error:
            raise with_place(error, self._place) from error
        await self._response.prepare(self._request)
        if self._request.method == "HEAD":
            await self._response.write_eof()
            return self._response
        try:
            await self._write(beginning)
            del beginning
            async for buffer in buffers:
                await self._write(buffer)
                del buffer
        except HeadraceError as error:
            _log.info("%s: broken off: %s", self._request.path, error)
            self._serving.metrics.errors.labels(error.code).inc()
            break_off(self._request)
        else:
            await self._response.write_eof(self._deflater.end() if self._deflater is not None else b"")
        return self._response

    async def _write(self, buffer: Buffer) -> None:
        """Waits while the client does not take what was written before."""
        if not buffer:
            return
        if self._deflater is not None:
            small = len(buffer) <= COMPRESSED_IN_LOOP_BYTES
            piece = self._deflater.piece
            buffer = piece(bytes(buffer)) if small else await asyncio.to_thread(piece, bytes(buffer))
        await self._response.write(buffer)
        # A fast client with much to read must not keep the loop from all others.
        await asyncio.sleep(0)


async def _batches(first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[Buffer]:
    yield b""
    for buffer in first.fetched.buffers or (b"",):
        yield buffer
    del first, buffer
    async for piece in rest:
        for buffer in piece.fetched.buffers or (HEARTBEAT,):
            yield buffer
        del piece, buffer


async def _lines(
    first: Piece, rest: AsyncIterator[Piece], query: WatchQuery, share: Share, batch_bytes_max: int
) -> AsyncIterator[Buffer]:
    await _count(first, share, batch_bytes_max)
    async for lines in _lines_of(first, query):
        yield lines
    del first
    async for piece in rest:
        if not piece.fetched.buffers:
            yield b"\n"
        await _count(piece, share, batch_bytes_max)
        async for lines in _lines_of(piece, query):
            yield lines
        del piece


async def _count(piece: Piece, share: Share, batch_bytes_max: int) -> None:
    """What its JSON takes while it is made. Raises BatchTooLargeError, CorruptBatchError."""
    if piece.fetched.buffers:
        unpacked = await asyncio.to_thread(unpacked_bytes_of, piece.fetched, batch_bytes_max)
        share.resize(max(share.taken, unpacked) * JSON_MEMORY_FACTOR)


async def _lines_of(piece: Piece, query: WatchQuery) -> AsyncIterator[bytes]:
    """At least one buffer, be it empty."""
    if not piece.fetched.buffers:
        yield b""
        return
    made = ndjson_pieces(piece.fetched, piece.records_left, query.value_format)
    yield await asyncio.to_thread(next, made, b"")
    while (lines := await asyncio.to_thread(next, made, None)) is not None:
        yield lines
