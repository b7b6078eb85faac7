"""GET of records and of offsets."""

import asyncio
import json

from aiohttp import web

from headrace.http2.bodies import BuffersResponse
from headrace_broker.fetch import Fetched, fetch, find_offset
from headrace_broker.partition import Partition
from headrace_broker.proxy import Elsewhere
from headrace_broker.requests import FetchQuery, WatchQuery
from headrace_broker.routes.headers import fetch_headers
from headrace_broker.routes.parameters import parse_fetch, parse_offsets, parse_place
from headrace_broker.routes.record_bodies import BodyFormat, accepted_format, json_of, ndjson_of
from headrace_broker.routes.watch import watch_response
from headrace_broker.serving import Serving

_OFFSETS_TIMEOUT_MS = 10_000


class FetchRoute:
    """GET /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_fetch(request.query)
        body_format = accepted_format(request.headers.get("Accept", ""))
        target = self._serving.locate(place, query.fence)
        if isinstance(query, WatchQuery):
            return await self._watch(request, target, query, body_format)
        if isinstance(target, Elsewhere):
            return await self._serving.proxy.forward(request, target, (), query.max_wait_ms)
        return await _response(await fetch(target, query), query, body_format)

    async def _watch(
        self, request: web.Request, target: Partition | Elsewhere, query: WatchQuery, body_format: BodyFormat
    ) -> web.StreamResponse:
        if isinstance(target, Elsewhere):
            with self._serving.watches.one_more():
                # A leader that has missed two heartbeats is taken for dead.
                return await self._serving.proxy.relay(request, target, 2 * self._serving.watches.heartbeat_ms)
        return await watch_response(self._serving, request, target, query, body_format)


class OffsetsRoute:
    """GET /v1/namespaces/{ns}/topics/{t}/partitions/{p}/offsets"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_offsets(request.query)
        target = self._serving.locate(place, query.fence)
        if isinstance(target, Elsewhere):
            return await self._serving.proxy.forward(request, target, (), _OFFSETS_TIMEOUT_MS)
        found = await find_offset(target, query)
        answer = {
            "partition": place.partition,
            "offset": found.offset,
            "timestamp": found.timestamp_ms,
            "leaderEpoch": found.leader_epoch,
        }
        return web.Response(body=json.dumps(answer).encode() + b"\n", content_type="application/json")


async def _response(fetched: Fetched, query: FetchQuery, body_format: BodyFormat) -> web.StreamResponse:
    if body_format is BodyFormat.BATCHES:
        headers = {**fetch_headers(fetched, fetched.next_offset), "Vary": "Accept"}
        return BuffersResponse(fetched.buffers, content_type=body_format.value, headers=headers)
    shape = ndjson_of if body_format is BodyFormat.NDJSON else json_of
    body, next_offset = await asyncio.to_thread(shape, fetched, query.max_records, query.value_format)
    headers = {**fetch_headers(fetched, next_offset), "Content-Type": body_format.value, "Vary": "Accept"}
    return web.Response(body=body, headers=headers)
