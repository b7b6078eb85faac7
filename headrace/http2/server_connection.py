"""The server's side of one HTTP/2 connection: its socket, its streams, and the task that answers each of them.

The event loop owns it from the first bytes to the loss of the socket. `buffer_updated` is the one reader and `_flush`
the one writer; neither ever waits for application code. A stream lives from its request head until its handler is
done and its response is framed:

    RequestReceived ──> handling ──> responded ──> gone
                           └── reset, lost, or grace over: the task is cancelled ──> gone

Invariants: a handler runs as a task of its own and is cancelled as soon as its client has gone; bytes that no handler
will take are credited when they are discarded; at most `H2_TASKS_MAX` handlers run, cancelled ones that have not
finished included, so that opening and resetting streams fast gains nothing (CVE-2023-44487); no more than about
`H2_SEND_BUFFER_BYTES` lie in the socket's buffer before reading stops. `headrace.http2.server` creates it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import assert_never, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage

from headrace.core import limits
from headrace.core.limits import H2_MAX_CONCURRENT_STREAMS
from headrace.http2.bodies import MEANINGLESS_IN, RequestBody
from headrace.http2.bridge import ResponseWriter, ServerStream, StreamProtocol, request_message, respond
from headrace.http2.engine import Engine, Outbox, Role
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
from headrace.http2.new_connections import Lingering
from headrace.http2.slow_clients import Patience, Slowness, bytes_taken
from headrace.http2.writing import WritingTurns, write_gathered

H2_TASKS_MAX = 2 * H2_MAX_CONCURRENT_STREAMS
"""The number of handlers of one connection: more than its streams, because a task ends a little later than its
stream."""
H2_STREAM_SEND_BUFFER_BYTES = 256 << 10
"""The bytes that one stream may have waiting for window or socket before its writer waits."""
H2_UNWRITTEN_BYTES_MAX = 256 << 10
"""The bytes that a socket may leave unwritten before the writers of its streams wait."""


logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 5.0
"""The time that a client gets to take our last bytes."""
_LINGER_S = limits.HTTP_LINGER_MS / 1000
_SOCKET = 0
"""The key of the socket beside the ids of streams."""


class ServerConnection(WritingTurns):
    def __init__(
        self,
        app_server: web.Server,
        on_lost: Callable[["ServerConnection"], None],
        *,
        read_buffer: memoryview,
        patience: Patience,
        lingering: Lingering,
    ) -> None:
        """Take `read_buffer`, which is empty whenever the loop turns: all connections of a server may share one."""
        super().__init__()
        self._app_server = app_server
        self._on_lost = on_lost
        self._read_buffer = read_buffer
        self._slowness: Slowness[int] = Slowness(patience)
        self._lingering = lingering
        self._engine = Engine(Role.SERVER)
        self._outbox = Outbox(self._engine)
        self._streams: dict[int, ServerStream] = {}
        self._responded: dict[int, ServerStream] = {}
        """Streams whose handler is done while their response is still being framed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone = False
        """True where the event that is carried out is all that came."""
        self._reading = True
        self._idle_from: tuple[int, int] | None = None
        """The time since which no stream is open, and the stream that was opened last; None while one is open."""
        self._idle = asyncio.Event()
        self._abort: asyncio.TimerHandle | None = None

    # -- the side of asyncio ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=H2_UNWRITTEN_BYTES_MAX)
        self._protocol = StreamProtocol(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._schedule_flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._read_buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Take bytes that have arrived, also the first ones, which showed that the client speaks HTTP/2."""
        self._flush_scheduled = True  # at the end of this: what is answered on the spot leaves at once
        try:
            events = self._engine.receive_data(data, int(self._loop.time() * 1000))
            self._alone = len(events) == 1
            for event in events:
                self._carry_out(event)
        except RemoteProtocolError as error:
            logger.info("HTTP/2 connection from %s closed: %s", self._protocol.peername, error.message)
            self._break_off()
        else:
            self._flush()

    def resume_writing(self) -> None:
        self._paused = False
        self._moved(list(self._streams))
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
                self._forget(stream_id, "the client reset the stream")
            case WindowOpened(stream_id):
                self._outbox.unblock(stream_id)
            case GoAwayReceived() | ResponseReceived():
                pass  # A client that goes away finishes its streams and closes; only clients receive responses.
            case _:
                assert_never(event)

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        if len(self._tasks) >= H2_TASKS_MAX:
            self.reset(stream_id, ErrorCode.REFUSED_STREAM)
            return
        message = request_message(event.fields)
        if message is None or (event.ended and message.headers.get("Content-Length", "0") != "0"):
            self.reset(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        if any(name == b"expect" and value.lower() == b"100-continue" for name, value in event.fields):
            self._engine.send_head(stream_id, [(b":status", b"100")], ended=False)
        announced = message.headers.get("Content-Length")
        body = RequestBody(partial(self._credit, stream_id), partial(self._size_window, stream_id))
        if message.method in MEANINGLESS_IN:
            body.discard()
        stream = ServerStream(stream_id, self, body, int(announced) if announced is not None else None)
        if event.ended:
            body.feed_eof()
        self._streams[stream_id] = stream
        stream.task = self._loop.create_task(self._answer(stream, message))
        self._tasks.add(stream.task)

    def _feed(self, stream_id: int, data: bytes | memoryview) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            self._credit(stream_id, len(data))
            return
        if stream.unread is not None:
            stream.unread -= len(data)
        stream.body.feed(bytes(data), alone=self._alone)

    def _end_body(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if (
            stream is not None and stream.unread
        ):  # Trailers ended the body early: the engine checks the length on DATA only.
            self.reset(stream_id, ErrorCode.PROTOCOL_ERROR)
            self._abandon(stream, f"the request body ended {stream.unread} bytes short of its Content-Length")
        elif stream is not None:
            stream.body.feed_eof()

    def _credit(self, stream_id: int, count: int) -> None:
        self._engine.credit_connection(count)
        self._engine.credit_stream(stream_id, count)
        self._schedule_flush()

    def _size_window(self, stream_id: int, window: int) -> None:
        self._engine.size_window(stream_id, window)
        self._schedule_flush()

    # -- handlers --------------------------------------------------------------------------------------------------

    async def _answer(self, stream: ServerStream, message: RawRequestMessage) -> None:
        stream.begun = True
        writer = ResponseWriter(stream, is_head=message.method == "HEAD")
        try:
            await respond(self._app_server, message, stream.body, self._protocol, writer)
        except ConnectionError as error:
            logger.debug("stream %d: %s", stream.stream_id, error)
        finally:
            self._finish(stream, responded=writer.ended)

    def _finish(self, stream: ServerStream, *, responded: bool) -> None:
        """End the stream once its handler is done: what it left unread is discarded, a response that it left open is a
        reset."""
        self._drop_task(stream)
        self._streams.pop(stream.stream_id, None)
        stream.body.discard()
        if not responded:
            self.reset(stream.stream_id, ErrorCode.INTERNAL_ERROR)
        elif self._outbox.is_open(stream.stream_id):
            self._responded[stream.stream_id] = stream
        else:
            self._stop_upload(stream.stream_id)
        self._maybe_idle()

    def _drop_task(self, stream: ServerStream) -> None:
        """Forget the stream's task, which is in its last step or never has a first one: a callback at its end would
        cost each request more."""
        if stream.task is not None:
            self._tasks.discard(stream.task)

    def _stop_upload(self, stream_id: int) -> None:
        """Have a client that still uploads stop, as the response is complete (RFC 9113 section 8.1).

        That is not done at once, as some clients (curl 7.88) then lose the response that they have: the upload is
        discarded for a while first, as aiohttp does over HTTP/1.1.
        """
        if self._engine.is_receiving(stream_id):
            self._loop.call_later(limits.HTTP_LINGER_MS / 1000, self.reset, stream_id, ErrorCode.NO_ERROR)

    def _abandon(self, stream: ServerStream, reason: str) -> None:
        self._streams.pop(stream.stream_id, None)
        stream.body.discard()
        stream.body.set_exception(ConnectionResetError(reason))
        stream.wake()
        if stream.task is not None:
            stream.task.cancel(reason)
            if not stream.begun:
                self._drop_task(stream)
        self._maybe_idle()  # A task that is cancelled before its first step never gets to `_finish`.

    def _forget(self, stream_id: int, reason: str) -> None:
        """Forget a stream on which nothing more is sent, whether its handler is done or not."""
        if stream_id in self._streams:
            self._abandon(self._streams[stream_id], reason)
        elif self._responded.pop(stream_id, None) is not None:
            self._maybe_idle()

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

    async def drained(self, stream: ServerStream) -> None:
        """Wait until nothing of this stream is held back. Raises `ConnectionResetError` when the client has gone.

        What neither socket nor window holds up is as good as gone. So a handler, and all that is counted with it, stays
        for as long as its answer takes up memory.
        """
        while stream.body.exception() is None and self._holds_back(stream.stream_id):
            await stream.moved()
        error = stream.body.exception()
        if error is not None:
            raise error

    def _holds_back(self, stream_id: int) -> bool:
        if self._paused:
            return True
        passable = min(self._engine.sendable(stream_id), H2_STREAM_SEND_BUFFER_BYTES)
        return self._outbox.pending(stream_id) > passable

    def _write_some(self, limit: int) -> bool:
        moved = self._outbox.pump(limit)
        write_gathered(self._transport, self._engine.data_to_send())
        if moved:
            self._moved(moved)
        elif self._reading and self._transport.get_write_buffer_size() > limits.H2_SEND_BUFFER_BYTES:
            self._reading = False  # This peer asks and never reads the answers.
            self._transport.pause_reading()
        return bool(moved)

    def _moved(self, stream_ids: list[int]) -> None:
        for stream_id in stream_ids:
            if stream_id in self._streams:
                self._streams[stream_id].wake()
            if stream_id in self._responded and not self._outbox.is_open(stream_id):
                del self._responded[stream_id]
                self._stop_upload(stream_id)
                self._maybe_idle()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _maybe_idle(self) -> None:
        if not self._streams and not self._responded:
            self._idle.set()

    def check(self, now_ms: int) -> int:
        """Cut off what is too slow and close what is not used. Return how many were cut off; called now and then."""
        slow = self._slowness.of(self._waiting(), now_ms)
        if _SOCKET in slow:
            logger.info("HTTP/2 connection from %s closed: the client does not read", self._protocol.peername)
            self._transport.abort()
            return 1
        for stream_id in slow:
            self.reset(stream_id, ErrorCode.CANCEL)
            self._forget(stream_id, "the client does not take its answer")
        if self._streams or self._responded:
            self._idle_from = None
        elif self._idle_from is None or self._idle_from[0] != self._engine.last_request_id:
            self._idle_from = self._engine.last_request_id, now_ms
        elif now_ms - self._idle_from[1] >= self._slowness.patience.idle_ms:
            self._engine.go_away()
            self._close_transport()
        return len(slow)

    def _waiting(self) -> list[tuple[int, int]]:
        """Return what waits for the client, and how much of it has moved: the socket; without it the streams, for their
        windows."""
        if self._transport.get_write_buffer_size():
            return [(_SOCKET, bytes_taken(self._transport))]
        every = (*self._streams.values(), *self._responded.values())
        held = [(stream, self._outbox.pending(stream.stream_id)) for stream in every]
        return [(stream.stream_id, stream.sent - pending) for stream, pending in held if pending]

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

    def _break_off(self) -> None:
        """Tell the client that it broke HTTP/2, and break off, though it may be sending still."""
        self._abandon_all("the client broke HTTP/2")
        self._flush()
        self._lingering.keep(self._transport)
        self.connection_lost(None)

    def _close_transport(self) -> None:
        """Close once the socket has taken what is written, without waiting for a client that takes nothing."""
        if not self._transport.is_closing():
            self._flush()
            self._transport.close()
            self._abort = self._loop.call_later(_LINGER_S, self._maybe_abort, self._loop.time() + _CLOSE_TIMEOUT_S)

    def _maybe_abort(self, deadline_s: float) -> None:
        """Abort after `deadline_s`: TLS would wait for the client's own close, too, and ours is enough."""
        if self._transport.get_write_buffer_size() and self._loop.time() < deadline_s:
            self._abort = self._loop.call_later(_LINGER_S, self._maybe_abort, deadline_s)
        else:
            self._transport.abort()
