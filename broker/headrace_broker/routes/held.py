"""GET of what a broker holds and which epochs it knows: what `headrace cluster recover` and the operator decide with.

Any broker answers for any other, as with records, so that whoever reaches one of them reaches all.
"""

import json

from aiohttp import web

from headrace.core.control.broker_reports import BrokerReport, known_epochs
from headrace.core.limits import CONTROL_TIMEOUT_MS
from headrace.core.types import Seat, TopicUid
from headrace_broker.routes.parameters import parse_broker, parse_held
from headrace_broker.routes.peers import peer_of
from headrace_broker.serving import Serving


class HeldRoute:
    """GET /v1/brokers/{broker}/held"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        uids = parse_held(request.query)
        peer = peer_of(self._serving, broker)
        if peer is not None:
            return await self._serving.proxy.forward(request, peer, (), CONTROL_TIMEOUT_MS)
        report = await self._report(self._serving.seat(), uids)
        return web.Response(body=json.dumps(report.to_object()).encode() + b"\n", content_type="application/json")

    async def _report(self, me: Seat, uids: frozenset[TopicUid] | None) -> BrokerReport:
        partitions = self._serving.partitions
        logs = await partitions.survey(uids)
        opened = (partitions.find(key) for key in logs)
        states = {each.key: each.replica.state for each in opened if each is not None}
        applied = {key: state for key, state in states.items() if state is not None}
        known = known_epochs(partitions.remembered(uids), self._serving.view.states, applied)
        asked = {key: epochs for key, epochs in known.items() if uids is None or key.uid in uids}
        return BrokerReport(me, asked, logs)
