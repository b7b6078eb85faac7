"""Requests to one broker about itself (/v1/brokers/ID/...), by the operator, by `headrace cluster recover` and by
coordinators. Any broker passes such a request on, so that whoever reaches one of them reaches all.

held: what a broker holds and which epochs it knows. promises: what it holds of partitions in which nobody can lead;
`headrace.core.control.promises` says what an answer means. Partitions that are not open here, or of which this broker
has not applied what the operator saw, are left out of the answer: the operator asks again. watermarks: how far the
readable records of partitions reach, for the lag of groups.
"""

import json
from dataclasses import dataclass

from aiohttp import web

from headrace.core.control.broker_reports import BrokerReport, Epochs, Promises, known_epochs, parse_promises_request
from headrace.core.errors import HeadraceError, InvalidRequestError, NotReadyError, UnknownBrokerError
from headrace.core.groups.lag import parse_watermarks_request, watermarks_object
from headrace.core.limits import WATERMARKS_TIMEOUT_MS
from headrace.core.types import BrokerId, PartitionKey, Seat, TopicUid
from headrace_broker.coordinators.group_lag import known_here
from headrace_broker.http.parameters import parse_broker, parse_held, parse_no_query
from headrace_broker.serving import Serving

CONTROL_TIMEOUT_MS = 10_000
"""What a broker that passes such a request on to another one waits for its answer."""
PROMISES_BODY_BYTES_MAX = 4 << 20
"""Of such a request."""
WATERMARKS_BODY_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Peer:
    """The broker that a request is passed on to."""

    broker: BrokerId
    url: str

    def error(self, why: str) -> HeadraceError:
        return NotReadyError(f"only broker {self.broker} can tell what it holds{why}; look whether it is running")


def peer_of(serving: Serving, broker: BrokerId) -> Peer | None:
    """None where it is this one. Raises NotReadyError, UnknownBrokerError."""
    serving.check_view()
    lease = serving.view.lease(broker)
    if lease is None:
        raise UnknownBrokerError(f"there is no broker {broker}; GET /v1/cluster names those that there are")
    return Peer(broker, lease.url) if broker != serving.me else None


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


class PromisesRoute:
    """POST /v1/brokers/{broker}/promises"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        parse_no_query(request.query)
        async with self._serving.question(request, self._serving.admission.control, PROMISES_BODY_BYTES_MAX) as body:
            asked = _parse_promises(body)
            peer = peer_of(self._serving, broker)
            if peer is not None:
                return await self._serving.proxy.forward(request, peer, (body,), CONTROL_TIMEOUT_MS)
            promises = Promises(self._serving.seat(), await self._serving.partitions.promise(asked))
        return web.Response(body=json.dumps(promises.to_object()).encode() + b"\n", content_type="application/json")


def _parse_promises(body: bytes) -> dict[PartitionKey, Epochs]:
    try:
        return parse_promises_request(json.loads(body))
    except ValueError as error:
        raise InvalidRequestError(f"no questions to a broker: {error}", field="partitions") from error


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
            asked = _parse_watermarks(body)
            peer = peer_of(self._serving, broker)
            if peer is not None:
                return await self._serving.proxy.forward(request, peer, (body,), WATERMARKS_TIMEOUT_MS)
            found = watermarks_object(known_here(self._serving.partitions, asked))
        return web.Response(body=json.dumps(found).encode() + b"\n", content_type="application/json")


def _parse_watermarks(body: bytes) -> list[PartitionKey]:
    try:
        return parse_watermarks_request(json.loads(body))
    except ValueError as error:
        raise InvalidRequestError(f"the body is no JSON: {error}", field="partitions") from error
