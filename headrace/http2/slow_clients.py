"""The time that a server gives its clients: to send, to take what is sent to them, and to stay idle.

A client is too slow when, for `stall_ms` without a break, there was something for it to do and it moved fewer than
`least_bytes`. A client that has nothing to do is never slow, so an endless stream may be silent for days. `Pace` judges
one direction of one stream or connection, from counts that it gets now and then; it needs no timer of its own.
"""

import socket
import struct
from asyncio import Transport
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

HTTP_IDLE_MS = 600_000
"""The time without a request after which a connection is closed, as Kafka does (connections.max.idle.ms)."""
HTTP_STALL_MS = 60_000
"""The time in which a client that is to send or to take something must move `HTTP_STALL_BYTES`; else it is cut off."""
HTTP_STALL_BYTES = 64 << 10


_BYTES_ACKED: Final = struct.Struct("=Q")
_BYTES_ACKED_AT: Final = 120
"""The offset of `tcpi_bytes_acked` in `struct tcp_info` of Linux."""
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class Patience:
    stall_ms: int = HTTP_STALL_MS
    least_bytes: int = HTTP_STALL_BYTES
    idle_ms: int = HTTP_IDLE_MS
    """The time without a request after which a connection is closed."""

    @property
    def check_interval_s(self) -> float:
        """Return how often to check: a client gets at most a tenth more than its limit."""
        return min(self.stall_ms, self.idle_ms) / 10_000


class Pace:
    """The pace of one direction of one client, from the moment that something waits for it."""

    __slots__ = ("_moved", "_patience", "_since_ms")

    def __init__(self, patience: Patience, moved: int, now_ms: int) -> None:
        """Take `moved`, any count of bytes that grows as the client moves them."""
        self._patience = patience
        self._moved = moved
        self._since_ms = now_ms

    @property
    def judged_ms(self) -> int:
        """Return when it is judged next."""
        return self._since_ms + self._patience.stall_ms

    def is_too_slow(self, moved: int, now_ms: int) -> bool:
        if now_ms < self.judged_ms:
            return False
        too_slow = moved - self._moved < self._patience.least_bytes
        self._moved, self._since_ms = moved, now_ms
        return too_slow


class Slowness(Generic[_K]):
    """The paces of several at once, by any key."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._paces: dict[_K, Pace] = {}

    def of(self, waiting: Iterable[tuple[_K, int]], now_ms: int) -> list[_K]:
        """Return which of all that wait now, each with what it has moved, are too slow. A key that is not given waits
        no longer."""
        before, self._paces = self._paces, {}
        slow = []
        for key, moved in waiting:
            pace = before.get(key)
            if pace is None:
                pace = Pace(self.patience, moved, now_ms)
            elif pace.is_too_slow(moved, now_ms):
                slow.append(key)
            self._paces[key] = pace
        return slow


def bytes_taken(transport: Transport) -> int:
    """Return how much the other end of a TCP connection has taken so far; elsewhere, how far below 0 the buffer is
    filled."""
    option: int | None = getattr(socket, "TCP_INFO", None)
    sock: socket.socket | None = transport.get_extra_info("socket")
    if option is not None and sock is not None:
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, option, _BYTES_ACKED_AT + _BYTES_ACKED.size)
        except OSError:
            info = b""
        if len(info) == _BYTES_ACKED_AT + _BYTES_ACKED.size:
            taken: int = _BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0]
            return taken
    return -transport.get_write_buffer_size()
