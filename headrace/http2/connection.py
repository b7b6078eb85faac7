"""The server's side of one HTTP/2 connection: its socket, its streams, and the task that answers each of them.

Owned by the event loop from the first bytes to the loss of the socket. `buffer_updated` is the one reader and `_flush`
the one writer; neither ever waits for application code. A stream lives from its request head until its handler is
done and its response is framed:

    RequestReceived ──> handling ──> responded ──> gone
                           └── reset, lost, or grace over: the task is cancelled ──> gone

Invariants: a handler runs as a task of its own and is cancelled as soon as its client has gone; bytes that no handler
will take are credited when they are discarded; at most `_TASKS_MAX` handlers run, cancelled ones that have not finished
included, so that opening and resetting streams in a hurry gains nothing (CVE-2023-44487); no more than about
`H2_SEND_BUFFER_BYTES` lie in the socket's buffer before reading stops. Created by `headrace.http2.server`.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage

from headrace.core import limits
from headrace.http2.bodies import RequestBody
from headrace.http2.bridge import ResponseWriter, StreamProtocol, request_message, respond
from headrace.http2.engine import Engine, Role
from headrace.http2.events import (
    DataReceived,
    ErrorCode,
    Event,
    Fields,
    GoAwayReceived,
    RemoteProtocolError,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from headrace.http2.outbox import Outbox

logger = logging.getLogger(__name__)

_TASKS_MAX = 2 * limits.H2_MAX_CONCURRENT_STREAMS
"""More than the streams that may be open at once, because a task ends a little later than its stream."""
_CLOSE_TIMEOUT_S = 5.0
"""What a client gets to take our last bytes."""


@dataclass(slots=True, eq=False)
class _Stream:
    """One request on its way through the application; the `ResponseSink` of its writer."""

    stream_id: int
    connection: "ServerConnection"
    body: RequestBody
    unread: int | None
    """What the announced Content-Length still lacks; None where none was announced."""

    task: asyncio.Task[None] | None = None
    waiter: asyncio.Future[None] | None = None

    def send_head(self, fields: Fields, *, ended: bool) -> None:
        self.connection.send_head(self.stream_id, fields, ended=ended)

    def send_body(self, chunk: bytes | memoryview, *, ended: bool) -> None:
        self.connection.send_body(self.stream_id, chunk, ended=ended)

    async def drained(self) -> None:
        await self.connection.drained(self)

    def abort(self) -> None:
        self.connection.reset(self.stream_id, ErrorCode.INTERNAL_ERROR)


class ServerConnection(asyncio.BufferedProtocol):
    def __init__(self, app_server: web.Server, on_lost: Callable[["ServerConnection"], None]) -> None:
        self._app_server = app_server
        self._on_lost = on_lost
        self._engine = Engine(Role.SERVER)
        self._outbox = Outbox(self._engine)
        self._streams: dict[int, _Stream] = {}
        self._responded: set[int] = set()
        """Streams whose handler is done while their response is still being framed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._read_buffer = memoryview(bytearray(limits.H2_READ_BYTES))  # A view: asyncio's TLS slices it.
        self._paused = False
        self._flush_scheduled = False
        self._reading = True
        self._idle = asyncio.Event()
        self._lost = asyncio.Event()
        self._abort: asyncio.TimerHandle | None = None

    # -- asyncio's side --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.H2_WRITE_BYTES)
        self._protocol = StreamProtocol(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._schedule_flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._read_buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Also called with the first bytes, which showed that the client speaks HTTP/2."""
        try:
            for event in self._engine.receive_data(data):
                self._carry_out(event)
        except RemoteProtocolError as error:
            logger.info("HTTP/2 connection from %s closed: %s", self._protocol.peername, error.message)
            self._abandon_all("the client broke HTTP/2")
            self._close_transport()
        else:
            self._schedule_flush()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._abort is not None:
            self._abort.cancel()
        self._abandon_all("the client's connection was lost")
        self._lost.set()
        self._idle.set()
        self._on_lost(self)

    # -- events ----------------------------------------------------------------------------------------------------

    def _carry_out(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event)
            case DataReceived(stream_id, data):
                self._feed(stream_id, data)
            case StreamEnded(stream_id):
                self._end_body(stream_id)
            case StreamReset(stream_id):
                self._outbox.discard(stream_id)
                self._responded.discard(stream_id)
                if stream_id in self._streams:
                    self._abandon(self._streams[stream_id], "the client reset the stream")
                else:
                    self._maybe_idle()
            case WindowOpened(stream_id):
                self._outbox.unblock(stream_id)
            case GoAwayReceived() | ResponseReceived():
                pass  # A client that goes away finishes its streams and closes; only clients receive responses.
            case _:
                assert_never(event)

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        if len(self._tasks) >= _TASKS_MAX:
            self.reset(stream_id, ErrorCode.REFUSED_STREAM)
            return
        message = request_message(event.fields)
        if message is None or (event.ended and message.headers.get("Content-Length", "0") != "0"):
            self.reset(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        if dict(event.fields).get(b"expect", b"").lower() == b"100-continue":
            self._engine.send_head(stream_id, [(b":status", b"100")], ended=False)
        announced = message.headers.get("Content-Length")
        body = RequestBody(partial(self._credit, stream_id))
        stream = _Stream(stream_id, self, body, int(announced) if announced is not None else None)
        if event.ended:
            body.feed_eof()
        self._streams[stream_id] = stream
        stream.task = self._loop.create_task(self._answer(stream, message))
        self._tasks.add(stream.task)
        stream.task.add_done_callback(self._tasks.discard)

    def _feed(self, stream_id: int, data: bytes) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            self._credit(stream_id, len(data))
            return
        if stream.unread is not None:
            stream.unread -= len(data)
        stream.body.feed(data)

    def _end_body(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.unread:  # Trailers ended the body early: the engine checks the length on DATA only.
            self.reset(stream_id, ErrorCode.PROTOCOL_ERROR)
            self._abandon(stream, f"the request body ended {stream.unread} bytes short of its Content-Length")
        else:
            stream.body.feed_eof()

    def _credit(self, stream_id: int, count: int) -> None:
        self._engine.credit_connection(count)
        self._engine.credit_stream(stream_id, count)
        self._schedule_flush()

    # -- handlers --------------------------------------------------------------------------------------------------

    async def _answer(self, stream: _Stream, message: RawRequestMessage) -> None:
        writer = ResponseWriter(stream, is_head=message.method == "HEAD")
        try:
            await respond(self._app_server, message, stream.body, self._protocol, writer)
        except ConnectionError as error:
            logger.debug("stream %d: %s", stream.stream_id, error)
        finally:
            self._finish(stream, responded=writer.ended)

    def _finish(self, stream: _Stream, *, responded: bool) -> None:
        """The handler is done: what it left unread is discarded, what it left unsaid is a reset."""
        self._streams.pop(stream.stream_id, None)
        stream.body.discard()
        if not responded:
            self.reset(stream.stream_id, ErrorCode.INTERNAL_ERROR)
        elif self._outbox.is_open(stream.stream_id):
            self._responded.add(stream.stream_id)
        else:
            self._stop_upload(stream.stream_id)
        self._maybe_idle()

    def _stop_upload(self, stream_id: int) -> None:
        """The response is complete: a client that still uploads may stop (RFC 9113 section 8.1).

        Not at once, as some clients (curl 7.88) then lose the response that they have: the upload is discarded for a
        while first, as aiohttp does over HTTP/1.1.
        """
        if self._engine.is_receiving(stream_id):
            self._loop.call_later(limits.HTTP_LINGER_MS / 1000, self.reset, stream_id, ErrorCode.NO_ERROR)

    def _abandon(self, stream: _Stream, reason: str) -> None:
        self._streams.pop(stream.stream_id, None)
        error = ConnectionResetError(reason)
        stream.body.discard()
        stream.body.set_exception(error)
        if stream.waiter is not None and not stream.waiter.done():
            stream.waiter.set_exception(error)
        if stream.task is not None:
            stream.task.cancel(reason)
        self._maybe_idle()  # A task that is cancelled before its first step never gets to `_finish`.

    def _abandon_all(self, reason: str) -> None:
        for stream in list(self._streams.values()):
            self._abandon(stream, reason)

    # -- out -------------------------------------------------------------------------------------------------------

    def send_head(self, stream_id: int, fields: Fields, *, ended: bool) -> None:
        self._engine.send_head(stream_id, fields, ended=ended)
        self._schedule_flush()

    def send_body(self, stream_id: int, chunk: bytes | memoryview, *, ended: bool) -> None:
        self._outbox.put(stream_id, (chunk,), ended=ended)
        self._schedule_flush()

    def reset(self, stream_id: int, error_code: ErrorCode) -> None:
        self._outbox.discard(stream_id)
        self._engine.reset(stream_id, error_code)
        self._schedule_flush()

    async def drained(self, stream: _Stream) -> None:
        """Wait until little of this stream is left to frame. Raises `ConnectionResetError` when the client has gone."""
        while self._outbox.pending(stream.stream_id) > limits.H2_STREAM_SEND_BUFFER_BYTES:
            stream.waiter = self._loop.create_future()
            try:
                await stream.waiter
            finally:
                stream.waiter = None
        error = stream.body.exception()
        if error is not None:
            raise error

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Give the socket what it takes now; the rest waits for `resume_writing`."""
        self._flush_scheduled = False
        if self._transport.is_closing():
            return
        for _ in range(limits.H2_SEND_BUFFER_BYTES // limits.H2_WRITE_BYTES):
            moved = [] if self._paused else self._outbox.pump(limits.H2_WRITE_BYTES)
            data = self._engine.data_to_send()
            if data:
                self._transport.write(data)
            self._moved(moved)
            if not moved:
                break
        if self._outbox.has_ready and not self._paused:
            self._schedule_flush()  # Let others have the loop in between.
        elif self._transport.get_write_buffer_size() > limits.H2_SEND_BUFFER_BYTES and self._reading:
            self._reading = False  # A peer that asks and never reads the answers.
            self._transport.pause_reading()

    def _moved(self, stream_ids: list[int]) -> None:
        for stream_id in stream_ids:
            stream = self._streams.get(stream_id)
            if stream is not None and stream.waiter is not None and not stream.waiter.done():
                stream.waiter.set_result(None)
            if stream_id in self._responded and not self._outbox.is_open(stream_id):
                self._responded.remove(stream_id)
                self._stop_upload(stream_id)
                self._maybe_idle()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _maybe_idle(self) -> None:
        if not self._streams and not self._responded:
            self._idle.set()

    async def close(self, grace_s: float) -> None:
        """Take no new streams, let those that are open finish for `grace_s`, then cancel them and close."""
        self._engine.go_away()
        self._schedule_flush()
        self._idle.clear()
        self._maybe_idle()
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("%d requests from %s did not finish in time", len(self._streams), self._protocol.peername)
        for stream in list(self._streams.values()):
            self.reset(stream.stream_id, ErrorCode.CANCEL)
            self._abandon(stream, "the server is closing")
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CLOSE_TIMEOUT_S)
        self._close_transport()
        await self._lost.wait()

    def _close_transport(self) -> None:
        """Close once the socket has taken what is written; a client that takes nothing is not waited for."""
        if not self._transport.is_closing():
            self._flush()
            self._transport.close()
            self._abort = self._loop.call_later(_CLOSE_TIMEOUT_S, self._transport.abort)
