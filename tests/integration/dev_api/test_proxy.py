"""Through the proxy of the embedded API: bytes as they come, both ways, over both protocols, and ends as ends."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from headrace.core.errors import BrokerUnreachableError
from headrace.http2.async_transport import AsyncTransport
from tests.integration.dev_api.conftest import Embedded
from tests.support.api_objects import pod
from tests.support.api_server import Space
from tests.support.kubeconfig import ApiClient, connect, write_kubeconfig
from tests.support.patience import patient

_PATIENCE_S = patient(30)
_UPLOAD_BYTES = 8 << 20
_STRATEGIC = "application/strategic-merge-patch+json"


class _Behind:
    """What stands behind the proxy."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        """A client of the endless answer went away."""
        self.received_bytes = 0

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/echo", self._echo)
        app.router.add_post("/count", self._count)
        app.router.add_get("/endless", self._endless)
        app.router.add_get("/broken", self._broken)
        app.router.add_get("/zipped", self._zipped)
        return app

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        return response

    async def _count(self, request: web.Request) -> web.Response:
        count = 0
        async for chunk in request.content.iter_any():
            count += len(chunk)
        return web.json_response({"bytes": count, "announced": request.headers.get("Content-Length")})

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            await response.write(b"first\n")
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return response

    async def _broken(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    async def _zipped(self, request: web.Request) -> web.Response:
        body = gzip.compress(b"plain") if "gzip" in request.headers.get("Accept-Encoding", "") else b"plain"
        return web.Response(body=body, headers={"Content-Encoding": "gzip"} if body != b"plain" else {})


@pytest.fixture
def behind() -> _Behind:
    return _Behind()


@pytest.fixture
async def base(embedded: Embedded, behind: _Behind, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of the proxy to `behind`."""
    kubeconfig = write_kubeconfig(tmp_path_factory.mktemp("api") / "kubeconfig", embedded.url)
    async with _serving(behind) as port, connect(kubeconfig) as api:
        await _add_pod(api, port)
        yield f"{embedded.url}/api/v1/namespaces/default/pods/headrace-0/proxy"
        await api.request("DELETE", "/api/v1/namespaces/default/pods/headrace-0")


@asynccontextmanager
async def _serving(behind: _Behind, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    runner = web.AppRunner(behind.application(), handler_cancellation=True, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _add_pod(api: ApiClient, port: int, namespace: str = "default") -> None:
    space = Space(api, namespace)
    container = {"name": "broker", "image": "headrace", "ports": [{"name": "http", "containerPort": port}]}
    await space.create("pods", pod(containers=[container]))
    path = space.path("pods", "headrace-0", "status")
    answer = await api.request("PATCH", path, {"status": {"podIP": "127.0.0.1"}}, content_type=_STRATEGIC)
    assert answer.status == 200, answer.text


async def test_should_stream_a_request_and_its_answer_at_the_same_time(base: str) -> None:
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while (chunk := await chunks.get()) is not None:
            yield chunk

    async with asyncio.timeout(_PATIENCE_S), aiohttp.ClientSession() as client:
        chunks.put_nowait(b"one")
        async with client.post(f"{base}/echo", data=body()) as answer:
            assert await answer.content.readany() == b"one"
            chunks.put_nowait(b"two")
            assert await answer.content.readany() == b"two"
            chunks.put_nowait(None)
            assert await answer.content.read() == b""


async def test_should_pass_more_than_one_window_of_http2_in_both_directions(base: str) -> None:
    upload = bytes(_UPLOAD_BYTES)
    async with AsyncTransport() as transport:
        counted = await transport.request("POST", f"{base}/count", body=upload, timeout_s=_PATIENCE_S)
        assert await counted.read() == f'{{"bytes": {_UPLOAD_BYTES}, "announced": "{_UPLOAD_BYTES}"}}'.encode()
        echoed = await transport.request("POST", f"{base}/echo", body=upload, timeout_s=_PATIENCE_S)
        assert await echoed.read() == upload


async def test_should_leave_what_is_behind_when_the_client_leaves(base: str, behind: _Behind) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        async with aiohttp.ClientSession() as client, client.get(f"{base}/endless") as answer:
            assert await answer.content.readline() == b"first\n"
        await behind.left.wait()

        behind.left.clear()
        async with AsyncTransport() as transport:
            streamed = await transport.request("GET", f"{base}/endless", timeout_s=None)
            async for chunk in streamed.chunks():
                assert chunk == b"first\n"
                break
        await behind.left.wait()


async def test_should_break_off_where_what_is_behind_breaks_off(base: str) -> None:
    async with aiohttp.ClientSession() as client, client.get(f"{base}/broken") as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    async with AsyncTransport() as transport:
        with pytest.raises(BrokerUnreachableError):
            await (await transport.request("GET", f"{base}/broken", timeout_s=_PATIENCE_S)).read()


async def test_should_change_nothing_about_how_bodies_are_encoded(base: str) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        async with client.get(f"{base}/zipped", headers={"Accept-Encoding": "gzip"}) as answer:
            assert gzip.decompress(await answer.read()) == b"plain"
        zipped = gzip.compress(b"plain")
        async with client.post(f"{base}/echo", data=zipped, headers={"Content-Encoding": "gzip"}) as answer:
            assert await answer.read() == zipped
        async with client.get(f"{base}/zipped", skip_auto_headers=["Accept-Encoding"]) as answer:
            assert await answer.read() == b"plain"


async def test_should_speak_tls_with_whoever_has_any_certificate(base: str, behind: _Behind) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("elsewhere.example").configure_cert(tls)
    async with _serving(behind, tls) as port, AsyncTransport() as transport:
        secured = base.replace("pods/headrace-0/", f"pods/https:headrace-0:{port}/")
        answer = await transport.request("GET", f"{secured}/zipped", timeout_s=_PATIENCE_S)
        assert await answer.read() == b"plain"


async def test_should_pass_the_head_of_an_answer_without_its_body(base: str) -> None:
    plain = ["Accept-Encoding"]
    async with aiohttp.ClientSession(skip_auto_headers=plain) as client, client.head(f"{base}/zipped") as answer:
        assert (answer.headers["Content-Length"], await answer.read()) == ("5", b"")
    async with AsyncTransport() as transport:
        head = await transport.request("HEAD", f"{base}/zipped", timeout_s=_PATIENCE_S)
        assert (head.headers["content-length"], await head.read()) == ("5", b"")


async def test_should_not_mistake_a_namespace_for_the_proxy(
    embedded: Embedded, behind: _Behind, tmp_path: Path
) -> None:
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "proxy"}}
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", embedded.url)
    async with _serving(behind) as port, connect(kubeconfig) as api:
        assert (await api.request("POST", "/api/v1/namespaces", named)).status == 201
        await _add_pod(api, port, "proxy")
        base = f"{embedded.url}/api/v1/namespaces/proxy/pods/headrace-0/proxy"
        async with aiohttp.ClientSession() as client, client.post(f"{base}/echo", data=b"here") as answer:
            assert await answer.read() == b"here"


async def test_should_refuse_a_port_that_there_cannot_be(base: str) -> None:
    async with aiohttp.ClientSession() as client, client.get(f"{base.removesuffix('/proxy')}:70000/proxy/") as answer:
        assert answer.status == 503
        assert "dial tcp: address 70000: invalid port" in await answer.text()
