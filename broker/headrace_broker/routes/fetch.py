"""GET of records and of offsets."""

import asyncio
import json

from aiohttp import web

from headrace.core.types import Offset
from headrace.http2.bodies import BuffersResponse
from headrace_broker.fetch import Fetched, fetch, find_offset
from headrace_broker.proxy import Elsewhere
from headrace_broker.requests import FetchQuery
from headrace_broker.routes.parameters import parse_fetch, parse_offsets, parse_place
from headrace_broker.routes.record_bodies import BodyFormat, accepted_format, json_of, ndjson_of
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
        if isinstance(target, Elsewhere):
            return await self._serving.proxy.forward(request, target, (), query.max_wait_ms)
        return await _response(await fetch(target, query), query, body_format)


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
        headers = _headers(fetched, fetched.next_offset)
        return BuffersResponse(fetched.buffers, content_type=body_format.value, headers=headers)
    shape = ndjson_of if body_format is BodyFormat.NDJSON else json_of
    body, next_offset = await asyncio.to_thread(shape, fetched, query.max_records, query.value_format)
    return web.Response(body=body, headers={**_headers(fetched, next_offset), "Content-Type": body_format.value})


def _headers(fetched: Fetched, next_offset: Offset) -> dict[str, str]:
    return {
        "Headrace-Next-Offset": str(next_offset),
        "Headrace-High-Watermark": str(fetched.high_watermark),
        "Headrace-Log-Start-Offset": str(fetched.log_start_offset),
        "Headrace-Leader-Epoch": str(fetched.leader_epoch),
        "Headrace-Topic-Uid": fetched.topic_uid,
    }
