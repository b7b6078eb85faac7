"""TLS: ALPN chooses the protocol, and both transports trust what they are told to trust."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from headrace.core.errors import BrokerUnreachableError
from headrace.http2.blocking import BlockingTransport
from headrace.http2.client import AsyncTransport
from tests.support.http2_app import Application, serving

MIB = 1 << 20


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def url(authority: trustme.CA) -> AsyncIterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with serving(Application(), ssl_context=context) as server:
        yield f"https://localhost:{server.port}"


async def test_should_speak_http2_when_alpn_chose_it(url: str, trusting: ssl.SSLContext) -> None:
    async with AsyncTransport(trusting) as transport:
        facts = await (await transport.request("GET", f"{url}/facts")).read()
        assert b'"version": [2, 0]' in facts
        assert b'"scheme": "https"' in facts
        body = await (await transport.request("GET", f"{url}/large?mib=20")).read()
        assert len(body) == 20 * MIB
        uploaded = await (await transport.request("POST", f"{url}/upload", body=[bytes(MIB)] * 20)).read()
        assert b'"bytes": 20971520' in uploaded


async def test_should_carry_large_bodies_both_ways_when_blocking(url: str, trusting: ssl.SSLContext) -> None:
    def talk() -> list[int]:
        with BlockingTransport(trusting) as transport:
            downloads = [transport.start("GET", f"{url}/large?mib=20") for _ in range(3)]
            uploads = [transport.start("POST", f"{url}/upload", body=[bytes(MIB)] * 20) for _ in range(3)]
            return [len(download.result().body) for download in downloads] + [up.result().status for up in uploads]

    assert await asyncio.to_thread(talk) == [20 * MIB] * 3 + [200] * 3


async def test_should_speak_http1_when_the_client_offers_nothing_else(url: str, trusting: ssl.SSLContext) -> None:
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
    writer.write(b"GET /hello/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    await reader.read()
    writer.close()
    await writer.wait_closed()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_should_say_so_when_the_certificate_is_not_trusted(url: str) -> None:
    async with AsyncTransport() as transport:
        with pytest.raises(BrokerUnreachableError, match=r"localhost:\d+ cannot be reached.*[Cc][Ee][Rr][Tt]"):
            await transport.request("GET", f"{url}/hello/x")

    def ask() -> None:
        with BlockingTransport() as transport:
            transport.request("GET", f"{url}/hello/x")

    with pytest.raises(BrokerUnreachableError, match="over TLS"):
        await asyncio.to_thread(ask)
