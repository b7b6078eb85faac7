"""POST of partitions whose watermarks a group's coordinator wants to know: how far their readable records reach."""

import json

from aiohttp import web

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.lag import parse_watermarks_request, watermarks_object
from headrace.core.limits import WATERMARKS_BODY_BYTES_MAX, WATERMARKS_TIMEOUT_MS
from headrace.core.types import PartitionKey
from headrace_broker.groups.lag import known_here
from headrace_broker.routes.parameters import parse_broker, parse_no_query
from headrace_broker.routes.peers import peer_of
from headrace_broker.serving import Serving


class WatermarksRoute:
    """POST /v1/brokers/{broker}/watermarks"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        parse_no_query(request.query)
        async with self._serving.question(
            request, self._serving.admission.watermarks, WATERMARKS_BODY_BYTES_MAX
        ) as body:
            asked = _parse(body)
            peer = peer_of(self._serving, broker)
            if peer is not None:
                return await self._serving.proxy.forward(request, peer, (body,), WATERMARKS_TIMEOUT_MS)
            found = watermarks_object(known_here(self._serving.partitions, asked))
        return web.Response(body=json.dumps(found).encode() + b"\n", content_type="application/json")


def _parse(body: bytes) -> list[PartitionKey]:
    try:
        return parse_watermarks_request(json.loads(body))
    except ValueError as error:
        raise InvalidRequestError(f"the body is no JSON: {error}", field="partitions") from error
