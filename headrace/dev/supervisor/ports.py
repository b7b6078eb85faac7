"""Free TCP ports on loopback, and who may not have them.

A port that was free a moment ago may be taken before it is used: whoever binds it still has to say so.
"""

import random
import socket

LOOPBACK = "127.0.0.1"
_RANGE = range(20_000, 32_000)
"""Below Linux's ephemeral ports, so that no outgoing connection takes one in between."""
_ATTEMPTS = 200


class NoFreePortsError(OSError):
    """No run of free ports was found."""


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_run(count: int, choose: random.Random) -> int:
    """The first of `count` ports in a row that are all free. Raises NoFreePortsError."""
    for _ in range(_ATTEMPTS):
        first = choose.randrange(_RANGE.start, _RANGE.stop - count)
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise NoFreePortsError(f"no {count} free ports in a row between {_RANGE.start} and {_RANGE.stop}")
