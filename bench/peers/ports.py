"""Ports that nobody listens on just now."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """All different: each is held until the last one is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
