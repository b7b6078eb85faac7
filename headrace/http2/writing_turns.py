"""When a connection on an event loop writes: once per turn of the loop, and never so much that others must wait.

The base of both sides' connections (`connection`, `async_connection`), from the first byte to the loss of the socket.
Whoever has something to send asks for a turn; the turn writes piece after piece until nothing is ready, the socket
takes no more, or it is the others' turn.

    asked ──turn──> nothing left ──> idle
                 ├── the socket is full ──> paused ──resume_writing──> turn
                 └── H2_WRITES_PER_TURN ──> asked

Invariants: at most one turn is asked for; a connection that is lost or closing writes nothing; while the socket is full
no bodies are framed, only what the protocol itself has to say goes into the transport's buffer.
"""

import asyncio
from abc import ABC, abstractmethod

from headrace.core.limits import H2_WRITE_BYTES, H2_WRITES_PER_TURN


class WritingTurns(asyncio.BufferedProtocol, ABC):
    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport
    """Both from `connection_made` on."""

    def __init__(self) -> None:
        self._paused = False
        """The socket is full."""
        self._flush_scheduled = False
        self._lost = asyncio.Event()

    @abstractmethod
    def _write_some(self, limit: int) -> bool:
        """Write what is due, and about `limit` bytes of bodies. False: that was all."""

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
            self._schedule_flush()  # Let others have the loop in between.
