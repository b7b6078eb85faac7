"""The bridge from one HTTP/2 stream to one `aiohttp.web.Request`, and from its response back to HEADERS and DATA.

The application sees no difference between the protocols: routing, middlewares, `Response`, `StreamResponse` and HTTP
errors behave as over HTTP/1.1. What differs is refused in a sentence: `FileResponse` (its sendfile would write past the
framing), compression of streamed responses, WebSockets, explicit chunked encoding (HTTP/2 has frames). Bodies come as
they were sent, whatever their Content-Encoding says. A `ServerConnection` makes one `ServerStream` with each request's
head and owns it until the handler is done and the response is framed; it decides nothing.

This module and `bodies` are the only ones that lean on aiohttp's insides (`request_factory`, `request_handler`,
`AbstractStreamWriter`, `RawRequestMessage`): aiohttp is pinned to one minor release, and
`tests/integration/http2/test_bridge.py` notices what an upgrade changes.
"""

import asyncio
import logging
import socket
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion, HttpVersion11, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from headrace.http2.bodies import RequestBody
from headrace.http2.events import ErrorCode, Fields
from headrace.http2.header_fields import decode_fields, encode_fields

logger = logging.getLogger(__name__)
_HTTP_2 = HttpVersion(2, 0)
_BODYLESS = frozenset({"204", "304"})
_CLOSE_TIMEOUT_S = 5.0
_HEADS_REMEMBERED_MAX = 128
"""The number of heads that are remembered, each of at most `H2_HEADER_LIST_BYTES_MAX`."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""A `linger` that waits for nothing: closing sends RST (socket(7))."""


class StreamConnection(Protocol):
    """The connection as its streams see it."""

    def send_head(self, stream_id: int, fields: Fields, *, ended: bool) -> None: ...
    def send_body(self, stream_id: int, chunk: bytes | memoryview, *, ended: bool) -> None: ...
    def reset(self, stream_id: int, error_code: ErrorCode) -> None: ...
    async def drained(self, stream: "ServerStream") -> None: ...


@dataclass(slots=True, eq=False)
class ServerStream:
    """One stream of a server, and the `ResponseSink` of its response's writer."""

    stream_id: int
    connection: "StreamConnection"
    body: RequestBody
    unread: int | None
    """The bytes of the announced Content-Length that have not come yet; None where none was announced."""

    task: asyncio.Task[None] | None = None
    begun: bool = False
    """True once the task has had its first step."""
    sent: int = 0
    """The bytes of the response's body that were queued."""
    _waiter: asyncio.Future[None] | None = None

    def send_head(self, fields: Fields, *, ended: bool) -> None:
        self.connection.send_head(self.stream_id, fields, ended=ended)

    def send_body(self, chunk: bytes | memoryview, *, ended: bool) -> None:
        self.sent += len(chunk)
        self.connection.send_body(self.stream_id, chunk, ended=ended)

    async def drained(self) -> None:
        await self.connection.drained(self)

    async def moved(self) -> None:
        """Wait until some of the response has gone, or the client has gone."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def abort(self) -> None:
        self.connection.reset(self.stream_id, ErrorCode.INTERNAL_ERROR)


class ResponseSink(Protocol):
    """The stream as its response's writer sees it. `drained` raises `ConnectionError` once the stream is gone."""

    def send_head(self, fields: Fields, *, ended: bool) -> None: ...
    def send_body(self, chunk: bytes | memoryview, *, ended: bool) -> None: ...
    async def drained(self) -> None: ...
    def abort(self) -> None: ...


