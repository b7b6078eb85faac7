"""The contract between aiohttp's application and HTTP/2 streams: an aiohttp that breaks it must be noticed here."""

import asyncio
import gc
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web

from headrace.core.errors import BrokerUnreachableError
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server import Server
from tests.support.http2_app import UPLOAD_LIMIT_BYTES, Application, serving

MIB = 1 << 20


@pytest.fixture
async def application() -> Application:
    return Application()


@pytest.fixture
async def server(application: Application) -> AsyncIterator[Server]:
    async with serving(application) as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


async def test_should_route_and_run_middlewares(transport: AsyncTransport, url: str) -> None:
    response = await transport.request("GET", f"{url}/hello/w%C3%B6rld?q=a+b")

    assert response.status == 200
    assert (await response.read()).decode() == "hello wörld, a b"
    assert response.headers["x-middleware"] == "seen"
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert "connection" not in response.headers
    assert "transfer-encoding" not in response.headers


async def test_should_give_handlers_what_they_ask_of_a_request(
    transport: AsyncTransport, url: str, server: Server
) -> None:
    headers = {"Cookie": "a=1; b=2", "X-Many": "one"}
    facts = json.loads(await (await transport.request("GET", f"{url}/facts", headers=headers)).read())

    assert facts == {
        "version": [2, 0],
        "remote": "127.0.0.1",
        "host": f"127.0.0.1:{server.port}",
        "scheme": "http",
        "peer": "127.0.0.1",
        "closing": False,
        "cookies": {"a": "1", "b": "2"},
        "x": ["one"],
        "can_read_body": False,
    }


@pytest.mark.parametrize(
    ("method", "path", "status", "header"),
    [("GET", "/missing", 404, None), ("DELETE", "/upload", 405, ("allow", "POST")), ("GET", "/teapot", 422, None)],
)
async def test_should_answer_http_errors(
    transport: AsyncTransport, url: str, method: str, path: str, status: int, header: tuple[str, str] | None
) -> None:
    response = await transport.request(method, url + path)
    await response.read()
    assert response.status == status
    assert header is None or response.headers[header[0]] == header[1]


