"""Buffers that go out together over real sockets: whole, in order, however little the peer takes at a time."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from headrace.http2.frames import Buffer
from headrace.http2.writing import write_gathered

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
