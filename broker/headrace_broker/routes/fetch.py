"""GET of records and of offsets."""

import asyncio
import json

from aiohttp import web

from headrace.core.errors import UnreadableBatchError
from headrace.core.limits import OFFSETS_TIMEOUT_MS
from headrace.http2.bodies import BuffersResponse
from headrace_broker.admission import Share
from headrace_broker.fetch import Fetched, fetch, find_offset
from headrace_broker.partition import Partition
from headrace_broker.proxy import Elsewhere
from headrace_broker.requests import FetchQuery, WatchQuery
from headrace_broker.routes.compression import compressed
from headrace_broker.routes.headers import fetch_headers
from headrace_broker.routes.parameters import parse_fetch, parse_offsets, parse_place
from headrace_broker.routes.record_bodies import (
    BodyFormat,
    accepted_format,
    json_of,
    ndjson_of,
    unpacked_bytes_of,
    with_place,
)
from headrace_broker.routes.watch import watch_response
from headrace_broker.serving import Serving

_BATCHES = BodyFormat.BATCHES.value


class FetchRoute:
    """GET /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_fetch(request.query)
        body_format = accepted_format(request.headers.get("Accept", ""))
        self._serving.check_readable(place.topic, request)
        target = self._serving.locate(place, query.fence)
        if isinstance(query, WatchQuery):
            return await self._watch(request, target, query, body_format)
        with self._serving.answer_share(request) as share:
            response: web.StreamResponse
            if isinstance(target, Elsewhere):
                response = await self._serving.proxy.forward(request, target, (), query.max_wait_ms, share)
            else:
                with target.log.verification.suspecting():
                    fetched = fetch(target, query, share)
                    # Nothing here keeps what was read while its JSON is on the way.
                    try:
                        response = await self._response(request, await fetched, query, body_format, share)
                    except UnreadableBatchError as error:
                        raise with_place(error, place) from error
            # Sent from here: what is on its way counts until it is gone.
            await response.prepare(request)
            await response.write_eof()
            return response

    async def _response(
        self, request: web.Request, fetched: Fetched, query: FetchQuery, body_format: BodyFormat, share: Share
    ) -> web.StreamResponse:
        if body_format is BodyFormat.BATCHES:
            headers = {**fetch_headers(fetched, fetched.next_offset), "Vary": "Accept"}
            return BuffersResponse(fetched.buffers, content_type=_BATCHES, headers=headers)
        shape = ndjson_of if body_format is BodyFormat.NDJSON else json_of
        admission = self._serving.admission
        unpacked = await asyncio.to_thread(unpacked_bytes_of, fetched, admission.json_batch_bytes_max)
        async with admission.converting(max(share.taken, unpacked)):
            body, next_offset = await asyncio.to_thread(shape, fetched, query.max_records, query.value_format)
        share.resize(len(body))
        headers = {**fetch_headers(fetched, next_offset), "Content-Type": body_format.value, "Vary": "Accept"}
        whole = await compressed(request, web.Response(body=body, headers=headers))
        assert isinstance(whole.body, bytes), "as it was made"
        share.resize(len(whole.body))
        # In pieces, because a socket copies what it does not take at once.
        return BuffersResponse([whole.body], content_type=body_format.value, headers=whole.headers)

    async def _watch(
        self, request: web.Request, target: Partition | Elsewhere, query: WatchQuery, body_format: BodyFormat
    ) -> web.StreamResponse:
        if isinstance(target, Elsewhere):
            with self._serving.watches.one_more(self._serving.holder(request)):
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
            return await self._serving.proxy.forward(request, target, (), OFFSETS_TIMEOUT_MS)
        found = await find_offset(target, query)
        answer = {
            "partition": place.partition,
            "offset": found.offset,
            "timestamp": found.timestamp_ms,
            "leaderEpoch": found.leader_epoch,
        }
        return web.Response(body=json.dumps(answer).encode() + b"\n", content_type="application/json")
