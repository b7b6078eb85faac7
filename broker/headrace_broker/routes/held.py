"""GET of what a broker holds and which epochs it knows: what `headrace cluster recover` and the operator decide with.

Any broker answers for any other, as with records, so that whoever reaches one of them reaches all.
"""

import json
from dataclasses import dataclass

from aiohttp import web

from headrace.core.control.held import BrokerReport, known_epochs
from headrace.core.errors import HeadraceError, NotReadyError, UnknownBrokerError
from headrace.core.limits import CONTROL_TIMEOUT_MS
from headrace.core.types import BrokerId, Seat, TopicUid
from headrace_broker.routes.parameters import parse_broker, parse_held
from headrace_broker.serving import Serving


@dataclass(frozen=True, slots=True)
class Peer:
    """The broker that a request is passed on to."""

    broker: BrokerId
    url: str

    def error(self, why: str) -> HeadraceError:
        return NotReadyError(f"only broker {self.broker} can tell what it holds{why}; look whether it is running")


class HeldRoute:
    """GET /v1/brokers/{broker}/held"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        uids = parse_held(request.query)
        self._serving.check_view()
        lease = self._serving.view.lease(broker)
        if lease is None:
            raise UnknownBrokerError(f"there is no broker {broker}; GET /v1/cluster names those that there are")
        if broker != self._serving.me:
            return await self._serving.proxy.forward(request, Peer(broker, lease.url), (), CONTROL_TIMEOUT_MS)
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
