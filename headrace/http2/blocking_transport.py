"""The blocking client transport: plain sockets, many requests in flight on one connection, from any thread.

`BlockingTransport` owns one HTTP/2 connection (`blocking_connection`) per server until `close`. `start` sends a request
and returns at once; `PendingResponse.result` waits for the whole response; `open` begins a request whose body and
response go on side by side. A connection that is lost, or whose server said GOAWAY, is replaced by the next request.
Threads do not survive a fork: a child process makes a transport of its own.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.http2.blocking_connection import BlockingConnection, BlockingExchange
from headrace.http2.events import LocalProtocolError
from headrace.http2.exchange import Decode, RequestStream, Response
from headrace.http2.frames import Buffer
from headrace.http2.interrupts import HeldInterrupts
from headrace.http2.origin import Attempts, Origin, client_tls, parse_request, tls_error, unreachable, whole_request


class PendingResponse:
    """A request in flight."""

    def __init__(self, connection: BlockingConnection, exchange: BlockingExchange) -> None:
        self._connection = connection
        self._exchange = exchange

    def result(self, timeout_s: float | None = 30.0) -> Response:
        """Wait for the whole response, once. Raises `BrokerUnreachableError`; after a time-out the stream is reset."""
        body = self._connection.result(self._exchange, timeout_s)
        return Response(self._exchange.status, self._exchange.headers, body)

    def cancel(self) -> None:
        """Tell the server to stop; `result` then raises."""
        self._connection.cancel(self._exchange, "was told to stop")


class BlockingStream(RequestStream[BlockingConnection, BlockingExchange]):
    """A request whose body and response go on side by side. One thread receives; any sends."""

    @property
    def is_over(self) -> bool:
        """Nothing more will arrive than what `take` still gives."""
        return self._exchange.is_over

    @property
    def error(self) -> HeadraceError | None:
        """The reason why it broke."""
        return self._exchange.error

    def take(self) -> list[Any]:
        """Return what has arrived since the last call, perhaps nothing; for listeners. The items are bytes, or what
        `decode` makes."""
        return self._connection.take(self._exchange)

    def wait_with(self, is_done: Callable[[], bool], wait: Callable[[], None], timeout_s: float | None) -> None:
        """Return when `is_done`, or when `wait` does. For callers that wait for what the listener makes of what
        arrives.

        A caller that waits alone may have to read from the connection itself, and call the listener.
        """
        self._connection.wait_with(is_done, wait, timeout_s)

    def receive(self, timeout_s: float | None = 30.0) -> list[Any]:
        """Wait for what has arrived since the last call and return it; an empty list once the response has ended.

        Raises `BrokerUnreachableError` where the stream broke, after all that came before has been given out, and
        TimeoutError where nothing came in time; the stream then goes on.
        """
        chunks = self._connection.receive(self._exchange, timeout_s)
        if not chunks and self._exchange.error is not None:
            raise self._exchange.error
        return chunks


class BlockingTransport:
    def __init__(self, ssl_context: ssl.SSLContext | None = None, connect_timeout_s: float = 5.0) -> None:
        """`ssl_context` is for `https` URLs; the default trusts the system's roots, read when the first one is met."""
        self._ssl_context = ssl_context
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._closed = False
        self._connections: dict[Origin, BlockingConnection] = {}
        self._retired: list[BlockingConnection] = []
        self._connecting: dict[Origin, tuple[threading.Lock, Attempts]] = {}

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Buffer | Sequence[Buffer] = (),
        timeout_s: float | None = 30.0,
    ) -> Response:
        """Send a request and wait for its whole response, at most `timeout_s` (None: without a limit)."""
        connection, exchange = self._prepared(method, url, headers, body)
        try:
            connection.start(exchange)
            return PendingResponse(connection, exchange).result(timeout_s)
        except BaseException:  # Nobody will take what comes: it would fill the connection.
            connection.cancel(exchange, "was not waited for")
            raise

    def start(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Buffer | Sequence[Buffer] = (),
    ) -> PendingResponse:
        """Send a request without waiting for its response; the buffers must not change until that is there.

        Raises `BrokerUnreachableError`: with `details["unprocessed"]` true, the server has not acted on it.
        """
        connection, exchange = self._prepared(method, url, headers, body)
        connection.start(exchange)
        return PendingResponse(connection, exchange)

    def _prepared(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: Buffer | Sequence[Buffer]
    ) -> tuple[BlockingConnection, BlockingExchange]:
        """Check the request and find its connection; may connect."""
        request, buffers = whole_request(method, url, headers, body)
        return self._connection_to(request.origin), BlockingExchange(request, buffers)

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        listener: Callable[[BlockingStream], None] | None = None,
        decode: Decode | None = None,
    ) -> BlockingStream:
        """Begin a request whose body is sent, and whose response is received, piece by piece. Raises what `start`
        raises.

        `listener` is called by the connection's thread, or by one that is in `wait_with`, whenever something has
        arrived, and when the stream is over. It must not block, as nothing arrives meanwhile, and uses `take`. `decode`
        is called as bytes arrive, by the thread that reads them; what it makes of them is received in their place.
        """
        request = parse_request(method, url, headers or {}, None)
        connection = self._connection_to(request.origin)
        exchange = BlockingExchange(request, ())
        exchange.begin_stream(decode)
        stream = BlockingStream(connection, exchange)
        if listener is not None:
            connection.call_on_change(exchange, partial(listener, stream))
        connection.start(exchange)
        return stream

    def close(self) -> None:
        """Close every connection; requests in flight fail. A caller that was interrupted may call it again."""
        with self._lock:
            self._closed = True
            connections = [*self._connections.values(), *self._retired]
        for connection in connections:
            connection.close()
        with self._lock:
            self._connections.clear()
            self._retired.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connection_to(self, origin: Origin) -> BlockingConnection:
        with self._lock:
            connection = self._connections.get(origin)
            if connection is not None and connection.is_usable:
                return connection
            connecting, attempts = self._connecting.setdefault(origin, (threading.Lock(), Attempts()))
            failures = attempts.failures
        with connecting:
            with self._lock:
                connection = self._connections.get(origin)
            if connection is not None and connection.is_usable:
                return connection
            attempts.check_since(failures)
            with HeldInterrupts() as interrupts:  # A connection that nobody knows of would never be closed.
                try:
                    fresh = BlockingConnection(origin, interrupts.allowing(self._connect, origin))
                except BrokerUnreachableError as error:
                    attempts.failed(error)
                    raise
                self._replace(origin, connection, fresh)
            return fresh

    def _replace(self, origin: Origin, old: BlockingConnection | None, fresh: BlockingConnection) -> None:
        with self._lock:
            if self._closed:
                fresh.close()
                raise LocalProtocolError("the transport is closed: make a new one")
            self._retired = [retired for retired in self._retired if not retired.is_lost]
            if old is not None:
                old.close_when_idle()
                self._retired.append(old)
            self._connections[origin] = fresh

    def _connect(self, origin: Origin) -> socket.socket:
        try:
            plain = socket.create_connection((origin.host, origin.port), timeout=self._connect_timeout_s)
        except TimeoutError:
            raise unreachable(origin, f"did not answer within {self._connect_timeout_s:g} s") from None
        except OSError as error:
            raise unreachable(origin, f"cannot be reached: {error.strerror or error}") from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return self._secure(origin, plain) if origin.is_tls else plain

    def _secure(self, origin: Origin, plain: socket.socket) -> ssl.SSLSocket:
        try:
            self._ssl_context = client_tls(self._ssl_context)
            secure = self._ssl_context.wrap_socket(plain, server_hostname=origin.host)
        except OSError as error:
            plain.close()
            raise tls_error(origin, error) from error
        if secure.selected_alpn_protocol() != "h2":
            secure.close()
            raise unreachable(origin, "does not offer HTTP/2 by TLS ALPN")
        return secure