@pytest.mark.parametrize("path", ["/fail", "/file", "/nothing"])
async def test_should_answer_500_and_log_when_a_handler_fails(
    transport: AsyncTransport, url: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    response = await transport.request("GET", url + path)
    assert response.status == 500
    assert b"500" in await response.read()
    assert f"GET {path}" in caplog.text
    assert (await transport.request("GET", f"{url}/hello/x")).status == 200, "the connection goes on"


@pytest.mark.parametrize("path", ["/half", "/short"])
async def test_should_break_off_when_a_response_fails_after_it_began(
    transport: AsyncTransport, url: str, path: str
) -> None:
    response = await transport.request("GET", url + path)
    assert response.status == 200
    with pytest.raises(BrokerUnreachableError, match="broke the request off"):
        await response.read()


async def test_should_stream_a_response_of_unknown_length(transport: AsyncTransport, url: str) -> None:
    response = await transport.request("GET", f"{url}/stream")
    assert "content-length" not in response.headers
    assert [chunk async for chunk in response.chunks()] != []
    again = await transport.request("GET", f"{url}/stream")
    assert await again.read() == b"0\n1\n2\n"


async def test_should_send_no_body_when_the_method_is_head(transport: AsyncTransport, url: str) -> None:
    for path, length in (("/hello/x", "9"), ("/large?mib=3", str(3 * MIB))):
        response = await transport.request("HEAD", url + path)
        assert (response.status, response.headers["content-length"]) == (200, length)
        assert await response.read() == b""
    empty = await transport.request("GET", f"{url}/empty")
    assert (empty.status, await empty.read()) == (204, b"")


async def test_should_take_uploads_larger_than_the_windows(transport: AsyncTransport, url: str) -> None:
    body = [bytes([index]) * MIB for index in range(40)]
    response = await transport.request("POST", f"{url}/upload", body=body)
    assert json.loads(await response.read()) == {"bytes": 40 * MIB, "sum": sum(range(40)) * (MIB >> 12)}

    echoed = await transport.request("POST", f"{url}/read", body=b"x" * 1000, headers={"Content-Type": "a/b"})
    assert (await echoed.read(), echoed.headers["content-type"]) == (b"x" * 1000, "a/b")


async def test_should_send_downloads_larger_than_the_windows(transport: AsyncTransport, url: str) -> None:
    responses = await asyncio.gather(*(transport.request("GET", f"{url}/large?mib=20") for _ in range(4)))
    bodies = await asyncio.gather(*(response.read() for response in responses))
    expected = b"".join(bytes([index]) * MIB for index in range(20))
    assert all(body == expected for body in bodies)


async def test_should_refuse_a_body_over_the_limit_and_keep_the_connection(transport: AsyncTransport, url: str) -> None:
    announced = await transport.request("POST", f"{url}/upload", body=[bytes(MIB)] * 65)
    assert announced.status == 413
    assert json.loads(await announced.read())["limit"] == UPLOAD_LIMIT_BYTES
    early = await transport.request("POST", f"{url}/early", body=[bytes(MIB)] * 20)
    assert (early.status, await early.read()) == (413, b"no")
    assert (await transport.request("GET", f"{url}/hello/x")).status == 200


async def test_should_hand_over_bodies_as_they_were_sent(transport: AsyncTransport, url: str) -> None:
    body = gzip.compress(b"x")
    headers = {"Content-Encoding": "gzip"}
    over_http2 = await transport.request("POST", f"{url}/read", body=body, headers=headers)
    assert await over_http2.read() == body
    async with ClientSession() as session, session.post(f"{url}/read", data=body, headers=headers) as over_http1:
        assert await over_http1.read() == body


@pytest.mark.parametrize("version", ["2", "1.1", "1.0"])
async def test_should_let_a_handler_break_its_response_off(
    transport: AsyncTransport, url: str, server: Server, version: str
) -> None:
    if version == "2":
        response = await transport.request("GET", f"{url}/broken")
        with pytest.raises(BrokerUnreachableError, match="broke the request off"):
            await response.read()
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET /broken HTTP/{version}\r\nHost: x\r\nConnection: keep-alive\r\n\r\n".encode())
    if version == "1.0":
        with pytest.raises(ConnectionResetError):
            await reader.read()
    else:
        received = await reader.read()
        assert received.endswith(b"\r\n4\r\nhalf\r\n"), "the chunk that ends a body is missing"
    writer.close()


async def test_should_say_in_one_line_what_a_client_did_wrong_over_http1(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /hello/x HTTP/1.1\r\nContent-Length: many\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
    writer.close()
    (record,) = (record for record in caplog.records if record.name == "headrace.http2.server.http1")
    assert (record.levelname, record.exc_info) == ("INFO", None)
    assert record.getMessage().startswith("Error handling request from 127.0.0.1: 400, message: Invalid character in")


async def test_should_cancel_the_handler_when_the_client_resets(
    transport: AsyncTransport, url: str, application: Application
) -> None:
    waiting = asyncio.ensure_future(transport.request("GET", f"{url}/hold"))
    await application.reached("held")
    waiting.cancel()
    await application.reached("cancelled")

    endless = await transport.request("GET", f"{url}/endless")
    endless.cancel()
    await application.reached("cancelled", 2)
    assert (await transport.request("GET", f"{url}/hello/x")).status == 200


async def test_should_cancel_every_handler_when_the_client_disconnects(url: str, application: Application) -> None:
    transport = AsyncTransport()
    waiting = [asyncio.ensure_future(transport.request("GET", f"{url}/hold")) for _ in range(3)]
    await application.reached("held", 3)
    await transport.close()
    await application.reached("cancelled", 3)
    with pytest.raises(BrokerUnreachableError):
        await asyncio.gather(*waiting)
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_should_hold_the_writer_back_when_the_client_does_not_read(
    transport: AsyncTransport, url: str, application: Application
) -> None:
    response = await transport.request("GET", f"{url}/endless")
    await application.reached("block", 8)
    for _ in range(20):
        await transport.request("GET", f"{url}/hello/x")  # Turns of the loop in which the writer could go on.
    assert application.counts["block"] <= 8 + 2, "one stream window, and what one stream may have waiting"
    response.cancel()
    await application.reached("cancelled")


async def test_should_answer_many_at_once_over_one_connection(
    transport: AsyncTransport, url: str, server: Server
) -> None:
    async def one(number: int) -> bytes:
        return await (await transport.request("GET", f"{url}/hello/{number}")).read()

    answers = await asyncio.gather(*(one(number) for number in range(1500)))
    assert answers == [f"hello {number}, ".encode() for number in range(1500)]


async def test_should_leave_nothing_behind(application: Application) -> None:
    async with serving(application) as server, AsyncTransport() as transport:
        await (await transport.request("GET", f"http://127.0.0.1:{server.port}/hello/x")).read()
    gc.collect()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert isinstance(application.web, web.Application)
