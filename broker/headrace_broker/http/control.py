"""The requests to one broker about itself (/v1/brokers/ID/...) by the operator, by `headrace cluster recover` and by
coordinators. Any broker passes such a request on, so that a sender who reaches one of them reaches all.

held: what a broker holds and which epochs it knows. promises: what it holds of partitions in which nobody can lead;
`headrace.core.control.broker_reports` says what an answer means. Partitions that are not open here, or of which this
broker has not applied what the operator saw, are left out of the answer: the operator asks again. watermarks: how far
the readable records of partitions reach, for the lag of groups.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from headrace.core.control.broker_reports import BrokerReport, Epochs, Promises, parse_promises_request
from headrace.core.errors import HeadraceError, InvalidRequestError, NotReadyError, UnknownBrokerError
from headrace.core.groups.lag import parse_watermarks_request, watermarks_object
from headrace.core.limits import WATERMARKS_TIMEOUT_MS
from headrace.core.types import BrokerId, PartitionKey, TopicUid
from headrace_broker.admission import Requests
from headrace_broker.cluster.locator import OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.group_lag import known_here
from headrace_broker.http.json_bodies import json_answer
from headrace_broker.http.parameters import parse_broker, parse_held, parse_no_query
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.uploads import Chunks, Questions

CONTROL_TIMEOUT_MS = 10_000
"""The time that a broker waits for the answer where it passes such a request on."""
PROMISES_BODY_BYTES_MAX = 4 << 20
"""The limit of such a request."""
WATERMARKS_BODY_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Peer:
    """The broker that a request is passed on to."""

    broker: BrokerId
    url: str

    def error(self, why: str) -> HeadraceError:
        return NotReadyError(f"only broker {self.broker} can tell what it holds{why}; look whether it is running")


class Peers:
    """The brokers that a request may be about, and the way to them."""

    def __init__(self, me: BrokerId, view: ClusterView, proxy: Proxy) -> None:
        self._me = me
        self._view = view
        self._proxy = proxy

    async def forward(
        self, request: web.Request, broker: BrokerId, body: Chunks, timeout_ms: int
    ) -> web.Response | None:
        """Return the broker's answer; None where it is this one. Raises NotReadyError, UnknownBrokerError."""
        self._view.check_complete()
        lease = self._view.lease(broker)
        if lease is None:
            raise UnknownBrokerError(f"there is no broker {broker}; GET /v1/cluster names those that there are")
        if broker == self._me:
            return None
        return await self._proxy.forward(request, Peer(broker, lease.url), body, timeout_ms)


class Reports(Protocol):
    """The reports of this broker on its logs. Both raise NotReadyError until it has an incarnation."""

    async def report(self, uids: Collection[TopicUid] | None = None) -> BrokerReport:
        """Return what it holds and which epochs it knows, of these topics or of all."""

    async def promises(self, asked: Mapping[PartitionKey, Epochs]) -> Promises:
        """Return what it promises of those that are open and led by nobody, once the epochs are on disk."""


class HeldRoute:
    """GET /v1/brokers/{broker}/held"""

    def __init__(self, peers: Peers, reports: Reports) -> None:
        self._peers = peers
        self._reports = reports

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        uids = parse_held(request.query)
        answer = await self._peers.forward(request, broker, (), CONTROL_TIMEOUT_MS)
        return answer if answer is not None else json_answer((await self._reports.report(uids)).to_object())


class PromisesRoute:
    """POST /v1/brokers/{broker}/promises"""

    def __init__(self, peers: Peers, reports: Reports, questions: Questions, places: Requests) -> None:
        self._peers = peers
        self._reports = reports
        self._questions = questions
        self._places = places

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        parse_no_query(request.query)
        async with self._questions.asked(request, self._places, PROMISES_BODY_BYTES_MAX) as body:
            asked = _parse_promises(body)
            answer = await self._peers.forward(request, broker, (body,), CONTROL_TIMEOUT_MS)
            if answer is not None:
                return answer
            promises = await self._reports.promises(asked)
        return json_answer(promises.to_object())


def _parse_promises(body: bytes) -> dict[PartitionKey, Epochs]:
    try:
        return parse_promises_request(json.loads(body))
    except ValueError as error:
        raise InvalidRequestError(f"no questions to a broker: {error}", field="partitions") from error


class WatermarksRoute:
    """POST /v1/brokers/{broker}/watermarks"""

    def __init__(self, peers: Peers, partitions: OpenPartitions, questions: Questions, places: Requests) -> None:
        self._peers = peers
        self._partitions = partitions
        self._questions = questions
        self._places = places

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        broker = parse_broker(request.match_info)
        parse_no_query(request.query)
        async with self._questions.asked(request, self._places, WATERMARKS_BODY_BYTES_MAX) as body:
            asked = _parse_watermarks(body)
            answer = await self._peers.forward(request, broker, (body,), WATERMARKS_TIMEOUT_MS)
            if answer is not None:
                return answer
            found = watermarks_object(known_here(self._partitions, asked))
        return json_answer(found)


def _parse_watermarks(body: bytes) -> list[PartitionKey]:
    try:
        return parse_watermarks_request(json.loads(body))
    except ValueError as error:
        raise InvalidRequestError(f"the body is no JSON: {error}", field="partitions") from error
