"""gzip in both directions over both protocols; what decodes to too much is refused before it is held."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession

from headrace.core.limits import REQUEST_BODY_BYTES_MAX, REQUEST_BYTES_IN_FLIGHT_MAX
from headrace.http2.async_transport import AsyncTransport
from tests.support.batches import batch_of
from tests.support.broker_app import BrokerApp
from tests.support.cluster import Cluster, http
from tests.support.waiting import eventually
from tests.support.world import BATCH, NDJSON


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
async def ask(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """(method, url, headers, body) -> (status, headers, body as it came)."""
    async with AsyncTransport() as transport, ClientSession(auto_decompress=False) as session:

        async def over_http2(method: str, url: str, headers: dict[str, str], body: bytes = b"") -> Any:
            answer = await transport.request(method, url, headers=headers, body=body)
            return answer.status, answer.headers, await answer.read()

        async def over_http1(method: str, url: str, headers: dict[str, str], body: bytes = b"") -> Any:
            plain = {"Accept-Encoding": "identity", **headers}
            async with session.request(method, url, headers=plain, data=body or None) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, await answer.read()

        yield over_http2 if request.param == "HTTP/2" else over_http1


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (NDJSON, b'{"value": "a"}\n' * 500),
        ("application/json", json.dumps({"records": [{"value": "a"}] * 500}).encode()),
        (BATCH, batch_of(*[b"a"] * 500)),
    ],
)
@pytest.mark.parametrize("coding", ["gzip", "X-GZIP", "identity"])
async def test_should_take_records_gzipped(
    app: BrokerApp, ask: Any, content_type: str, body: bytes, coding: str
) -> None:
    coded = body if coding == "identity" else gzip.compress(body)
    status, _, answer = await ask("POST", app.url, {"Content-Type": content_type, "Content-Encoding": coding}, coded)
    assert status == 200, answer
    assert json.loads(answer)["lastOffset"] == 499
    await eventually(lambda: app.admission.bodies.left_bytes == REQUEST_BYTES_IN_FLIGHT_MAX, "all given back")


@pytest.mark.parametrize(
    ("coding", "body", "status", "said"),
    [
        (
            "br",
            b"x",
            415,
            "Content-Encoding 'br': must be gzip or identity; compress with gzip, or send the body as it",
        ),
        ("gzip, gzip", b"x", 415, "Content-Encoding 'gzip, gzip'"),
        ("gzip", b'{"value": "a"}', 400, "the body is not what it says: "),
        ("gzip", gzip.compress(b'{"value": "a"}')[:-1], 400, "it ends before its checksum"),
        ("gzip", gzip.compress(bytes(REQUEST_BODY_BYTES_MAX + 1)), 413, "has more bytes once it is decoded; at most"),
    ],
    ids=["brotli", "twice", "no gzip", "cut short", "bomb"],  # gzip writes the time, and processes must agree on names
)
async def test_should_refuse_what_it_cannot_decode(
    app: BrokerApp, ask: Any, coding: str, body: bytes, status: int, said: str
) -> None:
    got, headers, answer = await ask("POST", app.url, {"Content-Type": NDJSON, "Content-Encoding": coding}, body)
    assert (got, json.loads(answer)["status"]) == (status, status)
    assert said in json.loads(answer)["detail"]
    assert headers.get("accept-encoding") == ("gzip, identity" if status == 415 else None)
    assert app.partition.log.log_end_offset == 0
    await eventually(lambda: app.admission.bodies.left_bytes == REQUEST_BYTES_IN_FLIGHT_MAX, "all given back")


async def test_should_count_what_a_body_decodes_to(app: BrokerApp, ask: Any) -> None:
    app.admission.bodies.left_bytes = 3 << 20
    bomb = gzip.compress(bytes(32 << 20))
    status, headers, _ = await ask("POST", app.url, {"Content-Type": NDJSON, "Content-Encoding": "gzip"}, bomb)
    assert (status, headers["retry-after"]) == (429, "1")
    await eventually(lambda: app.admission.bodies.left_bytes == 3 << 20, "all given back")


@pytest.mark.parametrize("path", ["", "/v1/cluster", "/metrics", "/openapi.json", "/nope"])
async def test_should_gzip_answers_for_whom_takes_it(app: BrokerApp, ask: Any, path: str) -> None:
    await app.produce(b"a" * 100)
    url = app.url.partition("/v1/")[0] + path if path else app.url
    plain_status, plain_headers, plain = await ask("GET", url, {})
    status, headers, coded = await ask("GET", url, {"Accept-Encoding": "br, gzip"})
    assert status == plain_status
    assert (headers["content-encoding"], headers["content-length"]) == ("gzip", str(len(coded)))
    assert "content-encoding" not in plain_headers
    for each in (headers, plain_headers):
        assert "Accept-Encoding" in each["vary"]
    if path != "/metrics":  # which has changed meanwhile
        assert gzip.decompress(coded) == plain


async def test_should_never_gzip_batches(app: BrokerApp, ask: Any) -> None:
    await app.produce(b"a" * 1000)
    _, headers, body = await ask("GET", app.url, {"Accept": BATCH, "Accept-Encoding": "gzip"})
    assert "content-encoding" not in headers
    assert body[24:] == batch_of(b"a" * 1000)[24:]


async def test_should_gzip_lines(app: BrokerApp, ask: Any) -> None:
    await app.produce(*[b"a" * 1000] * 100)
    _, headers, body = await ask("GET", app.url, {"Accept": NDJSON, "Accept-Encoding": "gzip"})
    assert (headers["content-type"], headers["vary"]) == (NDJSON, "Accept, Accept-Encoding")
    assert len(gzip.decompress(body).splitlines()) == 100


def test_should_keep_the_coding_right_when_another_broker_answers(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    leader = shared.leader_url(topic)
    other = next(url for url in (shared.url(0), shared.url(1)) if url != leader)
    url = shared.records_url(topic).replace(leader, other)
    body = gzip.compress(b'{"value": "a"}\n')
    assert http("POST", url, body, {"Content-Type": NDJSON, "Content-Encoding": "gzip"}).json["lastOffset"] == 0
    answer = http("GET", url, headers={"Accept": NDJSON, "Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body))["value"] == "a"
    assert "content-encoding" not in http("GET", url).headers
