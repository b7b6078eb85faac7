"""The blocking client transport: plain sockets, many requests in flight on one connection, from any thread.

`BlockingTransport` owns one HTTP/2 connection per server until `close`. `start` sends a request and returns at once;
`PendingResponse.result` waits for the whole response. Callers write to the socket themselves as far as it takes their
bytes without waiting; one thread per connection reads, and writes what was left. A connection that is lost, or whose
server said GOAWAY, is replaced by the next request.

Invariants: socket and protocol state are touched only under the connection's lock, and nobody waits for the network
while holding it; a time-out or an interrupt resets that one stream. Threads do not survive a fork: a child process
makes a transport of its own, and closing the one that it inherited says nothing to the parent's servers.
"""

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headrace.core import limits
from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.http2.events import LocalProtocolError, RemoteProtocolError
from headrace.http2.exchange import Exchange, Exchanges
from headrace.http2.origin import Attempts, Origin, Request, client_tls, parse_request
from headrace.http2.outbox import Buffer
from headrace.http2.trust import lost_reason, tls_error

_CLOSE_TIMEOUT_S = 1.0
"""What a server gets to take our last bytes."""
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


class PendingResponse:
    """A request in flight."""

    def __init__(self, connection: "_Connection", exchange: "_WaitableExchange") -> None:
        self._connection = connection
        self._exchange = exchange

    def result(self, timeout_s: float | None = 30.0) -> Response:
        """Wait for the whole response, once. Raises `BrokerUnreachableError`; after a time-out the stream is reset."""
        return self._connection.result(self._exchange, timeout_s)

    def cancel(self) -> None:
        """Tell the server to stop; `result` then raises."""
        self._connection.cancel(self._exchange, "was told to stop")


class BlockingTransport:
    def __init__(self, ssl_context: ssl.SSLContext | None = None, connect_timeout_s: float = 5.0) -> None:
        """`ssl_context` is for `https` URLs; the default trusts the system's roots."""
        self._ssl_context = ssl_context
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._closed = False
        self._connections: dict[Origin, _Connection] = {}
        self._retired: list[_Connection] = []
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
        """Send a request and wait for its whole response, at most `timeout_s` (None: for ever)."""
        return self.start(method, url, headers=headers, body=body).result(timeout_s)

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
        buffers = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
        request = parse_request(method, url, headers or {}, sum(memoryview(buffer).nbytes for buffer in buffers))
        connection = self._connection_to(request.origin)
        exchange = _WaitableExchange(request, buffers)
        connection.start(exchange)
        return PendingResponse(connection, exchange)

    def close(self) -> None:
        """Close every connection; requests in flight fail."""
        with self._lock:
            self._closed = True
            connections = [*self._connections.values(), *self._retired]
            self._connections.clear()
            self._retired.clear()
        for connection in connections:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connection_to(self, origin: Origin) -> "_Connection":
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
            try:
                fresh = _Connection(origin, self._connect(origin))
            except BrokerUnreachableError as error:
                attempts.failed(error)
                raise
            self._replace(origin, connection, fresh)
            return fresh

    def _replace(self, origin: Origin, old: "_Connection | None", fresh: "_Connection") -> None:
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
            raise _unreachable(origin, f"did not answer within {self._connect_timeout_s:g} s") from None
        except OSError as error:
            raise _unreachable(origin, f"cannot be reached: {error.strerror or error}") from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return self._secure(origin, plain) if origin.is_tls else plain

    def _secure(self, origin: Origin, plain: socket.socket) -> ssl.SSLSocket:
        try:
            secure = client_tls(self._ssl_context).wrap_socket(plain, server_hostname=origin.host)
        except OSError as error:
            plain.close()
            raise tls_error(origin, error) from error
        if secure.selected_alpn_protocol() != "h2":
            secure.close()
            raise _unreachable(origin, "does not offer HTTP/2 by TLS ALPN")
        return secure


