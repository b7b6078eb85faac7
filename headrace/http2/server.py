"""One port for both protocols: HTTP/2 where the client shows that it speaks it, HTTP/1.1 otherwise.

`serve` owns the listening socket and every connection until `Server.close`. A cleartext connection is HTTP/2 when its
first bytes are the preface (prior knowledge, RFC 9113 section 3.3); a TLS connection when ALPN chose `h2`; every other
goes to aiohttp's own handler. Both end in the same `web.Application`. Over HTTP/1.1, too, a handler is cancelled when
its client disconnects, and gets bodies as they were sent, not decompressed.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from headrace.core import limits
from headrace.http2.connection import ServerConnection
from headrace.http2.engine import PREFACE
from headrace.http2.handshakes import Handshakes

_http1_logger = logging.getLogger(f"{__name__}.http1")
_SHOWN_CHARACTERS = 200
_ALPN_PROTOCOLS = ["h2", "http/1.1"]


class _PeersMistakes(logging.Filter):
    """What a client did wrong is one line at INFO, as over HTTP/2, and no traceback of aiohttp's parser."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, (HttpProcessingError, ConnectionError)):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            why = " ".join(str(error).split())[:_SHOWN_CHARACTERS]
            record.msg, record.args = "%s: %s", (record.getMessage(), why)
            record.exc_info = None
        return True


_http1_logger.addFilter(_PeersMistakes())


class Server:
    def __init__(self, runner: web.AppRunner) -> None:
        assert runner.server is not None, "the runner is set up"
        self._runner = runner
        self._http1: web.Server = runner.server
        self._http2: set[ServerConnection] = set()
        self._undecided: set[_FirstBytes] = set()
        self._handshakes: Handshakes | None = None
        self._listener: asyncio.Server | None = None
        self.port = 0
        """The port that is listened on: the one asked for, or the one the system chose for 0."""

    @property
    def connection_count(self) -> int:
        """Open connections, whatever they speak."""
        undecided = len(self._undecided) + (self._handshakes.count if self._handshakes is not None else 0)
        return undecided + len(self._http1.connections) + len(self._http2)

    async def listen(self, host: str, port: int, ssl_context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accepting(ssl_context), host, port, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self, grace_s: float) -> None:
        """Stop listening, send GOAWAY, let requests in flight finish for `grace_s`, then cancel and close."""
        assert self._listener is not None, "closed once, after listen"
        self._listener.close()
        for undecided in list(self._undecided):
            undecided.abort()
        if self._handshakes is not None:
            self._handshakes.close()
        self._http1.pre_shutdown()
        closing = [connection.close(grace_s) for connection in list(self._http2)]
        await asyncio.gather(self._http1.shutdown(grace_s), *closing)
        with suppress(TimeoutError):  # From Python 3.12 on it waits for connections, too.
            async with asyncio.timeout(grace_s):
                await self._listener.wait_closed()
        await self._runner.cleanup()

    def _accepting(self, ssl_context: ssl.SSLContext | None) -> Callable[[], asyncio.Protocol]:
        """Makes what a new connection talks to first."""
        if ssl_context is None:
            return lambda: _FirstBytes(self)
        self._handshakes = Handshakes(ssl_context, self._secured)
        return self._handshakes.accept

    def _secured(self, transport: asyncio.Transport, first: bytes) -> None:
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        self.adopt(transport, first, http2=tls.selected_alpn_protocol() == "h2")

    def adopt(self, transport: asyncio.Transport, first: bytes, *, http2: bool) -> None:
        """Hand a connection over to the protocol that its client speaks."""
        if http2:
            connection = ServerConnection(self._http1, self._http2.discard)
            self._http2.add(connection)
            transport.set_protocol(connection)
            connection.connection_made(transport)
            if first:
                connection.data_received(first)
        else:
            handler = self._http1()
            transport.set_protocol(handler)
            handler.connection_made(transport)
            if first:
                handler.data_received(first)

    def watch(self, undecided: "_FirstBytes") -> None:
        self._undecided.add(undecided)

    def forget(self, undecided: "_FirstBytes") -> None:
        self._undecided.discard(undecided)


class _FirstBytes(asyncio.Protocol):
    """A new cleartext connection until it has shown its protocol."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.watch(self)
        timeout_s = limits.HTTP_FIRST_BYTES_TIMEOUT_MS / 1000
        self._timeout = asyncio.get_running_loop().call_later(timeout_s, self.abort)

    def data_received(self, data: bytes) -> None:
        self._first += data
        if self._first.startswith(PREFACE):
            self._decide(http2=True)
        elif not PREFACE.startswith(self._first):
            self._decide(http2=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timeout.cancel()
        self._server.forget(self)

    def abort(self) -> None:
        self._transport.abort()

    def _decide(self, *, http2: bool) -> None:
        self._timeout.cancel()
        self._server.forget(self)
        self._server.adopt(self._transport, self._first, http2=http2)


async def serve(app: web.Application, *, host: str, port: int, ssl_context: ssl.SSLContext | None = None) -> Server:
    """Listen on `host:port` (0: any free port) and answer both protocols with `app`. Raises `OSError` on a bad address.

    `ssl_context` is told to offer `h2` and `http/1.1` by ALPN.
    """
    if ssl_context is not None:
        ssl_context.set_alpn_protocols(_ALPN_PROTOCOLS)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        lingering_time=limits.HTTP_LINGER_MS / 1000,
        auto_decompress=False,
        logger=_http1_logger,
    )
    await runner.setup()
    server = Server(runner)
    try:
        await server.listen(host, port, ssl_context)
    except BaseException:
        await runner.cleanup()
        raise
    return server
