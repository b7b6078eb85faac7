"""The operator asks brokers for promises, and takes no answer without an end."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from headrace.core.control.broker_reports import Epochs, PromisedLog, Promises
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicUid,
)
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server import serve
from headrace_operator.broker_calls import PROMISES_BYTES_MAX, Reporter
from tests.support.partition_sets import seat

KEY = PartitionKey(TopicUid("u"), PartitionId(0))
WANTED = {BrokerId(1): {KEY: Epochs(LeaderEpoch(3), PartitionEpoch(4))}}
PROMISES = Promises(seat(1), {KEY: PromisedLog(LeaderEpoch(3), Offset(7), Offset(5))})


async def asked(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Observed:
    """What the operator makes of the answer of broker 1."""
    app = web.Application()
    app.add_routes([web.post("/v1/brokers/1/promises", handler)])
    server = await serve(app, host="127.0.0.1", port=0)
    try:
        url = f"http://127.0.0.1:{server.port}"
        known = Broker(BrokerId(1), Incarnation(1), "", BrokerState.READY, url)
        async with AsyncTransport() as transport:
            return await Reporter(transport).asked(Observed("main", (), {known.id: known}), WANTED)
    finally:
        await server.close(1.0)


async def test_should_hear_what_a_broker_promises() -> None:
    async def promise(request: web.Request) -> web.Response:
        return web.json_response(PROMISES.to_object())

    observed = await asked(promise)
    assert observed.promises == {1: PROMISES}
    assert observed.silent == {KEY: []}


async def test_should_not_listen_to_an_answer_without_an_end(caplog: pytest.LogCaptureFixture) -> None:
    async def babble(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * (1 << 20))

    observed = await asked(babble)
    assert observed.promises == {}
    assert observed.silent == {KEY: [BrokerId(1)]}
    assert f"longer than {PROMISES_BYTES_MAX} bytes" in caplog.text
