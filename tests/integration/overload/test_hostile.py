"""One hostile client of each kind beside a producer and a consumer that mean well: these two are refused nothing.

The hostile one has an address of its own and does what it does until the others are done. How much slower they are
beside it is no matter of tests.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from headrace.core.groups.publishing import GROUPS_NEW_BURST
from headrace.core.records.columns import encode_batch, record_columns
from headrace_broker.admission import CONTROL_REQUESTS_IN_FLIGHT_MAX
from headrace_broker.partition.fetch import WATCHES_MAX
from tests.support.batches import batch_of, mislabelled, poisoned
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.patience import patient
from tests.support.waiting import eventually

BATCHES, JSON = "application/vnd.headrace.batch", "application/json"
HOSTILE = "127.0.0.2"
TOPIC = "shared"
ROUNDS = 40
LARGE = b"".join(bytes(part) for part in encode_batch(record_columns([bytes(256 << 10)] * 3, timestamps_ms=1)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("hostile"), options=["--memory", "256Mi"]) as cluster:
        cluster.create_topic(TOPIC, durability="Replicated")
        assert http("POST", cluster.records_url(TOPIC), LARGE, {"Content-Type": BATCHES}).status == 200
        yield cluster


@dataclass(frozen=True, slots=True)
class Hostile:
    """Connections of HTTP/1.1, all of which stay open until the block ends."""

    records: str
    metrics: str
    stack: AsyncExitStack

    async def send(self, data: bytes) -> asyncio.StreamReader:
        parts = urlsplit(self.records)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=(HOSTILE, 0), limit=1024)
        self.stack.callback(writer.close)
        writer.write(data)
        await writer.drain()
        return reader

    async def ask(self, method: str, path: str, *headers: str, body: bytes = b"") -> asyncio.StreamReader:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
        return await self.send("\r\n".join(lines).encode() + body)

    async def answer(self, method: str, path: str, media_type: str, body: bytes) -> int:
        headers = f"Content-Type: {media_type}", f"Content-Length: {len(body)}"
        return await status(await self.ask(method, path, *headers, body=body))

    async def under_way(self, series: str, least: int) -> None:
        """Until the broker has so much of it."""
        pattern = re.compile(rf"^{re.escape(series)} (\S+)$", re.MULTILINE)

        def is_there() -> bool:
            found = pattern.search(http("GET", self.metrics).body.decode())
            return found is not None and float(found[1]) >= least

        await eventually(is_there, f"{series} is {least} or more")

    @property
    def path(self) -> str:
        return urlsplit(self.records).path


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(patient(30)):
        return int((await reader.readline()).split(b" ", 2)[1])


async def announces_what_never_comes(hostile: Hostile) -> None:
    for _ in range(40):
        await hostile.ask("POST", hostile.path, f"Content-Type: {BATCHES}", f"Content-Length: {4 << 20}", body=b"x")
    await hostile.under_way('headrace_broker_bytes_in_flight{kind="bodies"}', 40)


async def leaves_questions_unfinished(hostile: Hostile) -> None:
    async def hold() -> None:
        """One after the other: the broker gives each a few seconds."""
        while True:
            with suppress(OSError):
                await (await hostile.ask("POST", "/v1/brokers/0/promises", "Content-Length: 1000", body=b"{")).read()

    for _ in range(CONTROL_REQUESTS_IN_FLIGHT_MAX + 1):
        hostile.stack.callback(asyncio.create_task(hold()).cancel)
    await hostile.under_way("headrace_broker_requests_in_flight", CONTROL_REQUESTS_IN_FLIGHT_MAX + 1)


async def takes_all_streams(hostile: Hostile) -> None:
    for _ in range(WATCHES_MAX // 2):
        await hostile.ask("GET", f"{hostile.path}?offset=latest&watch=true", f"Accept: {BATCHES}")
    await hostile.under_way("headrace_broker_watches", WATCHES_MAX // 2)
    assert await status(await hostile.ask("GET", f"{hostile.path}?watch=true", f"Accept: {BATCHES}")) == 429


async def takes_no_answer(hostile: Hostile) -> None:
    answers = [await hostile.ask("GET", f"{hostile.path}?offset=earliest", f"Accept: {BATCHES}") for _ in range(60)]
    assert {await status(answer) for answer in answers} <= {200, 429}


async def sends_what_nobody_can_decode(hostile: Hostile) -> None:
    for batch in (poisoned(batch_of(b"1", b"2")), mislabelled(batch_of(b"3"))):
        for _ in range(10):
            assert await hostile.answer("POST", hostile.path, BATCHES, batch) == 400


async def makes_up_groups(hostile: Hostile) -> None:
    body = json.dumps({"id": "a", "offsets": []}).encode()
    for number in range(4 * GROUPS_NEW_BURST):
        path = f"/v1/namespaces/default/groups/made-up-{number}/reset"
        if await hostile.answer("POST", path, JSON, body) == 429:
            return
    raise AssertionError("the broker takes all of them")


async def speaks_no_http(hostile: Hostile) -> None:
    for garbage in (
        b"\x16\x03\x01" + bytes(200),
        b"GET",
        bytes(64),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
    ):
        for _ in range(10):
            await hostile.send(garbage)


KINDS: list[Callable[[Hostile], Awaitable[None]]] = [
    announces_what_never_comes,
    leaves_questions_unfinished,
    takes_all_streams,
    takes_no_answer,
    sends_what_nobody_can_decode,
    makes_up_groups,
    speaks_no_http,
]


@asynccontextmanager
async def beside(kind: Callable[[Hostile], Awaitable[None]], records: str, metrics: str) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await kind(Hostile(records, metrics, stack))
        yield


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_should_refuse_nothing_to_whoever_means_well(
    cluster: Cluster, kind: Callable[[Hostile], Awaitable[None]]
) -> None:
    records = cluster.records_url(TOPIC)
    async with beside(kind, records, f"{cluster.url()}/metrics"):
        await asyncio.to_thread(produce_and_consume, records)
        questions = f"{cluster.url()}/v1/brokers/0/promises"
        assert http("POST", questions, b'{"partitions": []}', {"Content-Type": JSON}).status == 200
    assert cluster.broker().is_running


def produce_and_consume(records: str) -> None:
    """Record by record, each of which comes back as it was."""
    for number in range(ROUNDS):
        body = json.dumps({"records": [{"value": str(number)}]}).encode()
        written = http("POST", records, body, {"Content-Type": JSON})
        assert written.status == 200, written.body
        read = http("GET", f"{records}?offset={written.json['baseOffset']}", headers={"Accept": JSON})
        assert read.status == 200, read.body
        assert [record["value"] for record in read.json["records"]] == [str(number)]
