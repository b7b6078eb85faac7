"""One port for both protocols: HTTP/2 where the client shows that it speaks it, HTTP/1.1 otherwise.

`serve` owns the listening socket and every connection until `Server.close`. A cleartext connection shows its protocol
by its first bytes, a TLS connection by what ALPN chose; what is not HTTP/2 goes to aiohttp's own handler. Both end in
the same `web.Application`. Over HTTP/1.1, too, a handler is cancelled when its client disconnects, and gets bodies as
they were sent, not decompressed.

Connections are bounded in number, over all and for each address (`core.holders`): one too many gets an answer that says
so and is closed, unless it asks for what is always answered. All are checked now and then, and those whose clients are
too slow are cut off (`patience`).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.core import limits
from headrace.core.errors import ThrottledError
from headrace.http2.aiohttp_web import HttpProcessingError, RequestHandler, web
from headrace.http2.bodies import PATIENCE
from headrace.http2.new_connections import Crowd, FirstBytes, Handshakes, Lingering, Spoken, peer_holder
from headrace.http2.server_connection import ServerConnection
from headrace.http2.slow_clients import Patience, Slowness, bytes_taken

HTTP_UNDECIDED_MAX = 512
"""The number of connections that have not shown their protocol yet; one more ends the oldest."""
HTTP_CONNECTIONS_MAX = 4096
"""The number of client connections of one broker; above it new ones are refused (429, or GOAWAY)."""


logger = logging.getLogger(__name__)
_http1_logger = logging.getLogger(f"{__name__}.http1")
_SHOWN_CHARACTERS = 200
_ALPN_PROTOCOLS = ["h2", "http/1.1"]


class _PeersMistakes(logging.Filter):
    """A filter that makes a client's mistake one line at INFO, as over HTTP/2, and no traceback of aiohttp's parser."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, (HttpProcessingError, ConnectionError)):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            why = " ".join(str(error).split())[:_SHOWN_CHARACTERS]
            record.msg, record.args = "%s: %s", (record.getMessage(), why)
            record.exc_info = None
        return True


