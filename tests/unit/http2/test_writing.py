"""A connection writes once per turn, gives way to others, and frames no bodies while its socket is full.

Buffers that go out together over real sockets: whole, in order, however little the peer takes at a time.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.core.limits import H2_WRITE_BYTES, H2_WRITES_PER_TURN
from headrace.http2.frames import Buffer
from headrace.http2.writing import WritingTurns, write_gathered


class Written(WritingTurns):
    """Has `left` pieces to write; the socket is full after `room` of them."""

    def __init__(self, left: int, room: int = 1 << 20) -> None:
        super().__init__()
        self.left, self.room = left, room
        self.limits: list[int] = []
        self.received = bytearray(16)

    def connect(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = Transport()

    def ask(self) -> None:
        self._schedule_flush()

    def lose(self) -> None:
        self._lost.set()

    def leave(self) -> None:
        self._transport.close()

    def _write_some(self, limit: int) -> bool:
        self.limits.append(limit)
        if not (limit and self.left):
            return False
        self.left -= 1
        self.room -= 1
        if not self.room:
            self.pause_writing()
        return True

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.received

    def buffer_updated(self, nbytes: int) -> None:
        self.received = bytearray(16)


class Transport(asyncio.Transport):
    closing = False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True


def connected(left: int, room: int = 1 << 20) -> Written:
    written = Written(left, room)
    written.connect()
    return written


async def test_should_write_all_in_one_turn_however_often_it_is_asked() -> None:
    written = connected(2)
    written.ask()
    written.ask()
    assert written.limits == []
    await asyncio.sleep(0)
    assert written.limits == [H2_WRITE_BYTES] * 3
    await asyncio.sleep(0)
    assert len(written.limits) == 3, "asked for once"
    assert written.eof_received() is False


async def test_should_let_others_have_the_loop_when_there_is_much_to_write() -> None:
    written = connected(H2_WRITES_PER_TURN + 1)
    written.ask()
    await asyncio.sleep(0)
    assert (written.left, len(written.limits)) == (1, H2_WRITES_PER_TURN)
    await asyncio.sleep(0)
    assert written.left == 0


@pytest.mark.parametrize("room", [1, H2_WRITES_PER_TURN])
async def test_should_frame_nothing_while_the_socket_is_full(room: int) -> None:
    written = connected(room + 2, room)
    written.ask()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert written.left == 2
    written.ask()
    await asyncio.sleep(0)
    assert (written.left, written.limits[-1]) == (2, 0), "only what the protocol itself has to say"
    written.resume_writing()
    assert written.left == 0


@pytest.mark.parametrize("end", [Written.lose, Written.leave])
async def test_should_write_nothing_when_it_is_lost_or_closing(end: Any) -> None:
    written = connected(1)
    written.ask()
    end(written)
    await asyncio.sleep(0)
    assert (written.left, written.limits) == (1, [])


SENT: list[Buffer] = [b"head", bytes(range(256)) * 8192, b"tail" * 100, memoryview(b"x" * 100_000)]


@pytest.fixture
async def pair() -> AsyncIterator[tuple[asyncio.Transport, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    with theirs:
        yield transport, theirs
    transport.abort()


async def received(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += await asyncio.get_running_loop().sock_recv(sock, 1 << 16)
    return data


async def test_should_write_everything_in_order_when_the_socket_takes_a_part(
    pair: tuple[asyncio.Transport, socket.socket],
) -> None:
    transport, theirs = pair
    expected = b"".join(SENT)
    write_gathered(transport, SENT)
    assert transport.get_write_buffer_size(), "more than a socket takes at once"
    write_gathered(transport, [b"and", b"more"])
    assert await received(theirs, len(expected) + 7) == expected + b"andmore"


async def test_should_leave_it_to_the_transport_when_the_socket_is_lost(
    pair: tuple[asyncio.Transport, socket.socket],
) -> None:
    transport, theirs = pair
    theirs.close()
    write_gathered(transport, [b"one", b"two"])
    assert transport.is_closing()
