"""Clients that neither send nor take, or do so by the drop, or do nothing at all: cut off, and nobody else is."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace.core import limits
from headrace.http2 import frames
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.engine import Engine, Role
from headrace.http2.events import (
    DataReceived,
    ErrorCode,
    Event,
    GoAwayReceived,
    ResponseReceived,
    StreamReset,
    WindowOpened,
)
from headrace.http2.server import Server, Terms
from headrace.http2.slow_clients import Patience
from tests.support.http2 import GET, POST
from tests.support.http2_app import Application, serving
from tests.support.patience import patient
from tests.support.waiting import eventually

STALL_MS = 200
IMPATIENT = Terms(Patience(stall_ms=STALL_MS, least_bytes=64 << 10))
NO_IDLERS = Terms(Patience(idle_ms=500))
DROP_S = STALL_MS / 1000 / 10


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
async def server(application: Application) -> AsyncIterator[Server]:
    async with serving(application, terms=IMPATIENT) as server:
        yield server


class Client:
    """HTTP/2 by hand: it takes what it is told to take, and gives no credit back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.engine = Engine(Role.CLIENT)
        self._reader, self._writer = reader, writer
        self._events: list[Event] = []

    def ask(self, path: bytes, *, upload: bytes | None = None) -> int:
        method = GET if upload is None else POST
        stream_id = self.engine.open_stream([*method[:3], (b":path", path)], ended=upload is None)
        if upload is not None:
            self.engine.send_body(stream_id, upload, ended=False)
        self.flush()
        return stream_id

    def flush(self) -> None:
        self._writer.writelines(self.engine.data_to_send())

    async def until(self, is_it: Callable[[Event], bool]) -> Event:
        """The first event that is it, of all that come."""
        async with asyncio.timeout(patient(30)):
            while True:
                for event in self._events:
                    if is_it(event):
                        self._events.remove(event)
                        return event
                data = await self._reader.read(1 << 20)
                assert data, "the connection was closed"
                self._events += self.engine.receive_data(data)
                self.flush()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def deaf(port: int, request: bytes) -> AsyncIterator[socket.socket]:
    """A client that asks and never reads."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, request)
        yield sock


def head(path: str, *more: str) -> bytes:
    return "\r\n".join([f"{'POST' if more else 'GET'} {path} HTTP/1.1", "Host: a", *more, "", ""]).encode()


async def test_should_close_a_connection_when_its_client_never_reads(server: Server, application: Application) -> None:
    engine = Engine(Role.CLIENT)
    engine.open_stream([*GET[:3], (b":path", b"/endless")], ended=True)
    over_http2 = b"".join(engine.data_to_send())
    async with deaf(server.port, over_http2), deaf(server.port, head("/endless")):
        await application.reached("cancelled", 2)
        await eventually(lambda: server.connection_count == 0, "both connections are closed")
    assert server.cut_off == 2


OPENING = b"".join(Engine(Role.CLIENT).data_to_send())
PINGS = frames.pack_frame(frames.PING, 0, 0, bytes(8)) * 20_000
SETTINGS = frames.pack_settings({}) * 20_000


@pytest.mark.parametrize("asked", [PINGS, SETTINGS], ids=["PING", "SETTINGS"])
async def test_should_close_a_connection_when_it_asks_for_answers_in_a_hurry_and_reads_none(
    asked: bytes, application: Application
) -> None:
    async with serving(application) as server, deaf(server.port, OPENING + asked):
        await eventually(lambda: server.connection_count == 0, "it is closed by the flood of its frames")
        assert server.cut_off == 0


async def test_should_read_no_more_of_a_client_that_does_not_read_what_it_asks_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.http2.connection_state.H2_IDLE_FRAMES_MAX", 1 << 40)  # As if it came over days.
    monkeypatch.setattr(limits, "H2_SEND_BUFFER_BYTES", limits.H2_WRITE_BYTES)
    held: list[int] = []

    async def watch() -> None:
        """Look at the buffers between any two turns of the loop, so that none is missed, however slow the machine."""
        while server.cut_off == 0:
            held.extend(connection._transport.get_write_buffer_size() for connection in server._http2)
            await asyncio.sleep(0)

    async with deaf(server.port, OPENING) as sock:
        talking = asyncio.create_task(talk_on(sock, PINGS))
        async with asyncio.timeout(patient(60)):
            await watch()
        with pytest.raises(ConnectionError):
            await talking
    assert 0 < max(held) < 3 * limits.H2_READ_BYTES


async def talk_on(sock: socket.socket, said: bytes) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(sock, said)


async def test_should_free_the_socket_of_a_broken_http1_stream_when_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch, application: Application
) -> None:
    monkeypatch.setattr("headrace.http2.bridge._CLOSE_TIMEOUT_S", 0.1)
    async with serving(application) as server, deaf(server.port, head("/flood")):
        await application.reached("flooded")
        await eventually(lambda: server.connection_count == 0, "its socket is closed")


async def test_should_reset_a_stream_when_its_client_opens_no_window(server: Server, application: Application) -> None:
    async with connected(server.port) as client:
        stuck = client.ask(b"/endless")
        reset = await client.until(lambda event: isinstance(event, StreamReset) and event.stream_id == stuck)
        assert reset == StreamReset(stuck, ErrorCode.CANCEL)
        await application.reached("cancelled")
        answered = client.ask(b"/hello/x")
        await client.until(lambda event: isinstance(event, ResponseReceived) and event.stream_id == answered)
    assert server.cut_off == 1


async def test_should_reset_a_finished_answer_when_nobody_takes_its_end(server: Server) -> None:
    async with connected(server.port) as client:
        stuck = client.ask(b"/large?mib=9")
        await client.until(lambda event: event == StreamReset(stuck, ErrorCode.CANCEL))


async def test_should_let_streams_be_silent_for_as_long_as_they_like(server: Server, application: Application) -> None:
    async with AsyncTransport() as transport:
        url = f"http://127.0.0.1:{server.port}"
        held = asyncio.ensure_future(transport.request("GET", f"{url}/hold"))
        async with connected(server.port) as client:
            stuck = client.ask(b"/endless")
            await client.until(lambda event: isinstance(event, StreamReset) and event.stream_id == stuck)
        application.release.set()
        assert await (await held).read() == b"released"


@pytest.mark.parametrize("drops", [False, True])
async def test_should_answer_408_when_an_upload_stalls(server: Server, drops: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head("/upload", "Content-Length: 100000") + b"some")
    async with connected(server.port) as client:
        upload = client.ask(b"/upload", upload=b"some")
        dripping = asyncio.create_task(drip(writer, client, upload)) if drops else None
        refused = await client.until(lambda event: isinstance(event, ResponseReceived))
        assert isinstance(refused, ResponseReceived)
        assert (b":status", b"408") in refused.fields
        body = await client.until(lambda event: isinstance(event, DataReceived))
        assert isinstance(body, DataReceived)
        assert json.loads(bytes(body.data))["code"] == "SlowClient"
        async with asyncio.timeout(patient(30)):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        if dripping is not None:
            dripping.cancel()
    writer.close()


async def drip(writer: asyncio.StreamWriter, client: Client, stream_id: int) -> None:
    """A byte now and then, which no time-out between two of them would notice."""
    while True:
        await asyncio.sleep(DROP_S)
        writer.write(b"x")
        client.engine.send_body(stream_id, b"x", ended=False)
        client.flush()


async def test_should_close_connections_that_are_not_used(application: Application) -> None:
    async with serving(application, terms=NO_IDLERS) as server:
        too_late = goodbye = GoAwayReceived(0, ErrorCode.NO_ERROR, "")
        while goodbye == too_late:  # Its request came when the connection had been idle for too long already.
            goodbye = await goodbye_after_a_request(server.port)
        assert goodbye == GoAwayReceived(1, ErrorCode.NO_ERROR, "")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head("/hello/x"))
        async with asyncio.timeout(patient(30)):
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await eventually(lambda: server.connection_count == 0, "nobody is connected")


async def goodbye_after_a_request(port: int) -> GoAwayReceived:
    async with connected(port) as client:
        client.ask(b"/hello/x")
        goodbye = await client.until(lambda event: isinstance(event, GoAwayReceived))
        assert isinstance(goodbye, GoAwayReceived)
        return goodbye


async def test_should_refuse_one_connection_too_many_and_say_why(application: Application) -> None:
    async with serving(application, terms=Terms(connections_max=1, always=frozenset({"/hello/probe"}))) as server:
        async with connected(server.port) as first, connected(server.port) as second:
            await_hello = first.ask(b"/hello/x")
            await first.until(lambda event: isinstance(event, ResponseReceived) and event.stream_id == await_hello)
            second.ask(b"/hello/x")
            goodbye = await second.until(lambda event: isinstance(event, GoAwayReceived))
            assert goodbye == GoAwayReceived(0, ErrorCode.ENHANCE_YOUR_CALM, "")
            refused = await over_http1(server.port, "/hello/x")
            assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b"\r\nRetry-After: 1\r\n" in refused
            assert json.loads(refused.partition(b"\r\n\r\n")[2])["code"] == "Throttled"
            for connection in ("close", "keep-alive"):  # It is closed in any case.
                probed = await over_http1(server.port, "/hello/probe?why", connection)
                assert probed.startswith(b"HTTP/1.1 200 ")
        assert server.refused == 2
        await eventually(lambda: server.connection_count == 0, "all have gone")
        assert (await over_http1(server.port, "/hello/x")).startswith(b"HTTP/1.1 200 ")


async def test_should_leave_connections_for_other_addresses(application: Application) -> None:
    async with serving(application, terms=Terms(connections_max=4)) as server:

        async def opened(source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))
            writer.write(head("/hello/x").replace(b"POST", b"GET"))
            return reader, writer

        async def status(reader: asyncio.StreamReader) -> int:
            async with asyncio.timeout(patient(30)):
                return int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])

        kept = [await opened("127.0.0.2") for _ in range(2)]
        assert [await status(reader) for reader, _ in kept] == [200, 200]
        refused, writer = await opened("127.0.0.2")
        assert await status(refused) == 429
        writer.close()
        other = await opened("127.0.0.3")
        assert await status(other[0]) == 200
        for _, each in kept:
            each.close()
        await eventually(lambda: server.connection_count == 1, "they have gone")
        again = await opened("127.0.0.2")
        assert await status(again[0]) == 200
        for _, each in (other, again):
            each.close()


async def over_http1(port: int, path: str, connection: str = "close") -> bytes:
    """All that comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(path, f"Connection: {connection}").replace(b"POST", b"GET"))
    async with asyncio.timeout(patient(30)):
        answer = await reader.read()
    writer.close()
    return answer


