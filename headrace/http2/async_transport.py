"""The asyncio client transport: many requests at once over one HTTP/2 connection per server.

`AsyncTransport` owns its connections until `close`; one event loop uses it. HTTP/2 by prior knowledge for `http://`,
by ALPN for `https://`. A connection that is lost, or whose server said GOAWAY, is replaced by the next request;
requests in flight there finish or fail on their own. Cancelling the task that waits for a response, like a timeout,
resets that one stream. `open` begins a request whose body and response go on side by side.

`AsyncConnection` has the socket on one side and the exchanges on the other. What callers and the socket give is
written once per turn of the loop.

`ReadMemory` is where a connection receives. A reader may keep views of what arrived until a frame is whole; memory is
used again as soon as nothing in it is kept, and what comes meanwhile lies behind it, or in another buffer where that
is full. Invariant: no byte is overwritten that came since what is kept began.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Self, cast

from headrace.core import limits
from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.core.limits import H2_READ_BYTES
from headrace.http2.events import LocalProtocolError, RemoteProtocolError
from headrace.http2.exchange import Decode, Exchange, Exchanges, Keeps, RequestStream
from headrace.http2.frames import Buffer
from headrace.http2.origin import (
    Attempts,
    Origin,
    Request,
    client_tls,
    lost_reason,
    parse_request,
    tls_error,
    unreachable,
    whole_request,
)
from headrace.http2.writing import WritingTurns, write_gathered

H2_READ_ROOM_BYTES_MIN = 64 << 10
"""The room that a buffer must have left behind its kept bytes; with less, the next bytes go into another buffer."""
_CLOSE_TIMEOUT_S = 1.0
"""The time that a server gets to take our last bytes."""


class ReadMemory:
    def __init__(self, buffer_bytes: int = H2_READ_BYTES, room_bytes_min: int = H2_READ_ROOM_BYTES_MIN) -> None:
        self._buffer_bytes = buffer_bytes
        self._room_bytes_min = room_bytes_min
        self._buffer = self._new()
        """The buffer that bytes are received into now."""
        self._at = 0
        """The place in it where the next bytes go."""
        self._full: list[memoryview] = []
        """The full buffers before it, in order: something in each of them is still kept."""
        self._spare: memoryview | None = None
        self._kept: AbstractSet[object] = frozenset()

    def room(self) -> memoryview:
        """Return the room for the next bytes: never empty, and the same until some were received."""
        if len(self._buffer) - self._at < self._room_bytes_min:
            self._full.append(self._buffer)
            self._buffer, self._spare = self._spare or self._new(), None
            self._at = 0
        return self._buffer[self._at :]

    def received(self, nbytes: int) -> memoryview:
        """Return a view of the `nbytes` that came into the room."""
        begin, self._at = self._at, self._at + nbytes
        return self._buffer[begin : self._at]

    def handled(self, kept: AbstractSet[object]) -> None:
        """Note what is still wanted, by names: a new name stands for something that came with the last `received`."""
        if not kept & self._kept:
            self._spare = self._full[0] if self._full else self._spare
            self._full.clear()
        if not kept:
            self._at = 0
        self._kept = kept

    def _new(self) -> memoryview:
        return memoryview(bytearray(self._buffer_bytes))  # A view: asyncio's TLS slices it.


class AsyncExchange(Exchange):
    """An exchange that one task can wait for."""

    __slots__ = ("waiter",)

    def __init__(self, request: Request, body: Sequence[Buffer]) -> None:
        super().__init__(request, body, self._wake)
        self.waiter: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class AsyncConnection(WritingTurns):
    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin
        self._exchanges = Exchanges(origin.authority)
        self._memory = ReadMemory()
        self._heard = False
        self.on_lost: Callable[[AsyncConnection], None] = lambda connection: None

    # -- the side of the transport ---------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._exchanges.is_usable and not self.is_lost

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def start(self, exchange: Exchange) -> None:
        self._exchanges.start(exchange)
        self._schedule_flush()

    def send(self, exchange: Exchange, buffers: Sequence[Buffer], *, ended: bool) -> None:
        self._exchanges.send(exchange, buffers, ended=ended)
        self._schedule_flush()

    def take(self, exchange: Exchange) -> list[Any]:
        chunks = self._exchanges.take(exchange)
        if chunks:
            self._schedule_flush()
        return chunks

    async def wait(self, exchange: AsyncExchange, timeout_s: float | None) -> None:
        """Wait until the exchange changes. Raises `BrokerUnreachableError` on time-out; that and cancellation reset
        it."""
        try:
            await self._changed(exchange, timeout_s)
        except TimeoutError:
            raise self.cancel(exchange, f"did not answer within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self.cancel(exchange, "was not waited for")
            raise

    async def receive(self, exchange: AsyncExchange, timeout_s: float | None) -> list[Any]:
        """Wait for what arrives and return it; an empty list when it is over. A TimeoutError or a cancellation changes
        nothing."""
        while not (chunks := self.take(exchange)) and not exchange.is_over:
            await self._changed(exchange, timeout_s)
        return chunks

    async def _changed(self, exchange: AsyncExchange, timeout_s: float | None) -> None:
        exchange.waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await exchange.waiter
        finally:
            exchange.waiter = None

    def cancel(self, exchange: Exchange, reason: str) -> HeadraceError:
        error = self._exchanges.cancel(exchange, reason)
        self._schedule_flush()
        return error

    def close_when_idle(self) -> None:
        """Close a connection that is not usable any more as soon as nothing is under way on it."""
        self._maybe_close()

    async def close(self) -> None:
        self._exchanges.close()
        self._exchanges.fail("was left: this client closed")
        self._flush()
        self._transport.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()
            await self._lost.wait()

    # -- the side of asyncio ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.H2_WRITE_BYTES)
        self._schedule_flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._memory.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        try:
            self._exchanges.receive_data(self._memory.received(nbytes), int(self._loop.time() * 1000))
        except RemoteProtocolError:
            self._flush()
            self._transport.close()
        else:
            self._memory.handled(self._exchanges.kept)
            self._schedule_flush()
            self._maybe_close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._exchanges.fail(f"{lost_reason(self._origin, heard=self._heard)}{f': {exc}' if exc else ''}")
        self.on_lost(self)

    def _maybe_close(self) -> None:
        if not self._exchanges.is_usable and self._exchanges.is_idle:
            self._transport.close()

    def _write_some(self, limit: int) -> bool:
        buffers = self._exchanges.data_to_send(limit)
        if buffers:
            write_gathered(self._transport, buffers)
        return bool(buffers)


class AsyncResponse:
    """A response whose head has arrived. Read it to its end, or `cancel` it."""

    def __init__(self, connection: AsyncConnection, exchange: AsyncExchange, timeout_s: float | None) -> None:
        self._connection = connection
        self._exchange = exchange
        self._timeout_s = timeout_s
        self.status = exchange.status
        self.headers: Mapping[str, str] = exchange.headers
        """The header fields by lower-case name."""

    async def read(self) -> bytes:
        """The rest of the body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises `BrokerUnreachableError` when it breaks off or nothing comes in time."""
        while True:
            arrived = self._connection.take(self._exchange)
            for chunk in arrived:
                yield chunk
            if arrived:  # More may have come while the reader was busy with these: nobody was woken by it.
                continue
            if self._exchange.is_over:
                break
            await self._connection.wait(self._exchange, self._timeout_s)
        if self._exchange.error is not None:
            raise self._exchange.error

    def cancel(self) -> None:
        """Tell the server to stop; what has not been read is dropped."""
        self._connection.cancel(self._exchange, "was told to stop")


class AsyncStream(RequestStream[AsyncConnection, AsyncExchange]):
    """A request whose body and response go on side by side. One task receives."""

    async def receive(self, timeout_s: float | None = 30.0) -> list[Any]:
        """Wait for what has arrived since the last call and return it; an empty list once the response has ended.

        Raises `BrokerUnreachableError` where the stream broke, after all that came before has been given out. Where
        nothing came in time that is a TimeoutError; then, and when it is cancelled, the stream goes on.
        """
        chunks = await self._connection.receive(self._exchange, timeout_s)
        if not chunks and self._exchange.error is not None:
            raise self._exchange.error
        return chunks


class AsyncTransport:
    def __init__(self, ssl_context: ssl.SSLContext | None = None, connect_timeout_s: float = 5.0) -> None:
        """`ssl_context` is for `https` URLs; the default trusts the system's roots, read when the first one is met."""
        self._ssl_context = ssl_context
        self._connect_timeout_s = connect_timeout_s
        self._closed = False
        self._connections: dict[Origin, AsyncConnection] = {}
        self._connecting: dict[Origin, tuple[asyncio.Lock, Attempts]] = {}
        self._retired: set[AsyncConnection] = set()
        """Connections that take no new requests, but are not lost yet."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Buffer | Sequence[Buffer] = (),
        timeout_s: float | None = 30.0,
    ) -> AsyncResponse:
        """Send a request and wait for the head of its response.

        `timeout_s` bounds that wait, connecting included, and later each wait for more of the body; None waits without
        a limit. Raises `BrokerUnreachableError`: with `details["unprocessed"]` true, the server has not acted on it.
        """
        request, buffers = whole_request(method, url, headers, body)
        connection = await self._connection_to(request.origin)
        exchange = AsyncExchange(request, buffers)
        connection.start(exchange)
        while not exchange.status and not exchange.is_over:
            await connection.wait(exchange, timeout_s)
        if exchange.error is not None and not exchange.status:
            raise exchange.error
        return AsyncResponse(connection, exchange, timeout_s)

    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        decode: Decode | None = None,
        keeps: Keeps | None = None,
    ) -> AsyncStream:
        """Begin a request whose body is sent and response received piece by piece. Raises what `request` raises.

        `decode` is called as bytes arrive; what it makes of them is received in their place. It may go on using them
        for as long as `keeps` says so.
        """
        request = parse_request(method, url, headers or {}, None)
        connection = await self._connection_to(request.origin)
        exchange = AsyncExchange(request, ())
        exchange.body_ended, exchange.decode, exchange.keeps = False, decode, keeps
        connection.start(exchange)
        return AsyncStream(connection, exchange)

    def trust(self, ssl_context: ssl.SSLContext) -> None:
        """Verify new connections against this one; those that are open stay."""
        self._ssl_context = ssl_context

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        self._closed = True
        connections = [*self._connections.values(), *self._retired]
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connection_to(self, origin: Origin) -> AsyncConnection:
        connection = self._connections.get(origin)
        if connection is not None and connection.is_usable:
            return connection
        connecting, attempts = self._connecting.setdefault(origin, (asyncio.Lock(), Attempts()))
        failures = attempts.failures
        async with connecting:
            connection = self._connections.get(origin)
            if connection is not None and connection.is_usable:
                return connection
            attempts.check_since(failures)
            if connection is not None:
                self._retire(connection)
            try:
                connection = await self._connect(origin)
            except BrokerUnreachableError as error:
                attempts.failed(error)
                raise
            if self._closed:
                await connection.close()
                raise LocalProtocolError("the transport is closed: make a new one")
            self._connections[origin] = connection
            return connection

    def _retire(self, connection: AsyncConnection) -> None:
        if not connection.is_lost:
            self._retired.add(connection)
            connection.on_lost = self._retired.discard
            connection.close_when_idle()

    async def _connect(self, origin: Origin) -> AsyncConnection:
        context = None
        if origin.is_tls:
            context = self._ssl_context = client_tls(self._ssl_context)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                transport, connection = await loop.create_connection(
                    lambda: AsyncConnection(origin), origin.host, origin.port, ssl=context
                )
        except TimeoutError:
            raise unreachable(origin, f"did not answer within {self._connect_timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise tls_error(origin, error) from error
        except OSError as error:
            # asyncio's own words are "Connect call failed", whatever the reason.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise unreachable(origin, f"cannot be reached: {reason}") from error
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            transport.abort()
            raise unreachable(origin, "does not offer HTTP/2 by TLS ALPN")
        return connection
