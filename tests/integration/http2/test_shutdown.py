"""GOAWAY, drain and reconnect, seen from both ends; and clients that misbehave."""

import asyncio
import socket
import struct

import pytest

from headrace.core.errors import BrokerUnreachableError
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.engine import PREFACE, Engine, Role
from headrace.http2.server import serve
from tests.support.http2 import POST
from tests.support.http2_app import Application, serving
from tests.support.patience import patient


async def test_should_finish_requests_in_flight_when_the_server_closes(transport: AsyncTransport) -> None:
    application = Application()
    server = await serve(application.web, host="127.0.0.1", port=0)
    url = f"http://127.0.0.1:{server.port}"
    held = asyncio.ensure_future(transport.request("GET", f"{url}/hold"))
    await application.reached("held")
    closing = asyncio.ensure_future(server.close(patient(10)))
    with pytest.raises(BrokerUnreachableError) as refused:
        await ask_for_ever(transport, f"{url}/hello/x")
    application.release.set()

    assert refused.value.details["unprocessed"] is True
    assert f"127.0.0.1:{server.port}" in refused.value.message
    assert await (await held).read() == b"released"
    await closing


async def test_should_cancel_requests_when_the_grace_is_over(transport: AsyncTransport) -> None:
    application = Application()
    server = await serve(application.web, host="127.0.0.1", port=0)
    held = asyncio.ensure_future(transport.request("GET", f"http://127.0.0.1:{server.port}/hold"))
    await application.reached("held")
    await server.close(0.05)

    assert application.counts["cancelled"] == 1
    with pytest.raises(BrokerUnreachableError):
        await held


async def test_should_reconnect_when_the_server_came_back(transport: AsyncTransport) -> None:
    first = await serve(Application().web, host="127.0.0.1", port=0)
    url = f"http://127.0.0.1:{first.port}/hello/x"
    assert (await transport.request("GET", url)).status == 200
    await first.close(1)
    with pytest.raises(BrokerUnreachableError, match="cannot be reached"):
        await transport.request("GET", url)

    second = await serve(Application().web, host="127.0.0.1", port=first.port)
    assert await (await transport.request("GET", url)).read() == b"hello x, "
    await second.close(1)


async def test_should_raise_when_the_port_is_taken() -> None:
    async with serving(Application()) as server:
        with pytest.raises(OSError, match="in use"):
            await serve(Application().web, host="127.0.0.1", port=server.port)


async def ask_for_ever(transport: AsyncTransport, url: str) -> None:
    """Until the GOAWAY has come through, and no one listens any more."""
    while True:
        await (await transport.request("GET", url)).read()


async def raw(port: int, *parts: bytes) -> bytes:
    """Send bytes as they are, and what comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0)
    async with asyncio.timeout(patient(30)):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_should_say_goodbye_when_a_client_breaks_the_protocol() -> None:
    async with serving(Application()) as server:
        answer = await raw(server.port, PREFACE + struct.pack("!HBBBL", 0, 5, 0, 0, 1) + b"stray")
        assert answer[-17:-8] == struct.pack("!HBBBL", 0, 8, 7, 0, 0), "a GOAWAY is the last frame"


async def test_should_find_the_protocol_when_the_first_bytes_trickle() -> None:
    async with serving(Application()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for byte in PREFACE:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        settings = struct.pack("!HBBBL", 0, 0, 4, 0, 0)
        writer.write(settings)
        assert (await reader.readexactly(9))[3] == 4, "the server's SETTINGS"
        writer.close()
        await writer.wait_closed()

        answer = await raw(server.port, b"P", b"OST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 404")


async def test_should_cancel_the_handler_when_an_http1_client_disconnects() -> None:
    application = Application()
    async with serving(application) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
        await application.reached("held")
        writer.close()
        await writer.wait_closed()
        await application.reached("cancelled")


async def test_should_leave_nothing_behind_when_an_upload_is_broken_off() -> None:
    application = Application()
    async with serving(application) as server:
        engine = Engine(Role.CLIENT)
        stream_id = engine.open_stream([*POST[:3], (b":path", b"/upload"), (b"content-length", b"100")], ended=False)
        engine.send_body(stream_id, b"only this", ended=False)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.writelines(engine.data_to_send())
        await writer.drain()
        transport: asyncio.WriteTransport = writer.transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
        await application.reached("cancelled")
        assert application.counts["uploaded"] == 0


@pytest.mark.parametrize("trailers", [False, True])
async def test_should_refuse_an_upload_when_it_is_shorter_than_announced(trailers: bool) -> None:
    application = Application()
    async with serving(application) as server:
        engine = Engine(Role.CLIENT)
        stream_id = engine.open_stream([*POST[:3], (b":path", b"/upload"), (b"content-length", b"9")], ended=False)
        engine.send_body(stream_id, b"short", ended=not trailers)
        if trailers:
            engine.send_head(stream_id, [(b"x-sum", b"1")], ended=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.writelines(engine.data_to_send())
        async with asyncio.timeout(patient(30)):
            while not reader.at_eof() and engine.is_receiving(stream_id) and not engine.failed:
                events = engine.receive_data(await reader.read(65536))
                if any(type(event).__name__ in {"StreamReset", "GoAwayReceived"} for event in events):
                    break
        writer.close()
        await writer.wait_closed()
        assert application.counts["uploaded"] == 0