async def test_should_end_the_oldest_when_too_many_connections_say_nothing(
    monkeypatch: pytest.MonkeyPatch, application: Application
) -> None:
    monkeypatch.setattr("headrace.http2.server.HTTP_UNDECIDED_MAX", 2)
    async with serving(application) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hello/x HTTP/1.1\r\nHost:")
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        async with asyncio.timeout(patient(30)):
            assert await reader.read() == b""
        for each in (writer, *(writer for _, writer in silent)):
            each.close()


async def test_should_keep_no_body_of_a_method_that_has_none_while_its_handler_waits(application: Application) -> None:
    async with serving(application) as server, connected(server.port) as client:
        stream_id = client.engine.open_stream([*GET[:3], (b":path", b"/hold")], ended=False)
        client.flush()
        await application.reached("held")
        for _ in range(4):  # More than a window that nobody opens.
            await eventually_sendable(client, stream_id)
            client.engine.send_body(stream_id, bytes(limits.H2_REQUEST_WINDOW_BYTES // 2), ended=False)
            client.flush()


async def eventually_sendable(client: Client, stream_id: int) -> None:
    while client.engine.sendable(stream_id) < limits.H2_REQUEST_WINDOW_BYTES // 2:
        await client.until(lambda event: isinstance(event, WindowOpened))