class StreamTransport(asyncio.BaseTransport):
    """The object behind `request.transport` over HTTP/2: facts about the connection, and no way to write around the
    framing."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        super().__init__()
        self._transport = transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class StreamProtocol:
    """The protocol object that a request asks; one for all streams of a connection."""

    max_field_size = 8190
    max_headers = 128

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self.transport = StreamTransport(transport)
        self.ssl_context = transport.get_extra_info("sslcontext")
        self.peername = transport.get_extra_info("peername")
        self.sockname = transport.get_extra_info("sockname")


class ResponseWriter(AbstractStreamWriter):
    """The writer of one response to its stream. It waits where the peer or the socket is slow."""

    def __init__(self, sink: ResponseSink, *, is_head: bool) -> None:
        self._sink = sink
        self._bodyless = is_head
        """True where the response has no body whatever its Content-Length says."""
        self._head: Fields | None = None
        self._begun = False
        self.length = None
        self.ended = False

    async def write_headers(self, status_line: str, headers: "CIMultiDict[str]") -> None:
        if self._begun:
            raise ConnectionError("a second response was started on one request")
        self._begun = True
        status = status_line.split(" ", 2)[1]
        self._bodyless = self._bodyless or status in _BODYLESS
        self._head = [(b":status", status.encode("ascii")), *encode_fields(headers.items())]

    def send_headers(self) -> None:
        self._maybe_send_head(ended=False)

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self.put(chunk)
        await self._sink.drained()

    def put(self, chunk: bytes | bytearray | memoryview) -> None:
        """Write like `write`, without waiting: call `drain` before much has come together."""
        body = self._accept(chunk)
        self._maybe_send_head(ended=False)
        if body.nbytes:
            self._sink.send_body(body, ended=False)

    async def write_eof(self, chunk: bytes = b"") -> None:
        if self.ended:
            return
        body = self._accept(chunk)
        self.ended = True
        if self.length and not self._bodyless:
            self._sink.abort()
            raise ConnectionError(f"the response ended {self.length} bytes short of its Content-Length")
        if not self._maybe_send_head(ended=not body.nbytes) or body.nbytes:
            self._sink.send_body(body, ended=True)
        await self._sink.drained()

    def break_off(self) -> None:
        self.ended = True
        self._sink.abort()

    async def drain(self) -> None:
        await self._sink.drained()

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise RuntimeError(f"streamed {encoding} compression is not offered over HTTP/2: compress the body yourself")

    def enable_chunking(self) -> None:
        """Do nothing: DATA frames are chunks already."""

    def _maybe_send_head(self, *, ended: bool) -> bool:
        """Send the head unless it was sent, and return whether it went out just now."""
        if self._head is None:
            return False
        head, self._head = self._head, None
        self.output_size += 1  # aiohttp and middlewares ask it whether a response has begun.
        self._sink.send_head(head, ended=ended)
        return True

    def _accept(self, chunk: bytes | bytearray | memoryview) -> memoryview:
        """Return the part of `chunk` that the announced length leaves room for, as over HTTP/1.1."""
        if isinstance(chunk, bytearray):
            chunk = bytes(chunk)  # The caller may change it before it is sent.
        view = memoryview(chunk).cast("B")
        if self.length is not None and not self._bodyless:
            view = view[: self.length]
            self.length -= view.nbytes
        self.output_size += view.nbytes
        return view


def break_off(request: web.BaseRequest) -> None:
    """End a response that has begun so that its client sees that something is missing; nothing more is written then.

    RST_STREAM over HTTP/2; over HTTP/1.1 the connection is closed without the chunk that ends a body.
    """
    writer: object = request.writer
    if isinstance(writer, ResponseWriter):
        writer.break_off()
    elif isinstance(request.transport, asyncio.Transport):
        if request.version < HttpVersion11:
            # Without chunks, closing would look like a regular end: the connection is reset instead.
            sock = request.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            request.transport.abort()
        request.transport.close()
        # Closing waits for the client to take what was written, and it may never.
        asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT_S, request.transport.abort)


def request_message(fields: Fields) -> RawRequestMessage | None:
    """Return the request as aiohttp's parser would; None where it has no method or path, or a path that is no URL.

    The same object for the same fields, with its URL's query read once: clients repeat themselves.
    """
    return _request_message(tuple(fields))


@lru_cache(_HEADS_REMEMBERED_MAX)
def _request_message(fields: tuple[tuple[bytes, bytes], ...]) -> RawRequestMessage | None:
    pseudo: dict[str, str] = {}
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in decode_fields(fields):
        if name.startswith(":"):
            pseudo[name] = value
        elif name != "expect":
            headers.add(name, value)
    path = pseudo.get(":path", "")
    method = pseudo.get(":method", "")
    if not method or not path.startswith("/"):
        return None
    if ":authority" in pseudo:
        headers["Host"] = pseudo[":authority"]
    plain, _, query = path.partition("#")[0].partition("?")
    try:
        url = URL.build(path=plain, query_string=query, encoded=True)
    except ValueError:
        return None
    return RawRequestMessage(
        method=method,
        path=path,
        version=_HTTP_2,
        headers=CIMultiDictProxy(headers),
        raw_headers=fields,
        should_close=False,
        compression=None,
        upgrade=False,
        chunked=False,
        url=url,
    )


async def respond(
    server: web.Server, message: RawRequestMessage, body: RequestBody, protocol: StreamProtocol, writer: ResponseWriter
) -> None:
    """Run the application on one request and send what it answers. Raises `ConnectionError` when the stream is gone."""
    task: Any = asyncio.current_task()
    foreign_body: Any = body
    foreign_protocol: Any = protocol
    request: Any = server.request_factory(message, foreign_body, foreign_protocol, writer, task)
    server.requests_count += 1
    response = await _handle(server, request)
    try:
        await response.prepare(request)
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:
        logger.exception("Response to %s %s failed", request.method, request.path)
        raise ConnectionError("the response could not be written") from error


async def _handle(server: web.Server, request: Any) -> web.StreamResponse:
    """Return the handler's response, or a 500 for an exception that is no HTTP error, as long as nothing has been
    sent."""
    try:
        response = await server.request_handler(request)
        if isinstance(response, web.FileResponse):
            raise TypeError("FileResponse is not possible over HTTP/2: read the file and answer with its bytes")
        if isinstance(response, web.StreamResponse):
            return response
        raise TypeError(f"the handler returned {type(response).__name__} instead of a response")
    except web.HTTPException as error:
        return error
    except Exception:
        if request.content.exception() is not None:
            raise ConnectionError("the client is gone") from None
        return _server_error(request)


def _server_error(request: web.BaseRequest) -> web.Response:
    logger.exception("Error handling request from %s: %s %s", request.remote, request.method, request.path)
    if request.writer.output_size:
        raise ConnectionError("the handler failed after its response had begun")
    return web.Response(status=500, text="500 Internal Server Error\n\nServer got itself in trouble")
