"""Asks brokers what they promise, and what they hold, at the URLs of their Leases. Whoever does not answer in time is
asked again another time.

Decides nothing: what to ask `questions` and `inquiries` say, what the answers mean `resort` and `reclaim`. One per
process.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from headrace.core.control.broker_reports import BrokerReport, Epochs, Promises, promises_request_object
from headrace.core.control.last_resort import PromiseRequests, Questions
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.errors import HeadraceError, RemoteError
from headrace.core.limits import HELD_TOPICS_MAX, PROMISES_BYTES_MAX, PROMISES_TIMEOUT_MS
from headrace.core.types import BrokerId, PartitionKey, TopicUid
from headrace.http2.async_transport import AsyncResponse, AsyncTransport

_log = logging.getLogger(__name__)
_TIMEOUT_S = PROMISES_TIMEOUT_MS / 1000
_HEADERS = {"content-type": "application/json", "accept": "application/json"}


class Reporter:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._asking = PromiseRequests()

    async def asked(self, observed: Observed, wanted: Questions) -> Observed:
        """`observed` with what the brokers answered, of as much as can be asked at once."""
        asked = self._asking.turn(wanted)
        answers = await asyncio.gather(*(self._ask(observed, broker, keys) for broker, keys in asked.items()))
        promises = {answer.seat.broker: answer for answer in answers if answer is not None}
        return replace(observed, promises=promises, silent=self._asking.heard(asked, promises))

    async def reported(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        """`observed` with what the brokers hold of these topics; of one that does not answer all of it, nothing."""
        alive = observed.in_state(BrokerState.READY, BrokerState.DRAINING)
        answers = await asyncio.gather(*(self._report(broker, uids) for broker in alive))
        reports = {answer.seat.broker: answer for answer in answers if answer is not None}
        return replace(observed, reports=reports, asked=frozenset(uids))

    async def _report(self, broker: Broker, uids: Sequence[TopicUid]) -> BrokerReport | None:
        report = BrokerReport(broker.seat, {}, {})
        for first in range(0, len(uids), HELD_TOPICS_MAX):
            asked = quote(",".join(uids[first : first + HELD_TOPICS_MAX]))
            answer = await self._call("GET", broker, f"held?topicUid={asked}")
            if answer is None:
                return None
            try:
                part = BrokerReport.parse(answer)
            except RemoteError as error:
                _tell(broker, error)
                return None
            report = BrokerReport(part.seat, {**report.known, **part.known}, {**report.logs, **part.logs})
        return report

    async def _ask(
        self, observed: Observed, broker: BrokerId, questions: Mapping[PartitionKey, Epochs]
    ) -> Promises | None:
        asked = observed.brokers[broker]
        answer = await self._call("POST", asked, "promises", json.dumps(promises_request_object(questions)).encode())
        try:
            return Promises.parse(answer) if answer is not None else None
        except RemoteError as error:
            _tell(asked, error)
            return None

    async def _call(self, method: str, broker: Broker, what: str, body: bytes = b"") -> Any:
        """None where it does not answer."""
        url = f"{broker.url}/v1/brokers/{broker.id}/{what}"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await self._transport.request(method, url, headers=_HEADERS, body=body, timeout_s=_TIMEOUT_S)
                content = await content_of(response)
            if response.status != 200:
                raise RemoteError(f"{response.status} {content[:200].decode(errors='replace')}")
            return json.loads(content)
        except (HeadraceError, TimeoutError, ValueError, OSError) as error:
            _tell(broker, error)
            return None


def _tell(broker: Broker, error: Exception) -> None:
    _log.warning("broker %d at %s does not say what it holds: %s", broker.id, broker.url, str(error) or repr(error))


async def content_of(response: AsyncResponse) -> bytes:
    """Raises RemoteError where there is no end of it."""
    content = bytearray()
    async for chunk in response.chunks():
        content += chunk
        if len(content) > PROMISES_BYTES_MAX:
            response.cancel()
            raise RemoteError(f"its answer is longer than {PROMISES_BYTES_MAX} bytes")
    return bytes(content)
