"""New connections of a server until they have shown which protocol they speak, and connections that must go. All are
bounded.

    accepted ──> TLS handshake ──done──> handed over, with what the client has said by then
                     └──failed, time is up, or the oldest of too many──> closed
    accepted ──preface──> HTTP/2     ──a whole head──> HTTP/1.1     ──time is up, or the oldest of a crowd──> aborted
    one too many, or broke HTTP/2 ──answer──> lingering ──closed by the client, or time is up──> aborted

A cleartext connection is HTTP/2 when its first bytes are the preface (prior knowledge, RFC 9113 section 3.3). The first
head of HTTP/1.1 is awaited here too, because the parser would wait for the rest of it without a limit. A connection
that begins neither is closed.

A handshake costs the buffers of TLS, some 300 KiB, and an honest one takes milliseconds. Where clients connect and
fall silent, the oldest of the address that has most gives way: neither memory nor newcomers suffer.
"""

import asyncio
import json
import logging
import re
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from typing import Any, Protocol, cast

from headrace.core import limits
from headrace.core.errors import PROBLEM_CONTENT_TYPE, HeadraceError, to_problem
from headrace.core.holders import Holders, holder_of
from headrace.http2.engine import Engine, Role
from headrace.http2.events import ErrorCode
from headrace.http2.frames import PREFACE

HTTP_FIRST_BYTES_TIMEOUT_MS = 30_000
"""A new connection must show within this time which protocol it speaks; over HTTP/1.1 by a whole head."""
HTTP_FIRST_BYTES_MAX = 64 << 10
"""The bytes of such a head; a longer one is left to the parser, which refuses it."""
TLS_HANDSHAKE_TIMEOUT_MS = 10_000
"""A client gets this long to finish its handshake: until then a connection costs memory and can do nothing."""
TLS_HANDSHAKES_MAX = 512
"""Handshakes under way at once, some 300 KiB each; one more ends the oldest."""


_HEAD_ENDS = b"\r\n\r\n", b"\n\n"
_OTHER_LINE = re.compile(rb"(?![ -~]* HTTP/[0-9.]+\r?\n)[ -~]+\r?\n")
"""A line of text that begins no HTTP/1 request. Bytes that are no text may be TLS: their sender sees by the answer that
we are not."""
_log = logging.getLogger(__name__)


class Spoken(Enum):
    HTTP1 = "HTTP/1.1"
    HTTP2 = "HTTP/2"


class _Member(Protocol):
    def abort(self) -> None: ...


class Crowd:
    """A bounded number of connections; one more ends the oldest of the holder that has most of them."""

    def __init__(self, members_max: int) -> None:
        self._members_max = members_max
        self._members: dict[_Member, str] = {}
        """The holder of each connection; the oldest first."""
        self._holders = Holders()

    def __len__(self) -> int:
        return len(self._members)

    def join(self, member: _Member, holder: str) -> None:
        """Add `member`, which leaves in its `abort` at the latest."""
        if len(self._members) >= self._members_max:
            greatest = self._holders.greatest()
            next(each for each, its_holder in self._members.items() if its_holder == greatest).abort()
        self._members[member] = holder
        self._holders.add(holder, 1)

    def leave(self, member: _Member) -> None:
        holder = self._members.pop(member, None)
        if holder is not None:
            self._holders.add(holder, -1)

    def abort(self) -> None:
        for member in list(self._members):
            member.abort()


def peer_holder(transport: asyncio.BaseTransport) -> str:
    """Return the holder in whose share a connection is counted."""
    peer = transport.get_extra_info("peername")
    return holder_of(str(peer[0])) if isinstance(peer, tuple) and peer else "unknown"


