"""The writing of a connection on an event loop: once per turn of the loop, and many buffers in one system call.

`WritingTurns` is the base of both sides' connections, from the first byte to the loss of the socket. A turn writes
piece after piece until nothing is ready, the socket takes no more, or others must have their turn.

    asked ──turn──> nothing left ──> idle
                 ├── the socket is full ──> paused ──resume_writing──> turn
                 └── H2_WRITES_PER_TURN ──> asked

Invariants: at most one turn is asked for; a connection that is lost or closing writes nothing; while the socket is full
no bodies are framed, only the protocol's own frames go into the transport's buffer. `write_gathered` never joins
buffers: `Transport.write` for each would cost a call and wake the peer for a frame's head alone, and `writelines` joins
them before Python 3.12.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence

from headrace.core.limits import H2_WRITE_BYTES, H2_WRITES_PER_TURN, WRITEV_BUFFERS_MAX
from headrace.http2.frames import Buffer


def write_gathered(transport: asyncio.WriteTransport, buffers: Sequence[Buffer]) -> None:
    """Write each buffer like `transport.write`; none of them is empty, and they must not change before they are
    written."""
    sent = _sent_at_once(transport, buffers) if len(buffers) > 1 else 0
    for buffer in buffers:
        if sent < len(buffer):
            transport.write(memoryview(buffer)[sent:] if sent else buffer)
        sent = max(0, sent - len(buffer))


def _sent_at_once(transport: asyncio.WriteTransport, buffers: Sequence[Buffer]) -> int:
    """Return how many bytes the socket took; None where something waits before them, or TLS has to see them."""
    if transport.get_write_buffer_size() or transport.get_extra_info("sslcontext") is not None:
        return 0
    try:
        return os.writev(transport.get_extra_info("socket").fileno(), buffers[:WRITEV_BUFFERS_MAX])
    except OSError:  # The socket takes nothing now, or is lost: the transport finds out, and deals with it.
        return 0


class WritingTurns(asyncio.BufferedProtocol, ABC):
    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport
    """The transport, set from `connection_made` on, as is the next field."""

    def __init__(self) -> None:
        self._paused = False
        """True while the socket is full."""
        self._flush_scheduled = False
        self._lost = asyncio.Event()

    @abstractmethod
    def _write_some(self, limit: int) -> bool:
        """Write what is due, and about `limit` bytes of bodies. Return False when that was all."""

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Give the socket what it takes now; the rest waits for `resume_writing`."""
        self._flush_scheduled = False
        if self._lost.is_set() or self._transport.is_closing():
            return
        for _ in range(H2_WRITES_PER_TURN):
            if not self._write_some(0 if self._paused else H2_WRITE_BYTES):
                return
        if not self._paused:
            self._schedule_flush()  # Other tasks have the loop in between.
