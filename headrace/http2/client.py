"""The asyncio client transport: many requests at once over one HTTP/2 connection per server.

`AsyncTransport` owns its connections (`async_connection`) until `close`; it is used from one event loop. HTTP/2 by
prior knowledge for `http://`, by ALPN for `https://`. A connection that is lost, or whose server said GOAWAY, is
replaced by the next request; requests in flight there finish or fail on their own. Cancelling the task that waits for a
response, like a timeout, resets that one stream. `open` begins a request whose body and response go on side by side.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from headrace.core.errors import BrokerUnreachableError
from headrace.http2.async_connection import Connection, WaitableExchange
from headrace.http2.events import LocalProtocolError
from headrace.http2.exchange import Decode, Keeps
from headrace.http2.open_stream import OpenStream
from headrace.http2.origin import Attempts, Origin, client_tls, parse_request, unreachable, whole_request
from headrace.http2.output import Buffer
from headrace.http2.trust import tls_error


class Response:
    """A response whose head has arrived. Read it to its end, or `cancel` it."""

    def __init__(self, connection: Connection, exchange: WaitableExchange, timeout_s: float | None) -> None:
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


class AsyncStream(OpenStream[Connection, WaitableExchange]):
    """A request whose body and response go on side by side. One task receives."""

    async def receive(self, timeout_s: float | None = 30.0) -> list[Any]:
        """What has arrived since the last call, waited for; empty once the response has ended.

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
        self._connections: dict[Origin, Connection] = {}
        self._connecting: dict[Origin, tuple[asyncio.Lock, Attempts]] = {}
        self._retired: set[Connection] = set()
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
        request, buffers = whole_request(method, url, headers, body)
        connection = await self._connection_to(request.origin)
        exchange = WaitableExchange(request, buffers)
        connection.start(exchange)
        while not exchange.status and not exchange.is_over:
            await connection.wait(exchange, timeout_s)
        if exchange.error is not None and not exchange.status:
            raise exchange.error
        return Response(connection, exchange, timeout_s)

    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        decode: Decode | None = None,
        keeps: Keeps | None = None,
    ) -> AsyncStream:
        """Begin a request whose body is sent and response received piece by piece. Errors as of `request`.

        `decode` is called as bytes arrive; what it makes of them is received in their place. It may go on using them
        for as long as `keeps` says so.
        """
        request = parse_request(method, url, headers or {}, None)
        connection = await self._connection_to(request.origin)
        exchange = WaitableExchange(request, ())
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

    async def _connection_to(self, origin: Origin) -> Connection:
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

    def _retire(self, connection: Connection) -> None:
        if not connection.is_lost:
            self._retired.add(connection)
            connection.on_lost = self._retired.discard
            connection.close_when_idle()

    async def _connect(self, origin: Origin) -> Connection:
        context = None
        if origin.is_tls:
            context = self._ssl_context = client_tls(self._ssl_context)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                transport, connection = await loop.create_connection(
                    lambda: Connection(origin), origin.host, origin.port, ssl=context
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