def _unreachable(origin: Origin, reason: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(f"broker {origin.authority} {reason}", unprocessed=True)


class _WaitableExchange(Exchange):
    """An exchange that one thread can wait for. All of it is guarded by the connection's lock."""

    __slots__ = ("condition",)

    def __init__(self, request: Request, body: Sequence[Buffer]) -> None:
        super().__init__(request, body, self._wake)
        self.condition: threading.Condition | None = None

    def _wake(self) -> None:
        # Not for every frame: a thread switch each would cost more than the bytes.
        half_full = self.buffered_bytes >= limits.H2_STREAM_WINDOW_BYTES // 4
        if self.condition is not None and (self.is_over or half_full):
            self.condition.notify()


class _Connection:
    """One connection: its socket, its exchanges, and the thread that waits for the network."""

    def __init__(self, origin: Origin, sock: socket.socket) -> None:
        self._origin = origin
        self._sock = sock
        self._sock.settimeout(0.0)
        self._exchanges = Exchanges(origin.authority)
        self._lock = threading.Lock()
        self._unsent = memoryview(b"")
        self._closing = False
        self._closing_when_idle = False
        self._heard = False
        self.is_lost = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.settimeout(0.0)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{origin.authority}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # None is to be had; Python 3.12 starts none while it ends.
            self._drop()
            raise _unreachable(origin, f"cannot be reached: {error}") from error

    # -- what callers ask ------------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._exchanges.is_usable

    def start(self, exchange: Exchange) -> None:
        with self._lock:
            self._exchanges.start(exchange)
            self._write()

    def result(self, exchange: "_WaitableExchange", timeout_s: float | None) -> Response:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        chunks: list[bytes] = []
        with self._lock:
            exchange.condition = threading.Condition(self._lock)
            try:
                chunks += self._exchanges.take(exchange)
                while not exchange.is_over:
                    self._write()
                    self._wait(exchange, exchange.condition, deadline, timeout_s)
                    chunks += self._exchanges.take(exchange)
            except BaseException:  # An interrupt, too, must not leave the server sending.
                self._cancel(exchange, "was not waited for")
                raise
        if exchange.error is not None:
            raise exchange.error
        return Response(exchange.status, exchange.headers, b"".join(chunks))

    def _wait(
        self, exchange: Exchange, condition: threading.Condition, deadline: float | None, timeout_s: float | None
    ) -> None:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and (left_s <= 0 or not condition.wait(left_s)) and not exchange.is_over:
            raise self._cancel(exchange, f"did not answer within {timeout_s:g} s")
        if left_s is None:
            condition.wait()

    def cancel(self, exchange: Exchange, reason: str) -> None:
        with self._lock:
            self._cancel(exchange, reason)

    def _cancel(self, exchange: Exchange, reason: str) -> HeadraceError:
        message = f"broker {self._origin.authority} {reason} ({exchange.request.name})"
        error = BrokerUnreachableError(message, unprocessed=False)
        self._exchanges.cancel(exchange, error)
        self._write()
        return error

    def close_when_idle(self) -> None:
        with self._lock:
            self._closing_when_idle = True
        self._wake()

    def close(self) -> None:
        if self._pid != os.getpid():
            self._drop()
            return
        with self._lock:
            if not self.is_lost:
                self._exchanges.close()
                self._exchanges.fail("was left: this client closed")
                self._write()
            self._closing = True
        self._wake()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():  # The server takes nothing: do not wait for it.
            with self._lock:
                self.is_lost = True
            self._wake()
            self._thread.join()

    def _drop(self) -> None:
        """Give the descriptors back, without a word to anybody."""
        for each in (self._sock, self._wake_receiver, self._wake_sender):
            each.close()

    # -- the network, under the lock -------------------------------------------------------------------------------

    def _write(self) -> None:
        """Send what the socket takes now, as much as is fair to others who want the lock; the thread sends the rest."""
        had_backlog = bool(self._unsent)
        try:
            for _ in range(limits.H2_SEND_BUFFER_BYTES // limits.H2_WRITE_BYTES):
                if not self._has_unsent():
                    return
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self._lose(f"{lost_reason(self._origin, heard=self._heard)}: {error.strerror or error}")
        if self._has_unsent() and not had_backlog:
            self._wake()

    def _has_unsent(self) -> bool:
        if not self._unsent and not self.is_lost:
            self._unsent = memoryview(self._exchanges.data_to_send(limits.H2_WRITE_BYTES))
        return bool(self._unsent) and not self.is_lost

    def _read(self, buffer: memoryview) -> None:
        try:
            while count := self._sock.recv_into(buffer):
                self._heard = True
                self._exchanges.receive_data(buffer[:count])
                if not isinstance(self._sock, ssl.SSLSocket):
                    return  # TLS may hold decrypted bytes that poll cannot see; a plain socket cannot.
            self._lose(lost_reason(self._origin, heard=self._heard))
        except _WOULD_BLOCK:
            return
        except RemoteProtocolError as error:
            self._write()
            self._lose(error.message)
        except OSError as error:
            self._lose(f"{lost_reason(self._origin, heard=self._heard)}: {error.strerror or error}")

    def _lose(self, reason: str) -> None:
        self.is_lost = True
        self._exchanges.fail(reason)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        buffer = memoryview(bytearray(limits.H2_READ_BYTES))
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        with self._sock, self._wake_receiver, self._wake_sender:
            while True:
                with self._lock:
                    if self._is_done():
                        self.is_lost = True
                        self._exchanges.fail("closed the connection")
                        return
                    interest = select.POLLIN | (select.POLLOUT if self._unsent else 0)
                poll.register(self._sock, interest)
                ready = dict(poll.poll())
                if self._wake_receiver.fileno() in ready:
                    self._wake_receiver.recv(4096)
                with self._lock:
                    if ready.get(self._sock.fileno(), 0) & ~select.POLLOUT:
                        self._read(buffer)
                    self._write()

    def _is_done(self) -> bool:
        leaving = self._closing_when_idle or not self._exchanges.is_usable
        idle = leaving and self._exchanges.is_idle
        return self.is_lost or ((self._closing or idle) and not self._unsent)

    def _wake(self) -> None:
        with suppress(OSError):  # The thread may have gone.
            self._wake_sender.send(b"\0")
