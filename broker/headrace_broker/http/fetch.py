"""GET of records and of offsets; with watch=true, one response that goes on as long as its client reads and this broker
leads.

A watch may go on for days and be silent for most of them: it keeps no records once they are written, which is why names
are deleted below. A mistake that shows before the first byte is a problem document, as for any request. After it there
are two ends: the response ends as it should (enough records, or the broker drains: ask the next one), or it is broken
off (`bridge.break_off`), and a client that asks again from where the stream ended is told why. A client that leaves
cancels the handler.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from aiohttp import web

from headrace.core.errors import HeadraceError, UnreadableBatchError
from headrace.core.limits import JSON_MEMORY_FACTOR
from headrace.core.records.raw import HEARTBEAT
from headrace.core.resources.internal_topics import InternalTopics
from headrace.core.types import Offset
from headrace.http2.bodies import GZIP, BuffersResponse, Deflater
from headrace.http2.bridge import break_off
from headrace_broker.admission import Admission, BudgetShare
from headrace_broker.cluster.locator import Elsewhere, Locator
from headrace_broker.http.callers import Callers
from headrace_broker.http.json_bodies import json_answer
from headrace_broker.http.parameters import parse_fetch, parse_offsets, parse_place
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.record_bodies import (
    COMPRESSED_IN_LOOP_BYTES,
    BodyFormat,
    accepted_format,
    compressed,
    json_of,
    ndjson_of,
    ndjson_pieces,
    takes_gzip,
    unpacked_bytes_of,
    with_place,
)
from headrace_broker.metrics import Metrics
from headrace_broker.partition.fetch import Buffer, FetchedBatches, OpenWatches, WatchedPiece, fetch, find_offset, watch
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import FetchQuery, Place, WatchQuery

OFFSETS_TIMEOUT_MS = 10_000
"""The time that a broker waits for the answer where it passes a question for an offset on to the leader."""
_log = logging.getLogger(__name__)
_BATCHES = BodyFormat.BATCHES.value


def fetch_headers(fetched: FetchedBatches, next_offset: Offset) -> dict[str, str]:
    """Return the headers. `next_offset` is where the next request goes on; for a stream, where it begins."""
    end = fetched.high_watermark
    return {
        "Headrace-Next-Offset": str(next_offset),
        **({"Headrace-High-Watermark": str(end)} if end is not None else {}),
        "Headrace-Log-Start-Offset": str(fetched.log_start_offset),
        "Headrace-Leader-Epoch": str(fetched.leader_epoch),
        "Headrace-Topic-Uid": fetched.topic_uid,
    }


class WatchResponses:
    """A maker of the responses that go on, here or at the leader."""

    def __init__(
        self, callers: Callers, watches: OpenWatches, admission: Admission, metrics: Metrics, proxy: Proxy
    ) -> None:
        self._callers = callers
        self._watches = watches
        self._admission = admission
        self._metrics = metrics
        self._proxy = proxy

    async def send(
        self, request: web.Request, target: Partition | Elsewhere, query: WatchQuery, body_format: BodyFormat
    ) -> web.StreamResponse:
        """Send the stream. Raises HeadraceError where it cannot begin."""
        with self._watches.one_more(self._callers.holder(request)):
            if isinstance(target, Elsewhere):
                # A leader that has missed two heartbeats is taken for dead.
                return await self._proxy.relay(request, target, 2 * self._watches.heartbeat_ms)
            with self._callers.answer_share(request) as share:
                return await self._send(request, target, query, body_format, share)

    async def _send(
        self, request: web.Request, partition: Partition, query: WatchQuery, body_format: BodyFormat, share: BudgetShare
    ) -> web.StreamResponse:
        pieces = watch(partition, query, self._watches, share)
        first = await anext(pieces)
        if body_format is BodyFormat.BATCHES:
            buffers = _watched_batches(first, pieces)
        else:
            body_format = BodyFormat.NDJSON
            buffers = _watched_lines(first, pieces, query, share, self._admission.json_batch_bytes_max)
        stream = _WatchStream(self._metrics, request, partition.place, first, body_format)
        del first
        return await stream.send(buffers)


class _WatchStream:
    """A response that is on its way."""

    def __init__(
        self, metrics: Metrics, request: web.Request, place: Place, first: WatchedPiece, body_format: BodyFormat
    ) -> None:
        self._metrics = metrics
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
            beginning = await anext(buffers)  # Damage is refused before the head is out.
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
            self._metrics.errors.labels(error.code).inc()
            break_off(self._request)
        else:
            await self._response.write_eof(self._deflater.end() if self._deflater is not None else b"")
        return self._response

    async def _write(self, buffer: Buffer) -> None:
        """Write a buffer, and wait while the client does not take what was written before."""
        if not buffer:
            return
        if self._deflater is not None:
            small = len(buffer) <= COMPRESSED_IN_LOOP_BYTES
            piece = self._deflater.piece
            buffer = piece(bytes(buffer)) if small else await asyncio.to_thread(piece, bytes(buffer))
        await self._response.write(buffer)
        # A fast client with much to read must not keep the loop from all others.
        await asyncio.sleep(0)


async def _watched_batches(first: WatchedPiece, rest: AsyncIterator[WatchedPiece]) -> AsyncIterator[Buffer]:
    yield b""
    for buffer in first.fetched.buffers or (b"",):
        yield buffer
    del first, buffer
    async for piece in rest:
        for buffer in piece.fetched.buffers or (HEARTBEAT,):
            yield buffer
        del piece, buffer


async def _watched_lines(
    first: WatchedPiece, rest: AsyncIterator[WatchedPiece], query: WatchQuery, share: BudgetShare, batch_bytes_max: int
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


async def _count(piece: WatchedPiece, share: BudgetShare, batch_bytes_max: int) -> None:
    """Count what its JSON takes while it is made. Raises BatchTooLargeError, CorruptBatchError."""
    if piece.fetched.buffers:
        unpacked = await asyncio.to_thread(unpacked_bytes_of, piece.fetched, batch_bytes_max)
        share.resize(max(share.taken, unpacked) * JSON_MEMORY_FACTOR)


async def _lines_of(piece: WatchedPiece, query: WatchQuery) -> AsyncIterator[bytes]:
    """Yield at least one buffer, which may be empty."""
    if not piece.fetched.buffers:
        yield b""
        return
    made = ndjson_pieces(piece.fetched, piece.records_left, query.value_format)
    yield await asyncio.to_thread(next, made, b"")
    while (lines := await asyncio.to_thread(next, made, None)) is not None:
        yield lines


class FetchRoute:
    """GET /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(
        self,
        callers: Callers,
        internal: InternalTopics,
        locator: Locator,
        admission: Admission,
        proxy: Proxy,
        watches: WatchResponses,
    ) -> None:
        self._callers = callers
        self._internal = internal
        self._locator = locator
        self._admission = admission
        self._proxy = proxy
        self._watches = watches

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_fetch(request.query)
        body_format = accepted_format(request.headers.get("Accept", ""))
        self._internal.check_readable(place.topic, by_broker=self._callers.is_broker(request))
        target = self._locator.locate(place, query.fence)
        if isinstance(query, WatchQuery):
            return await self._watches.send(request, target, query, body_format)
        with self._callers.answer_share(request) as share:
            response: web.StreamResponse
            if isinstance(target, Elsewhere):
                response = await self._proxy.forward(request, target, (), query.max_wait_ms, share)
            else:
                with target.log.verification.suspecting():
                    fetched = fetch(target, query, share)
                    # Nothing here keeps what was read while its JSON is on the way.
                    try:
                        response = await self._response(request, await fetched, query, body_format, share)
                    except UnreadableBatchError as error:
                        raise with_place(error, place) from error
            # It is sent from here, because what is on its way counts until it is gone.
            await response.prepare(request)
            await response.write_eof()
            return response

    async def _response(
        self,
        request: web.Request,
        fetched: FetchedBatches,
        query: FetchQuery,
        body_format: BodyFormat,
        share: BudgetShare,
    ) -> web.StreamResponse:
        if body_format is BodyFormat.BATCHES:
            headers = {**fetch_headers(fetched, fetched.next_offset), "Vary": "Accept"}
            return BuffersResponse(fetched.buffers, content_type=_BATCHES, headers=headers)
        shape = ndjson_of if body_format is BodyFormat.NDJSON else json_of
        unpacked = await asyncio.to_thread(unpacked_bytes_of, fetched, self._admission.json_batch_bytes_max)
        async with self._admission.converting(max(share.taken, unpacked)):
            body, next_offset = await asyncio.to_thread(shape, fetched, query.max_records, query.value_format)
        share.resize(len(body))
        headers = {**fetch_headers(fetched, next_offset), "Content-Type": body_format.value, "Vary": "Accept"}
        whole = await compressed(request, web.Response(body=body, headers=headers))
        assert isinstance(whole.body, bytes), "as it was made"
        share.resize(len(whole.body))
        # It is written in pieces, because a socket copies what it does not take at once.
        return BuffersResponse([whole.body], content_type=body_format.value, headers=whole.headers)


class OffsetsRoute:
    """GET /v1/namespaces/{ns}/topics/{t}/partitions/{p}/offsets"""

    def __init__(self, locator: Locator, proxy: Proxy) -> None:
        self._locator = locator
        self._proxy = proxy

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_offsets(request.query)
        target = self._locator.locate(place, query.fence)
        if isinstance(target, Elsewhere):
            return await self._proxy.forward(request, target, (), OFFSETS_TIMEOUT_MS)
        found = await find_offset(target, query)
        answer = {
            "partition": place.partition,
            "offset": found.offset,
            "timestamp": found.timestamp_ms,
            "leaderEpoch": found.leader_epoch,
        }
        return json_answer(answer)