_http1_logger.addFilter(_PeersMistakes())


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which a server takes clients."""

    patience: Patience = field(default_factory=Patience)
    connections_max: int = HTTP_CONNECTIONS_MAX
    always: frozenset[str] = frozenset()
    """Paths that are answered over HTTP/1.1 when there are too many connections, too.

    A program that watches over a server must not take a busy one for a dead one.
    """


_TERMS = Terms()


class Server:
    def __init__(self, runner: web.AppRunner, terms: Terms) -> None:
        assert runner.server is not None, "the runner is set up"
        self._runner = runner
        self._terms = terms
        self._slowness: Slowness[RequestHandler] = Slowness(terms.patience)
        self._http1: web.Server = runner.server
        self._http2: set[ServerConnection] = set()
        self._belonging = _Belonging()
        self._undecided = Crowd(HTTP_UNDECIDED_MAX)
        self._handshakes: Handshakes | None = None
        self._listener: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        # A view: asyncio's TLS slices it.
        self._read_buffer = memoryview(bytearray(limits.H2_READ_BYTES))
        self.port = 0
        """The port that is listened on: the one asked for, or the one the system chose for 0."""
        self.refused = 0
        """The number of connections that were one too many."""
        self.cut_off = 0
        """The number of streams and connections whose clients were too slow."""

    @property
    def connection_count(self) -> int:
        """Return the number of open connections, of either protocol."""
        undecided = len(self._undecided) + (self._handshakes.count if self._handshakes is not None else 0)
        return undecided + self._decided_count

    @property
    def _decided_count(self) -> int:
        return len(self._http1.connections) + len(self._http2)

    async def listen(self, host: str, port: int, ssl_context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accepting(ssl_context), host, port, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]
        self._looking = loop.create_task(self._look())

    async def close(self, grace_s: float) -> None:
        """Stop listening, send GOAWAY, let requests in flight finish for `grace_s`, then cancel and close."""
        assert self._listener is not None, "closed once, after listen"
        self._listener.close()
        self._undecided.abort()
        if self._handshakes is not None:
            self._handshakes.close()
        self._http1.pre_shutdown()
        closing = [connection.close(grace_s) for connection in list(self._http2)]
        await asyncio.gather(self._http1.shutdown(grace_s), *closing)
        if self._looking is not None:
            self._looking.cancel()
        with suppress(TimeoutError):  # From Python 3.12 on `wait_closed` waits for connections, too.
            async with asyncio.timeout(grace_s):
                await self._listener.wait_closed()
        await self._runner.cleanup()

    def _accepting(self, ssl_context: ssl.SSLContext | None) -> Callable[[], asyncio.Protocol]:
        """Return a factory of the first protocol of a new connection."""
        if ssl_context is None:
            return lambda: FirstBytes(self._undecided, self._adopt)
        self._handshakes = Handshakes(ssl_context, self._secured)
        return self._handshakes.accept

    def _secured(self, transport: asyncio.Transport, first: bytes) -> None:
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        if tls.selected_alpn_protocol() == "h2":
            self._adopt(transport, first, Spoken.HTTP2)
        else:
            _hand_over(transport, FirstBytes(self._undecided, self._adopt, Spoken.HTTP1), first)

    def _adopt(self, transport: asyncio.Transport, first: bytes, spoken: Spoken) -> None:
        """Hand a connection over to the protocol that its client speaks."""
        terms, http2 = self._terms, spoken is Spoken.HTTP2
        refusal = self._refusal(transport)
        if refusal is not None and (http2 or _path(first) not in terms.always):
            self.refused += 1
            Lingering(self._undecided).refuse(transport, refusal, spoken)
        elif http2:
            connection = ServerConnection(
                self._http1,
                self._http2.discard,
                read_buffer=self._read_buffer,
                patience=terms.patience,
                lingering=Lingering(self._undecided),
            )
            self._http2.add(connection)
            self._belonging.add(transport)
            _hand_over(transport, connection, first)
        else:
            self._belonging.add(transport)
            _hand_over(transport, self._http1(), _last_request(first) if refusal is not None else first)

    def _refusal(self, transport: asyncio.Transport) -> ThrottledError | None:
        """Return the refusal of one connection too many; None where there is room."""
        most, holder = self._terms.connections_max, peer_holder(transport)
        left = most - self._decided_count
        if left < 1:
            return ThrottledError(f"this broker has {most} connections, as many as it may; try again")
        held = self._belonging.count(holder, at_most=left - 1)
        if held >= left:
            return ThrottledError(f"{holder} has {held} connections here, as many as one address may; use those")
        return None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._terms.patience.check_interval_s)
            try:
                self._cut_off_the_slow(int(asyncio.get_running_loop().time() * 1000))
            except Exception:
                logger.exception("The check of the connections failed; it is repeated")

    def _cut_off_the_slow(self, now_ms: int) -> None:
        self._belonging.forget_closed()
        self.cut_off += sum([connection.check(now_ms) for connection in list(self._http2)])
        for handler in self._slowness.of(self._unread(), now_ms):
            transport = handler.transport
            if isinstance(transport, asyncio.Transport):
                logger.info("HTTP/1.1 connection from %s closed: the client does not read", handler.peername)
                transport.abort()
                self.cut_off += 1

    def _unread(self) -> list[tuple[RequestHandler, int]]:
        """Return the HTTP/1.1 connections whose clients have something to take, and how much they have taken so far."""
        transports = [(handler, handler.transport) for handler in self._http1.connections]
        return [
            (handler, bytes_taken(transport))
            for handler, transport in transports
            if isinstance(transport, asyncio.Transport) and transport.get_write_buffer_size()
        ]


class _Belonging:
    """The open connections, by their holders. Closed ones are forgotten when a count comes near its limit."""

    def __init__(self) -> None:
        self._transports: dict[str, set[asyncio.Transport]] = {}

    def add(self, transport: asyncio.Transport) -> None:
        self._transports.setdefault(peer_holder(transport), set()).add(transport)

    def count(self, holder: str, at_most: int) -> int:
        """Return how many connections this holder has. Above `at_most` closed ones are removed first."""
        if len(self._transports.get(holder, ())) > at_most:
            self._forget_closed_of(holder)
        return len(self._transports.get(holder, ()))

    def forget_closed(self) -> None:
        for holder in list(self._transports):
            self._forget_closed_of(holder)

    def _forget_closed_of(self, holder: str) -> None:
        transports = {each for each in self._transports.pop(holder, set()) if not each.is_closing()}
        if transports:
            self._transports[holder] = transports


def _hand_over(
    transport: asyncio.Transport, protocol: ServerConnection | RequestHandler | FirstBytes, first: bytes
) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if first:
        protocol.data_received(first)


def _last_request(head: bytes) -> bytes:
    """Return the same head with `Connection: close`: otherwise a client that asks for a probe first would stay."""
    line, end, rest = head.partition(b"\n")
    return line + end + b"Connection: close\r\n" + rest


def _path(head: bytes) -> str:
    """Return the path in the first line of a head."""
    target = head.partition(b"\n")[0].partition(b" ")[2].partition(b" ")[0]
    return target.partition(b"?")[0].decode("latin-1")


async def serve(
    app: web.Application,
    *,
    host: str,
    port: int,
    ssl_context: ssl.SSLContext | None = None,
    terms: Terms = _TERMS,
) -> Server:
    """Listen on `host:port` (0: any free port) and answer both protocols with `app`. Raises `OSError` on a bad address.

    `ssl_context` is set to offer `h2` and `http/1.1` by ALPN.
    """
    if ssl_context is not None:
        ssl_context.set_alpn_protocols(_ALPN_PROTOCOLS)
    app[PATIENCE] = terms.patience
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=terms.patience.idle_ms / 1000,
        lingering_time=limits.HTTP_LINGER_MS / 1000,
        auto_decompress=False,
        logger=_http1_logger,
    )
    await runner.setup()
    server = Server(runner, terms)
    try:
        await server.listen(host, port, ssl_context)
    except BaseException:
        await runner.cleanup()
        raise
    return server
