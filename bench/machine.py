"""What the machine itself can do: the yardsticks. Plain sockets and files, nothing of Headrace."""

import os
import socket
import threading
import time
from pathlib import Path

CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 1024


def loopback_copy(total_bytes: int) -> float:
    """Bytes per second from one socket to another over 127.0.0.1, chunk by chunk into one reused buffer."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            drain = threading.Thread(target=_receive, args=(receiver, total_bytes))
            chunk = bytes(CHUNK_BYTES)
            started = time.perf_counter()
            drain.start()
            for _ in range(total_bytes // CHUNK_BYTES):
                sender.sendall(chunk)
            drain.join()
            return total_bytes / (time.perf_counter() - started)


def _receive(receiver: socket.socket, total_bytes: int) -> None:
    buffer = bytearray(CHUNK_BYTES)
    while total_bytes > 0:
        count = receiver.recv_into(buffer)
        if count == 0:
            return
        total_bytes -= count


def file_append(folder: Path, total_bytes: int, *, sync: bool) -> float:
    """Bytes per second into a new file, 1 MiB at a time; with `sync`, each MiB is on disk before the next."""
    path, chunk = folder / "yardstick", bytes(CHUNK_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        started = time.perf_counter()
        for _ in range(total_bytes // CHUNK_BYTES):
            os.writev(descriptor, [chunk])
            if sync:
                os.fdatasync(descriptor)
        return total_bytes / (time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()


def sync_times(folder: Path, count: int) -> list[float]:
    """Seconds that each append of 1 KiB takes to be on disk."""
    path, chunk = folder / "yardstick", bytes(_SMALL_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        times = []
        for _ in range(count):
            started = time.perf_counter()
            os.write(descriptor, chunk)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - started)
        return times
    finally:
        os.close(descriptor)
        path.unlink()


def round_trip_times(count: int) -> list[float]:
    """Seconds for 1 KiB to another thread over 127.0.0.1 and back."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            echo = threading.Thread(target=_echo, args=(far, count))
            echo.start()
            message, times = bytes(_SMALL_BYTES), []
            for _ in range(count):
                started = time.perf_counter()
                near.sendall(message)
                _receive(near, _SMALL_BYTES)
                times.append(time.perf_counter() - started)
            echo.join()
            return times


def _echo(far: socket.socket, count: int) -> None:
    for _ in range(count):
        _receive(far, _SMALL_BYTES)
        far.sendall(bytes(_SMALL_BYTES))
