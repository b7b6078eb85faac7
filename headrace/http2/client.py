"""The asyncio client transport: many requests at once over one HTTP/2 connection per server.

`AsyncTransport` owns its connections until `close`; it is used from one event loop. HTTP/2 by prior knowledge for
`http://`, by ALPN for `https://`. A connection that is lost, or whose server said GOAWAY, is replaced by the next
request; requests in flight there finish or fail on their own. Cancelling the task that waits for a response, like a
timeout, resets that one stream.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

from headrace.core import limits
from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.http2.events import LocalProtocolError, RemoteProtocolError
from headrace.http2.exchange import Exchange, Exchanges
from headrace.http2.origin import Attempts, Origin, Request, client_tls, parse_request
from headrace.http2.outbox import Buffer
from headrace.http2.trust import lost_reason, tls_error

_CLOSE_TIMEOUT_S = 1.0
"""What a server gets to take our last bytes."""


class Response:
    """A response whose head has arrived. Read it to its end, or `cancel` it."""

    def __init__(self, connection: "_Connection", exchange: "_WaitableExchange", timeout_s: float | None) -> None:
        self._connection = connection
        self._exchange = exchange
        self._timeout_s = timeout_s
        self.status = exchange.status
        self.headers: Mapping[str, str] = exchange.headers
        """By lower-case name."""

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


class AsyncTransport:
    def __init__(self, ssl_context: ssl.SSLContext | None = None, connect_timeout_s: float = 5.0) -> None:
        """`ssl_context` is for `https` URLs; the default trusts the system's roots."""
        self._ssl_context = ssl_context
        self._connect_timeout_s = connect_timeout_s
        self._closed = False
        self._connections: dict[Origin, _Connection] = {}
        self._connecting: dict[Origin, tuple[asyncio.Lock, Attempts]] = {}
        self._retired: set[_Connection] = set()
        """No longer for new requests, but not lost yet."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Buffer | Sequence[Buffer] = (),
        timeout_s: float | None = 30.0,
    ) -> Response:
        """Send a request and wait for the head of its response.

        `timeout_s` bounds that wait, connecting included, and later each wait for more of the body; None waits for
        ever. Raises `BrokerUnreachableError`: with `details["unprocessed"]` true, the server has not acted on it.
        """
        buffers = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
        request = parse_request(method, url, headers or {}, sum(memoryview(buffer).nbytes for buffer in buffers))
        connection = await self._connection_to(request.origin)
        exchange = _WaitableExchange(request, buffers)
        connection.start(exchange)
        while not exchange.status and not exchange.is_over:
            await connection.wait(exchange, timeout_s)
        if exchange.error is not None and not exchange.status:
            raise exchange.error
        return Response(connection, exchange, timeout_s)

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

    async def _connection_to(self, origin: Origin) -> "_Connection":
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

    def _retire(self, connection: "_Connection") -> None:
        if not connection.is_lost:
            self._retired.add(connection)
            connection.on_lost = self._retired.discard
            connection.close_when_idle()

    async def _connect(self, origin: Origin) -> "_Connection":
        context = client_tls(self._ssl_context) if origin.is_tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                transport, connection = await loop.create_connection(
                    lambda: _Connection(origin), origin.host, origin.port, ssl=context
                )
        except TimeoutError:
            raise _unreachable(origin, f"did not answer within {self._connect_timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise tls_error(origin, error) from error
        except OSError as error:
            # asyncio's own words are "Connect call failed", whatever the reason.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise _unreachable(origin, f"cannot be reached: {reason}") from error
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            transport.abort()
            raise _unreachable(origin, "does not offer HTTP/2 by TLS ALPN")
        return connection


def _unreachable(origin: Origin, reason: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(f"broker {origin.authority} {reason}", unprocessed=True)


class _WaitableExchange(Exchange):
    """An exchange that one task can wait for."""

    __slots__ = ("waiter",)

    def __init__(self, request: Request, body: Sequence[Buffer]) -> None:
        super().__init__(request, body, self._wake)
        self.waiter: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class _Connection(asyncio.BufferedProtocol):
    """One connection: its socket on one side, its exchanges on the other."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._exchanges = Exchanges(origin.authority)
        self._read_buffer = memoryview(bytearray(limits.H2_READ_BYTES))  # A view: asyncio's TLS slices it.
        self._paused = False
        self._flush_scheduled = False
        self._closing_when_idle = False
        self._heard = False
        self._lost = asyncio.Event()
        self.on_lost: Callable[[_Connection], None] = lambda connection: None

    # -- what the transport asks ---------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._exchanges.is_usable and not self.is_lost

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def start(self, exchange: Exchange) -> None:
        self._exchanges.start(exchange)
        self._schedule_flush()

    def take(self, exchange: Exchange) -> list[bytes]:
        chunks = self._exchanges.take(exchange)
        if chunks:
            self._schedule_flush()
        return chunks

    async def wait(self, exchange: "_WaitableExchange", timeout_s: float | None) -> None:
        """Until the exchange changes. Raises `BrokerUnreachableError` on time-out; that and cancellation reset it."""
        exchange.waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await exchange.waiter
        except TimeoutError:
            raise self.cancel(exchange, f"did not answer within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self.cancel(exchange, "was not waited for")
            raise
        finally:
            exchange.waiter = None

    def cancel(self, exchange: Exchange, reason: str) -> HeadraceError:
        message = f"broker {self._origin.authority} {reason} ({exchange.request.name})"
        error = BrokerUnreachableError(message, unprocessed=False)
        self._exchanges.cancel(exchange, error)
        self._schedule_flush()
        return error

    def close_when_idle(self) -> None:
        self._closing_when_idle = True
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

    # -- asyncio's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.H2_WRITE_BYTES)
        self._schedule_flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        try:
            self._exchanges.receive_data(self._read_buffer[:nbytes])
        except RemoteProtocolError:
            self._flush()
            self._transport.close()
        else:
            self._schedule_flush()
            self._maybe_close()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._exchanges.fail(f"{lost_reason(self._origin, heard=self._heard)}{f': {exc}' if exc else ''}")
        self.on_lost(self)

    def _maybe_close(self) -> None:
        leaving = self._closing_when_idle or not self._exchanges.is_usable
        if leaving and self._exchanges.is_idle:
            self._transport.close()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._lost.is_set() or self._transport.is_closing():
            return
        for _ in range(limits.H2_SEND_BUFFER_BYTES // limits.H2_WRITE_BYTES):
            data = self._exchanges.data_to_send(0 if self._paused else limits.H2_WRITE_BYTES)
            if not data:
                return
            self._transport.write(data)
        if not self._paused:
            self._schedule_flush()  # Let others have the loop in between.
