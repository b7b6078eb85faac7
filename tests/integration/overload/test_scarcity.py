"""What clients see while a broker has little left to hold things in."""

import asyncio
import json

import pytest

from headrace.core.records.header import Compression
from headrace.http2.async_transport import AsyncResponse, AsyncTransport
from headrace_broker.admission import ANSWER_BYTES_MIN, JSON_BATCH_BYTES_MIN
from tests.support.batches import batch_of
from tests.support.broker_app import BrokerApp
from tests.support.patience import patient
from tests.support.waiting import eventually
from tests.support.world import BATCH

VALUE = bytes(40 << 10)


async def get(transport: AsyncTransport, url: str, accept: str = BATCH) -> AsyncResponse:
    return await transport.request("GET", url, headers={"accept": accept}, timeout_s=patient(30))


async def test_should_answer_probes_when_no_more_requests_are_taken(app: BrokerApp, transport: AsyncTransport) -> None:
    app.admission.clients.most = 0
    refused = await get(transport, app.url)
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert json.loads(await refused.read())["code"] == "Throttled"
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await get(transport, f"http://127.0.0.1:{app.server.port}{path}", "*/*")).status == 200
    await eventually(lambda: app.admission.requests == 0, "none is counted any more")


async def test_should_make_answers_smaller_before_it_refuses_any(app: BrokerApp, transport: AsyncTransport) -> None:
    for _ in range(6):
        await app.produce(VALUE)
    whole = len(await (await get(transport, app.url)).read())
    answers = app.admission.answers
    answers.take(answers.left_bytes - 2 * ANSWER_BYTES_MIN)
    smaller = await (await get(transport, app.url)).read()
    assert 0 < len(smaller) < whole // 2
    answers.take(2 * ANSWER_BYTES_MIN - 1)
    assert (await get(transport, app.url)).status == 429
    assert (await get(transport, f"{app.url}?offset=latest")).status == 200, "who reads nothing needs no room"


async def test_should_let_a_stream_wait_for_room_and_say_that_it_lives(
    app: BrokerApp, transport: AsyncTransport
) -> None:
    app.components.watches.heartbeat_ms = 20
    answers = app.admission.answers
    stream = await get(transport, f"{app.url}?watch=true", "application/x-ndjson")
    chunks = stream.chunks()
    taken = answers.left_bytes
    answers.take(taken)
    await app.produce(b"a")
    async with asyncio.timeout(patient(60)):
        assert [await anext(chunks) for _ in range(2)] == [b"\n", b"\n"]
        answers.give_back(taken)
        while not (line := (await anext(chunks)).strip()):
            pass
    assert json.loads(line)["value"] == "a"
    stream.cancel()
    await eventually(lambda: app.components.watches.open == 0, "the stream is forgotten")
    await eventually(lambda: answers.left_bytes == answers.limit_bytes, "all given back")


async def test_should_refuse_at_once_a_body_that_could_never_fit(app: BrokerApp, transport: AsyncTransport) -> None:
    app.admission.bodies.limit_bytes = app.admission.bodies.left_bytes = 2000
    refused = await transport.request("POST", app.url, headers={"content-type": BATCH}, body=[VALUE])
    assert (refused.status, json.loads(await refused.read())["limit"]) == (413, 1000)
    await eventually(lambda: app.admission.bodies.left_bytes == 2000, "all given back")


@pytest.mark.parametrize("more", ["", "&watch=true"])
async def test_should_make_no_json_of_a_batch_that_is_too_large_once_it_is_decompressed(
    app: BrokerApp, transport: AsyncTransport, more: str
) -> None:
    bomb = batch_of(bytes(JSON_BATCH_BYTES_MIN), compression=Compression.ZSTD)
    await transport.request("POST", app.url, headers={"content-type": BATCH}, body=[bomb])
    app.admission.conversions.limit_bytes = 1
    for accept in ("application/json", "application/x-ndjson"):
        refused = await get(transport, f"{app.url}?offset=earliest{more}", accept)
        assert (refused.status, json.loads(await refused.read())["limit"]) == (413, JSON_BATCH_BYTES_MIN)
    assert (await (await get(transport, f"{app.url}?offset=earliest")).read())[64:] == bomb[64:]
    answers = app.admission.answers
    await eventually(lambda: answers.left_bytes == answers.limit_bytes, "all given back")
