"""A small application behind `serve`, with a handler for everything that the bridge promises."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from aiohttp import web

from headrace.core.errors import RemoteError, to_problem
from headrace.http2.bodies import BuffersResponse, arriving_chunks
from headrace.http2.bridge import break_off
from headrace.http2.server import Server, serve
from tests.support.patience import patient
from tests.support.world import NDJSON_BODY

UPLOAD_LIMIT_BYTES = 64 << 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Application:
    """What the handlers did, for tests to look at."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.changed = asyncio.Condition()
        self.release = asyncio.Event()
        """Lets the handlers of /hold answer."""
        self.web = web.Application(middlewares=[self.middleware])
        self.web.add_routes(
            [
                web.get("/hello/{name}", self.hello),
                web.get("/facts", self.facts),
                web.post("/upload", self.upload),
                web.post("/read", self.read),
                web.post("/early", self.early),
                web.post("/echo", self.echo),
                web.get("/stream", self.stream),
                web.get("/large", self.large),
                web.get("/fail", self.fail),
                web.get("/teapot", self.teapot),
                web.get("/half", self.half),
                web.get("/short", self.short),
                web.get("/broken", self.broken),
                web.get("/flood", self.flood),
                web.get("/file", self.file),
                web.get("/nothing", self.nothing),
                web.get("/empty", self.empty),
                web.get("/hold", self.hold),
                web.get("/endless", self.endless),
            ]
        )

    async def count(self, name: str) -> None:
        async with self.changed:
            self.counts[name] += 1
            self.changed.notify_all()

    async def reached(self, name: str, count: int = 1) -> None:
        """Wait until `name` was counted `count` times."""
        async with asyncio.timeout(patient(30)), self.changed:
            await self.changed.wait_for(lambda: self.counts[name] >= count)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except RemoteError as error:
            response = web.json_response(to_problem(error), status=error.status)
        except asyncio.CancelledError:
            await self.count("cancelled")
            raise
        if not response.prepared:
            response.headers["X-Middleware"] = "seen"
        return response

    async def hello(self, request: web.Request) -> web.Response:
        return web.Response(text=f"hello {request.match_info['name']}, {request.query.get('q', '')}")

    async def facts(self, request: web.Request) -> web.Response:
        transport: Any = request.transport
        facts = {
            "version": list(request.version),
            "remote": request.remote,
            "host": request.host,
            "scheme": request.scheme,
            "peer": transport.get_extra_info("peername")[0],
            "closing": transport.is_closing(),
            "cookies": dict(request.cookies),
            "x": request.headers.getall("X-Many", []),
            "can_read_body": request.can_read_body,
        }
        return web.json_response(facts)

    async def upload(self, request: web.Request) -> web.Response:
        try:
            arrived = [chunks async for chunks in arriving_chunks(request, UPLOAD_LIMIT_BYTES)]
        except ConnectionError:
            await self.count("broken off")
            raise
        body = b"".join(chain.from_iterable(arrived))
        await self.count("uploaded")
        return web.json_response({"bytes": len(body), "sum": sum(body[:: 1 << 12])})

    async def read(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type=request.content_type)

    async def early(self, request: web.Request) -> web.Response:
        return web.Response(status=413, text="no")

    async def echo(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
            if chunk == b"enough":
                break
        await response.write_eof()
        await self.count("echoed")
        return response

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=NDJSON_BODY)
        await response.prepare(request)
        for number in range(3):
            await response.write(b"%d\n" % number)
            await asyncio.sleep(0)
        await response.write_eof()
        await self.count("streamed")
        return response

    async def large(self, request: web.Request) -> BuffersResponse:
        count = int(request.query["mib"])
        return BuffersResponse(
            [bytes([index % 251]) * (1 << 20) for index in range(count)], headers={"X-Count": str(count)}
        )

    async def fail(self, request: web.Request) -> web.Response:
        raise ValueError("a mistake in the handler")

    async def teapot(self, request: web.Request) -> web.Response:
        raise web.HTTPUnprocessableEntity(text="no tea")

    async def half(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise ValueError("failed after half of it")

    async def short(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "10"})
        await response.prepare(request)
        await response.write(b"short")
        return response

    async def broken(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        break_off(request)
        return response

    async def flood(self, request: web.Request) -> web.StreamResponse:
        """More than a socket takes, broken off while its client does not read."""
        response = web.StreamResponse()
        await response.prepare(request)
        writing = asyncio.ensure_future(response.write(bytes(64 << 20)))
        await asyncio.sleep(0)
        break_off(request)
        await self.count("flooded")
        await writing
        return response

    async def file(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(Path(__file__))

    async def nothing(self, request: web.Request) -> Any:
        return None

    async def empty(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def hold(self, request: web.Request) -> web.Response:
        await self.count("held")
        await self.release.wait()
        return web.Response(text="released")

    async def endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        block = bytes(1 << 20)
        while True:
            await response.write(block)
            await self.count("block")


@asynccontextmanager
async def serving(application: Application, **options: Any) -> AsyncIterator[Server]:
    server = await serve(application.web, host="127.0.0.1", port=0, **options)
    try:
        yield server
    finally:
        application.release.set()
        await server.close(2.0)
