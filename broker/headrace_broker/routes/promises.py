"""POST of what the operator wants promised: what this broker holds of partitions in which nobody can lead.

`headrace.core.control.broker_reports` says what an answer means. Partitions that are not open here, or of which this
broker has not applied what the operator saw, are left out of the answer: the operator asks again.
"""

import json

from aiohttp import web

from headrace.core.control.broker_reports import Epochs, Promises, parse_promises_request
from headrace.core.errors import InvalidRequestError
from headrace.core.limits import CONTROL_TIMEOUT_MS, PROMISES_BODY_BYTES_MAX
from headrace.core.types import PartitionKey
from headrace_broker.routes.parameters import parse_broker, parse_no_query
from headrace_broker.routes.peers import peer_of
from headrace_broker.serving import Serving


class PromisesRoute:
    """POST /v1/brokers/{broker}/promises"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        parse_no_query(request.query)
        async with self._serving.question(request, self._serving.admission.control, PROMISES_BODY_BYTES_MAX) as body:
            asked = _parse(body)
            peer = peer_of(self._serving, broker)
            if peer is not None:
                return await self._serving.proxy.forward(request, peer, (body,), CONTROL_TIMEOUT_MS)
            promises = Promises(self._serving.seat(), await self._serving.partitions.promise(asked))
        return web.Response(body=json.dumps(promises.to_object()).encode() + b"\n", content_type="application/json")


def _parse(body: bytes) -> dict[PartitionKey, Epochs]:
    try:
        return parse_promises_request(json.loads(body))
    except ValueError as error:
        raise InvalidRequestError(f"no questions to a broker: {error}", field="partitions") from error
