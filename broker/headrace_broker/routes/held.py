"""GET of what a broker holds and which epochs it knows: what `headrace cluster recover` and the operator decide with.

Any broker answers for any other, as with records, so that whoever reaches one of them reaches all.
"""

import json

from aiohttp import web

from headrace.core.control.held import BrokerReport, Epochs
from headrace.core.limits import CONTROL_TIMEOUT_MS
from headrace.core.types import PartitionEpoch, Seat, TopicUid
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
        partitions, none = self._serving.partitions, PartitionEpoch(0)
        logs = await partitions.survey(uids)
        known = {key: Epochs(epoch, none) for key, epoch in partitions.remembered(uids).items() if key not in logs}
        for key, state in self._serving.view.states.items():
            if uids is None or key.uid in uids:
                heard = max(state.leader_epoch, known[key].leader_epoch if key in known else state.leader_epoch)
                known[key] = Epochs(heard, state.partition_epoch)
        return BrokerReport(me, known, logs)
