"""TLS handshakes of a server: so many at a time, each within a time limit.

    accepted ──> handshake ──done──> handed over, with what the client has said by then
                     └──failed, time is up, or the oldest of too many──> closed

A handshake costs the buffers of TLS, some 300 KiB, and an honest one takes milliseconds. So where clients connect and
fall silent, it is the oldest that gives way, of the address that has most: neither memory nor newcomers suffer.
"""

import asyncio
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, cast

from headrace.core import limits
from headrace.core.holders import Holders
from headrace.http2.first_bytes import peer_holder

_log = logging.getLogger(__name__)


class Handshakes:
    def __init__(self, context: ssl.SSLContext, secured: Callable[[asyncio.Transport, bytes], None]) -> None:
        """`secured` gets each connection that is through, and its first bytes."""
        self._context = context
        self._secured = secured
        self._tasks: dict[asyncio.Task[None], tuple[asyncio.Transport, str]] = {}
        """With whose each is; oldest first."""
        self._holders = Holders()
        self._buffer = bytearray(SSLProtocol.max_size)

    @property
    def count(self) -> int:
        return len(self._tasks)

    def accept(self) -> asyncio.Protocol:
        return _Accepted(self._begin)

    def close(self) -> None:
        """Give up all that are not through."""
        while self._tasks:
            self._end(next(iter(self._tasks)))

    def _end_one(self) -> None:
        greatest = self._holders.greatest()
        self._end(next(task for task, (_, holder) in self._tasks.items() if holder == greatest))

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()  # It may not have begun, and then does nothing any more.
        plain, _ = self._tasks[task]
        self._forget(task)
        plain.abort()

    def _forget(self, task: asyncio.Task[None]) -> None:
        if task in self._tasks:
            _, holder = self._tasks.pop(task)
            self._holders.add(holder, -1)

    def _begin(self, accepted: "_Accepted", plain: asyncio.Transport) -> None:
        if len(self._tasks) >= limits.TLS_HANDSHAKES_MAX:
            self._end_one()
        task = asyncio.get_running_loop().create_task(self._secure(accepted, plain))
        holder = peer_holder(plain)
        self._tasks[task] = plain, holder
        self._holders.add(holder, 1)
        task.add_done_callback(self._forget)

    async def _secure(self, accepted: "_Accepted", plain: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.TLS_HANDSHAKE_TIMEOUT_MS / 1000):
                secure = await loop.start_tls(plain, accepted, self._context, server_side=True)
        except OSError as error:  # ssl.SSLError and TimeoutError are such.
            _log.debug("a client did not finish its TLS handshake: %s", error)
            plain.abort()
        else:
            assert secure is not None, "start_tls gives the new transport"
            if not accepted.is_lost:
                accepted.secure = secure
                self._share_buffer(secure)
                self._secured(secure, accepted.early)

    def _share_buffer(self, secure: asyncio.Transport) -> None:
        """One buffer for all: asyncio's TLS has 256 KiB for each connection, and fills and empties it in one go.

        Where another release of asyncio keeps it elsewhere, connections cost that much more, and a test says so.
        """
        protocol: Any = getattr(secure, "_ssl_protocol", None)
        if len(getattr(protocol, "_ssl_buffer", b"")) == len(self._buffer):
            protocol._ssl_buffer, protocol._ssl_buffer_view = self._buffer, memoryview(self._buffer)


class _Accepted(asyncio.Protocol):
    """A new connection until its handshake is over."""

    def __init__(self, begin: Callable[["_Accepted", asyncio.Transport], None]) -> None:
        self._begin = begin
        self.early = b""
        """What came right behind the handshake."""
        self.is_lost = False
        self.secure: asyncio.Transport | None = None
        """Once another protocol has it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        plain.pause_reading()
        self._begin(self, plain)

    def data_received(self, data: bytes) -> None:
        self.early += data

    def connection_lost(self, exc: Exception | None) -> None:
        # asyncio may have called this before the connection was handed over, and come round to it only now.
        if self.secure is not None:
            self.secure.get_protocol().connection_lost(exc)
        self.is_lost = True
