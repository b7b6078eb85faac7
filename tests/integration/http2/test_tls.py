"""TLS: ALPN chooses the protocol, and both transports trust what they are told to trust."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme

from headrace.core.errors import BrokerUnreachableError, UntrustedBrokerError
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.engine import Engine, Role
from headrace.http2.server import Server, serve
from tests.support.http2_app import Application, serving
from tests.support.patience import patient
from tests.support.waiting import eventually

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


async def test_should_end_the_oldest_handshakes_when_silent_clients_hold_all_of_them(
    authority: trustme.CA, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.http2.new_connections.TLS_HANDSHAKES_MAX", 2)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with serving(Application(), ssl_context=context) as server, AsyncTransport(trusting) as transport:
        silent = [await silent_client(server) for _ in range(10)]
        response = await transport.request("GET", f"https://localhost:{server.port}/hello/x")
        assert response.status == 200
        assert [await end_of(client) for client in silent[:9]] == [b""] * 9
        await eventually(lambda: server.connection_count == 2, "one that talks and one that is silent are left")
    assert await end_of(silent[9]) == b""


async def test_should_end_a_handshake_when_its_time_is_up(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.http2.new_connections.TLS_HANDSHAKE_TIMEOUT_MS", 100)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with serving(Application(), ssl_context=context) as server:
        assert await end_of(await silent_client(server)) == b""
        await eventually(lambda: server.connection_count == 0, "nobody is connected")


async def silent_client(server: Server) -> socket.socket:
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.settimeout(0)
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    return client


async def end_of(client: socket.socket) -> bytes:
    """What there is to read until the server closes."""
    with client:
        try:
            async with asyncio.timeout(patient(20)):
                return await asyncio.get_running_loop().sock_recv(client, 1000)
        except ConnectionResetError:
            return b""


OTHER_AUTHORITY = "has a certificate of an authority that is not trusted here: name its PEM file with --ca-file"
OTHER_NAME = "has a certificate that does not cover '127.0.0.1': connect to a name that it covers, or add this one"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_should_say_why_and_not_try_again_when_the_certificate_is_not_trusted(
    url: str, trusting: ssl.SSLContext
) -> None:
    elsewhere = ssl.create_default_context()
    trustme.CA().configure_trust(elsewhere)
    errors = await both_fail(url, elsewhere)
    assert all(f"{OTHER_AUTHORITY} or HEADRACE_CA_FILE" in error.message for error in errors)
    errors += await both_fail(url.replace("localhost", "127.0.0.1"), trusting)
    assert all(f"{OTHER_NAME} to its subjectAltName" in error.message for error in errors[2:])
    assert all(isinstance(error, UntrustedBrokerError) and not error.retriable for error in errors)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_should_say_so_when_the_certificate_has_expired(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC)).configure_cert(context)
    async with serving(Application(), ssl_context=context) as server:
        for error in await both_fail(f"https://localhost:{server.port}", trusting):
            assert "has a certificate that has expired: renew it, brokers take the new one" in error.message


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_should_name_the_scheme_when_only_one_side_speaks_tls(url: str, trusting: ssl.SSLContext) -> None:
    for error in await both_fail(url.replace("https", "http"), trusting):
        assert "closed the connection without a word: if it speaks TLS, write its URL with https://" in error.message
    async with serving(Application()) as server:
        for error in await both_fail(f"https://localhost:{server.port}", trusting):
            assert "does not speak TLS: write its URL with http://, or give the broker a certificate" in error.message


async def both_fail(url: str, context: ssl.SSLContext) -> list[BrokerUnreachableError]:
    """Both transports fail; their errors."""

    def ask() -> None:
        with BlockingTransport(context) as transport:
            transport.request("GET", f"{url}/hello/x")

    with pytest.raises(BrokerUnreachableError) as blocking:
        await asyncio.to_thread(ask)
    async with AsyncTransport(context) as transport:
        with pytest.raises(BrokerUnreachableError) as awaited:
            await transport.request("GET", f"{url}/hello/x")
    return [blocking.value, awaited.value]


async def test_should_hold_no_buffers_of_its_own_for_each_connection(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with (
        serving(Application(), ssl_context=context) as server,
        AsyncTransport(trusting) as one,
        AsyncTransport(trusting) as other,
    ):
        for transport in (one, other):
            await (await transport.request("GET", f"https://localhost:{server.port}/hello/x")).read()
        tls: list[Any] = [connection._transport for connection in server._http2]
        assert len({id(transport._ssl_protocol._ssl_buffer) for transport in tls}) == 1
        assert len({id(connection._read_buffer) for connection in server._http2}) == 1


async def test_should_not_wait_for_clients_that_ignore_its_goodbye(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    server = await serve(Application().web, host="127.0.0.1", port=0, ssl_context=context)
    with await asyncio.to_thread(ignorant, server.port, trusting):
        await eventually(lambda: len(server._http2) == 1, "it is connected")
        (connection,) = server._http2
        tls: Any = connection._transport
        tls._ssl_protocol._ssl_shutdown_timeout = 3600
        async with asyncio.timeout(patient(120)):  # a moment for the goodbye, not as long as TLS would wait
            await server.close(3600)


def ignorant(port: int, trusting: ssl.SSLContext) -> ssl.SSLSocket:
    """Connected, and never reads."""
    trusting.set_alpn_protocols(["h2"])
    secure = trusting.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
    secure.sendall(b"".join(Engine(Role.CLIENT).data_to_send()))
    return secure
