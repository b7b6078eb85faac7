"""What three copies cost at least: batches through sockets and files alone, by as many processes as Headrace takes.

A leader receives a batch, checks its CRC, appends it and sends it to each follower, which does the same and says so in
a byte; the client has as many batches on the way as the one of `raw`. No HTTP, no frames, no event loop, no log: what
is left are the system calls, the copies that they make, and the turns of the scheduler. Nothing of Headrace is in it.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

from crc32c import crc32c

_IN_FLIGHT = 4
_SAID_BYTES_MAX = 4096
_TIMEOUT_S = 60


def fan_out(folder: Path, replicas: int, batch_bytes: int, count: int) -> float:
    """Batches per second, until the last is acknowledged by all; files in `folder` are written from the page cache."""
    with ExitStack() as stack:
        ports = [
            stack.enter_context(_served(_follow, folder / f"follower-{number}", batch_bytes))
            for number in range(replicas - 1)
        ]
        port = stack.enter_context(_served(_lead, folder / "leader", batch_bytes, *ports))
        client = stack.enter_context(_connected(port))
        batch, sent, acknowledged = bytes(batch_bytes), 0, 0
        started = time.perf_counter()
        while acknowledged < count:
            while sent < min(count, acknowledged + _IN_FLIGHT):
                client.sendall(batch)
                sent += 1
            acknowledged += _heard(client)
        return count / (time.perf_counter() - started)


@contextmanager
def _served(serve: Callable[..., None], *arguments: object) -> Iterator[int]:
    """A process of its own that takes one connection, and ends with it; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = get_context("spawn").Process(target=serve, args=(server, *arguments), daemon=True)
        process.start()
        port: int = server.getsockname()[1]
    try:
        yield port
    finally:
        process.join(_TIMEOUT_S)


@contextmanager
def _appended(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()


def _follow(server: socket.socket, path: Path, batch_bytes: int) -> None:
    with _accepted(server) as leader, _appended(path) as file:
        batch = memoryview(bytearray(batch_bytes))
        while _take(leader, batch, file):
            leader.sendall(b"1")


def _lead(server: socket.socket, path: Path, batch_bytes: int, *ports: int) -> None:
    with ExitStack() as stack:
        held = {stack.enter_context(_connected(port)): 0 for port in ports}
        client, file = stack.enter_context(_accepted(server)), stack.enter_context(_appended(path))
        selector = stack.enter_context(selectors.DefaultSelector())
        for each in (client, *held):
            selector.register(each, selectors.EVENT_READ)
        batch, appended, said = memoryview(bytearray(batch_bytes)), 0, 0
        while True:
            for key, _ in selector.select(_TIMEOUT_S):
                follower = key.fileobj
                if isinstance(follower, socket.socket) and follower in held:
                    held[follower] += _heard(follower)
                elif _take(client, batch, file):
                    appended += 1
                    for each in held:
                        each.sendall(batch)
                else:
                    return
            committed = min([appended, *held.values()])
            client.sendall(b"1" * (committed - said))
            said = committed


def _take(sender: socket.socket, batch: memoryview, file: int) -> bool:
    """Receive a whole batch, check it, append it; False at the end."""
    at = 0
    while at < len(batch):
        count = sender.recv_into(batch[at:])
        if not count:
            return False
        at += count
    crc32c(batch)
    os.writev(file, [batch])
    return True


def _heard(sender: socket.socket) -> int:
    """How many batches it says it has."""
    return len(sender.recv(_SAID_BYTES_MAX))


@contextmanager
def _accepted(server: socket.socket) -> Iterator[socket.socket]:
    with server:
        server.settimeout(_TIMEOUT_S)
        connection, _ = server.accept()
    with _prompt(connection):
        connection.sendall(b"!")
        yield connection


def _connected(port: int) -> socket.socket:
    """Once the process there is ready."""
    connection = _prompt(socket.create_connection(("127.0.0.1", port), _TIMEOUT_S))
    connection.recv(1)
    return connection


def _prompt(connection: socket.socket) -> socket.socket:
    connection.settimeout(_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
