"""DELETE of records: from the front of a partition, as far as they are committed."""

import json

from aiohttp import web

from headrace.core.limits import DELETE_TIMEOUT_MS
from headrace_broker.proxy import Elsewhere
from headrace_broker.routes.parameters import parse_delete, parse_place
from headrace_broker.serving import Serving


class DeleteRoute:
    """DELETE /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_delete(request.query)
        self._serving.check_deletable(place.topic, request)
        target = self._serving.locate(place, query.fence)
        if isinstance(target, Elsewhere):
            return await self._serving.proxy.forward(request, target, (), DELETE_TIMEOUT_MS)
        answer = {"partition": place.partition, "logStartOffset": await target.delete_records(query)}
        return web.Response(body=json.dumps(answer).encode() + b"\n", content_type="application/json")