class _Short(asyncio.Protocol):
    """A connection that lasts a limited time, and makes room in its crowd as soon as it is over."""

    _transport: asyncio.Transport
    _timeout: asyncio.TimerHandle

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    def begin(self, transport: asyncio.Transport, timeout_ms: int) -> None:
        self._transport = transport
        self._crowd.join(self, peer_holder(transport))
        self._timeout = asyncio.get_running_loop().call_later(timeout_ms / 1000, self.abort)

    def leave(self) -> None:
        self._timeout.cancel()
        self._crowd.leave(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()

    def abort(self) -> None:
        self.leave()
        self._transport.abort()


class FirstBytes(_Short):
    """A connection until its protocol is known; `decided` gets it, its first bytes, and what they are."""

    def __init__(
        self,
        crowd: Crowd,
        decided: Callable[[asyncio.Transport, bytes, Spoken], None],
        spoken: Spoken | None = None,
    ) -> None:
        """Take `spoken` where the protocol is known already."""
        super().__init__(crowd)
        self._decided = decided
        self._spoken = spoken
        self._first = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begin(cast("asyncio.Transport", transport), HTTP_FIRST_BYTES_TIMEOUT_MS)

    def data_received(self, data: bytes) -> None:
        self._first += data
        if self._spoken is None and not PREFACE.startswith(self._first[: len(PREFACE)]):
            self._spoken = Spoken.HTTP1
        elif self._spoken is None and len(self._first) >= len(PREFACE):
            self._spoken = Spoken.HTTP2
        if self._spoken is Spoken.HTTP1 and _OTHER_LINE.match(self._first):
            self._transport.close()  # Neither protocol (RFC 9113 section 3.4).
            return
        if self._spoken is not None and (self._spoken is Spoken.HTTP2 or self._shows_all):
            self.leave()
            self._decided(self._transport, bytes(self._first), self._spoken)

    @property
    def _shows_all(self) -> bool:
        """Return whether a head of HTTP/1.1 is whole, or cannot be one."""
        first = self._first
        is_head = first[:1].isalpha() and len(first) <= HTTP_FIRST_BYTES_MAX
        return not is_head or any(end in first for end in _HEAD_ENDS)


class Lingering(_Short):
    """A connection that was sent the reason why it must go, and gets a moment to read it.

    What it still sends is read and dropped: a socket that is closed with unread bytes is reset, and its peer may lose
    what was sent to it (RFC 9112 section 9.6).
    """

    def keep(self, transport: asyncio.Transport) -> None:
        transport.set_protocol(self)
        self.begin(transport, limits.HTTP_LINGER_MS)
        transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()

    def refuse(self, transport: asyncio.Transport, error: HeadraceError, spoken: Spoken) -> None:
        transport.write(_goaway() if spoken is Spoken.HTTP2 else _answer(error))
        self.keep(transport)


def _goaway() -> bytes:
    engine = Engine(Role.SERVER)
    engine.go_away(ErrorCode.ENHANCE_YOUR_CALM)
    return b"".join(engine.data_to_send())


def _answer(error: HeadraceError) -> bytes:
    body = json.dumps(to_problem(error)).encode() + b"\n"
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: {PROBLEM_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: {limits.RETRY_AFTER_S}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class Handshakes:
    def __init__(self, context: ssl.SSLContext, secured: Callable[[asyncio.Transport, bytes], None]) -> None:
        """Take `secured`, which gets each connection that is through, and its first bytes."""
        self._context = context
        self._secured = secured
        self._tasks: dict[asyncio.Task[None], tuple[asyncio.Transport, str]] = {}
        """The handshakes under way, each with its holder; oldest first."""
        self._holders = Holders()
        self._buffer = bytearray(SSLProtocol.max_size)

    @property
    def count(self) -> int:
        return len(self._tasks)

    def accept(self) -> asyncio.Protocol:
        return _Accepted(self._begin)

    def close(self) -> None:
        """Give up all handshakes that are not through."""
        while self._tasks:
            self._end(next(iter(self._tasks)))

    def _end_one(self) -> None:
        greatest = self._holders.greatest()
        self._end(next(task for task, (_, holder) in self._tasks.items() if holder == greatest))

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()  # The task may not have begun, and then does nothing any more.
        plain, _ = self._tasks[task]
        self._forget(task)
        plain.abort()

    def _forget(self, task: asyncio.Task[None]) -> None:
        if task in self._tasks:
            _, holder = self._tasks.pop(task)
            self._holders.add(holder, -1)

    def _begin(self, accepted: "_Accepted", plain: asyncio.Transport) -> None:
        if len(self._tasks) >= TLS_HANDSHAKES_MAX:
            self._end_one()
        task = asyncio.get_running_loop().create_task(self._secure(accepted, plain))
        holder = peer_holder(plain)
        self._tasks[task] = plain, holder
        self._holders.add(holder, 1)
        task.add_done_callback(self._forget)

    async def _secure(self, accepted: "_Accepted", plain: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TLS_HANDSHAKE_TIMEOUT_MS / 1000):
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
        """Share one buffer: asyncio's TLS has 256 KiB for each connection, and fills and empties it in one go.

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
        """The bytes that came right behind the handshake."""
        self.is_lost = False
        self.secure: asyncio.Transport | None = None
        """The TLS transport, once another protocol has it."""

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
