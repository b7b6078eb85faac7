"""The requests of the operator to brokers, at the URLs of their Leases. The module decides nothing.

`Reporter` asks what brokers promise, and what they hold; a broker that does not answer in time is asked again another
time. The core decides what to ask (`questions`, `inquiries`) and what the answers mean (`resort`, `reclaim`).

`Inquiry` asks what they hold in a task beside the loop: one that hangs must not hold up everything else that there is
to decide.

    take, nothing is here of what is wanted ──> asking ── all have answered, or the time is over ──> it wakes the loop
    take, it is here ──> handed out, once: an answer from before the last pass may not be true any more

It is owned by the reconciler; `run` is a task of its own, one round at a time. A round that is under way when this
operator stops acting is not used: `drop`.

`GroupCalls` sends the requests of errands for groups: any broker passes a request on to the broker that it is for, and
one that cannot be reached is passed over. One of each per process, used in one event loop.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from headrace.core.control.broker_reports import BrokerReport, Epochs, Promises, promises_request_object
from headrace.core.control.group_errands import Answer, Errand, ErrandVerdict
from headrace.core.control.last_resort import PromiseRequests, Questions
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.errors import BrokerUnreachableError, HeadraceError, RemoteError, from_problem
from headrace.core.groups.requests import GroupCall
from headrace.core.limits import HELD_TOPICS_MAX
from headrace.core.types import BrokerId, PartitionKey, TopicUid
from headrace.http2.async_transport import AsyncResponse, AsyncTransport

PROMISES_TIMEOUT_MS = 5_000
PROMISES_BYTES_MAX = 16 << 20
"""The size of an answer to it."""
GROUP_ERRAND_REQUESTS_MAX = 8
"""The requests of one errand: a reset of ten thousand partitions holds up no other."""
GROUP_ERRAND_TIMEOUT_MS = 10_000
"""The time limit of one of its requests: a broker passes it on to the coordinator, which waits for its log."""


_log = logging.getLogger(__name__)
_TIMEOUT_S = PROMISES_TIMEOUT_MS / 1000
_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_GROUP_TIMEOUT_S = GROUP_ERRAND_TIMEOUT_MS / 1000


class Reporter:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._asking = PromiseRequests()

    async def asked(self, observed: Observed, wanted: Questions) -> Observed:
        """Return `observed` with what the brokers answered, of as much as can be asked at once."""
        asked = self._asking.turn(wanted)
        answers = await asyncio.gather(*(self._ask(observed, broker, keys) for broker, keys in asked.items()))
        promises = {answer.seat.broker: answer for answer in answers if answer is not None}
        return replace(observed, promises=promises, silent=self._asking.answered(asked, promises))

    async def reported(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        """Return `observed` with what the brokers hold of these topics; an incomplete answer of one counts as none."""
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
                _log_silence(broker, error)
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
            _log_silence(asked, error)
            return None

    async def _call(self, method: str, broker: Broker, what: str, body: bytes = b"") -> Any:
        """Send one request and return the answer; None where the broker does not answer."""
        url = f"{broker.url}/v1/brokers/{broker.id}/{what}"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await self._transport.request(method, url, headers=_HEADERS, body=body, timeout_s=_TIMEOUT_S)
                content = await content_of(response)
            if response.status != 200:
                raise RemoteError(f"{response.status} {content[:200].decode(errors='replace')}")
            return json.loads(content)
        except (HeadraceError, TimeoutError, ValueError, OSError) as error:
            _log_silence(broker, error)
            return None


def _log_silence(broker: Broker, error: Exception) -> None:
    _log.warning("broker %d at %s does not say what it holds: %s", broker.id, broker.url, str(error) or repr(error))


async def content_of(response: AsyncResponse) -> bytes:
    """Return the content. Raises RemoteError where it does not end."""
    content = bytearray()
    async for chunk in response.chunks():
        content += chunk
        if len(content) > PROMISES_BYTES_MAX:
            response.cancel()
            raise RemoteError(f"its answer is longer than {PROMISES_BYTES_MAX} bytes")
    return bytes(content)


class Inquiry:
    def __init__(self, reporter: Reporter, ring: Callable[[], None]) -> None:
        self._reporter = reporter
        self._ring = ring
        self._wanted: tuple[Observed, Sequence[TopicUid]] | None = None
        self._asking: Sequence[TopicUid] = ()
        """The topics of the round that is under way; empty where there is none, or its answers are not needed any
        more."""
        self._answers: Observed | None = None
        self._changed = asyncio.Event()

    def take(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        """Return `observed` with what brokers have answered since the last time; what is missing of `uids` is asked
        for."""
        answers, self._answers = self._answers, None
        here = answers.asked if answers is not None else ()
        if not {*uids} <= {*here} and not {*uids} <= {*self._asking}:
            self._wanted = observed, uids
            self._changed.set()
        return observed if answers is None else replace(observed, reports=answers.reports, asked=here)

    def drop(self) -> None:
        """Drop the answers of the round that is under way."""
        self._wanted, self._asking, self._answers = None, (), None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                await self._ask(*wanted)

    async def _ask(self, observed: Observed, uids: Sequence[TopicUid]) -> None:
        self._asking = uids
        answers = await self._reporter.reported(observed, uids)
        if self._asking is uids:
            self._asking, self._answers = (), answers
            self._ring()


class GroupCalls:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def carry_out(self, errand: Errand, urls: Sequence[str]) -> ErrandVerdict:
        """Carry out an errand; `urls` are those of the brokers, the most likely to know first."""
        places = asyncio.Semaphore(GROUP_ERRAND_REQUESTS_MAX)
        try:
            calls = next(errand)
            while True:
                calls = errand.send(await asyncio.gather(*(self._answer(call, urls, places) for call in calls)))
        except StopIteration as end:
            verdict: ErrandVerdict = end.value
            return verdict

    async def _answer(self, call: GroupCall, urls: Sequence[str], places: asyncio.Semaphore) -> Answer:
        async with places:
            error: HeadraceError = BrokerUnreachableError("no broker is ready")
            for url in urls:
                try:
                    return await self._call(call, url)
                except BrokerUnreachableError as unreachable:
                    error = unreachable
                except HeadraceError as answered:
                    return answered
            return error

    async def _call(self, call: GroupCall, url: str) -> Any:
        """Send one request. Raises what the broker answers."""
        body = b"" if call.body is None else json.dumps(call.body).encode()
        try:
            async with asyncio.timeout(_GROUP_TIMEOUT_S):
                response = await self._transport.request(
                    call.method, url + call.path, headers=_HEADERS, body=body, timeout_s=_GROUP_TIMEOUT_S
                )
                content = await content_of(response)
        except (TimeoutError, OSError) as error:
            raise BrokerUnreachableError(f"{url}: {str(error) or repr(error)}") from error
        answer = _parsed(content)
        if response.status >= 300:
            raise from_problem(answer, response.status)
        return answer


def _parsed(content: bytes) -> dict[str, Any]:
    """Parse a body. Raises RemoteError."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RemoteError(f"a broker answers what is no JSON object: {content[:200].decode(errors='replace')}")
    return answer
