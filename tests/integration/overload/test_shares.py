"""One address never takes all of what a broker has, and what has not arrived takes nothing.

Clients have addresses of their own: all of 127.0.0.0/8 is this machine.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.types import BrokerId
from headrace_broker.cluster.lease import vacant_lease
from headrace_broker.http.callers import PEER_KEY_HEADER, PROXIED_HEADER
from tests.support.batches import batch_of
from tests.support.broker_app import BrokerApp, running_app
from tests.support.patience import patient
from tests.support.waiting import eventually
from tests.support.world import BATCH

HOG, OTHER = "127.0.0.2", "127.0.0.3"
MIB = 1 << 20
KEY = "the key of broker 1"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[BrokerApp]:
    async with running_app(tmp_path / "data") as app:
        lease = vacant_lease(BrokerId(1), "default", "headrace", "http://127.0.0.1:1", "")
        app.components.view.put_lease(replace(lease, peer_key=KEY), 0)
        yield app


class Client:
    """One connection of HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        self._reader = reader
        self._writer = writer
        self._path = path

    async def begin(self, method: str, more: str, *headers: str) -> None:
        lines = [f"{method} {self._path}{more} HTTP/1.1", "Host: broker", *headers, "", ""]
        await self.send("\r\n".join(lines).encode())

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def status(self) -> int:
        async with asyncio.timeout(patient(30)):
            return int((await self._reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])

    async def problem(self) -> str:
        async with asyncio.timeout(patient(30)):
            line = await self._reader.readline()
        return str(json.loads(line)["detail"])


@asynccontextmanager
async def connected(app: BrokerApp, source: str) -> AsyncIterator[Client]:
    path = "/" + app.url.split("/", 3)[3]
    reader, writer = await asyncio.open_connection("127.0.0.1", app.server.port, local_addr=(source, 0))
    try:
        yield Client(reader, writer, path)
    finally:
        writer.close()


async def produced(app: BrokerApp, source: str, *headers: str) -> int:
    body = batch_of(b"a")
    async with connected(app, source) as client:
        await client.begin("POST", "", f"Content-Type: {BATCH}", f"Content-Length: {len(body)}", *headers)
        await client.send(body)
        return await client.status()


async def test_should_hold_nothing_for_bodies_that_are_only_announced(app: BrokerApp) -> None:
    headers = f"Content-Type: {BATCH}", f"Content-Length: {64 * MIB}"
    async with AsyncExitStack() as stack:
        for _ in range(9):
            client = await stack.enter_async_context(connected(app, HOG))
            await client.begin("POST", "", *headers)
            await client.send(b"x")
        bodies = app.admission.bodies
        await eventually(lambda: bodies.limit_bytes - bodies.left_bytes == 9, "a byte of each has arrived")
        assert await produced(app, OTHER) == 200
        assert await produced(app, HOG) == 200


async def test_should_leave_room_for_others_where_one_sends_all_it_can(app: BrokerApp) -> None:
    bodies = app.admission.bodies
    bodies.limit_bytes = bodies.left_bytes = 4 * MIB
    headers = f"Content-Type: {BATCH}", "Transfer-Encoding: chunked"
    chunk = f"{MIB - 100:x}\r\n".encode() + bytes(MIB - 100) + b"\r\n"
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(app, HOG)) for _ in range(3)]
        for client in clients:
            await client.begin("POST", "", *headers)
        for client in clients[:2]:
            await client.send(chunk)
        await eventually(lambda: bodies.left_bytes == 2 * MIB + 200, "half of it is held")
        await clients[2].send(chunk)
        assert await clients[2].status() == 429
        assert HOG in await clients[2].problem()
        assert await produced(app, OTHER) == 200


async def test_should_leave_streams_for_others(app: BrokerApp) -> None:
    app.components.watches.streams.most = 4
    async with AsyncExitStack() as stack:

        async def watched(source: str, *headers: str) -> int:
            client = await stack.enter_async_context(connected(app, source))
            await client.begin("GET", "?watch=true", f"Accept: {BATCH}", *headers)
            return await client.status()

        proxied = f"{PROXIED_HEADER}: 10.0.0.9"
        assert [await watched(HOG) for _ in range(3)] == [200, 200, 429]
        assert await watched(HOG, proxied) == 429, "anybody may say that"
        assert await watched(HOG, proxied, f"{PEER_KEY_HEADER}: guessed") == 429
        assert await watched(OTHER) == 200
        assert await watched(HOG, proxied, f"{PEER_KEY_HEADER}: {KEY}") == 200, "another broker asks for 10.0.0.9"


async def test_should_leave_requests_for_others(app: BrokerApp) -> None:
    app.admission.clients.most = 4
    async with AsyncExitStack() as stack:
        for _ in range(2):
            waiting = await stack.enter_async_context(connected(app, HOG))
            await waiting.begin("GET", "?offset=latest&minBytes=1&maxWaitMs=60000", f"Accept: {BATCH}")
        await eventually(lambda: app.admission.requests == 2, "both wait")
        assert await produced(app, HOG) == 429
        assert await produced(app, OTHER) == 200


async def test_should_leave_other_brokers_what_clients_leave(app: BrokerApp) -> None:
    """What a broker asks for itself is bounded by what that broker takes on."""
    places = app.admission.clients
    places.most = 4
    with places.one_more(HOG), places.one_more(HOG), places.one_more(OTHER):
        assert await produced(app, HOG) == 429
        key = f"{PEER_KEY_HEADER}: {KEY}"
        assert await produced(app, HOG, key, f"{PROXIED_HEADER}: 1") == 200
