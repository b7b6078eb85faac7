"""Several buffers given to an asyncio transport in one system call, and never joined.

`Transport.write` once for each would cost a call and wake the peer for a frame's head alone, before its payload;
`writelines` joins them before Python 3.12. Used by whoever writes for a connection, from its loop.
"""

import asyncio
import os
from collections.abc import Sequence

from headrace.core.limits import WRITEV_BUFFERS_MAX
from headrace.http2.output import Buffer


def write_gathered(transport: asyncio.WriteTransport, buffers: Sequence[Buffer]) -> None:
    """As `transport.write` of each; none of them is empty, and they must not change before they are written."""
    sent = _sent_at_once(transport, buffers) if len(buffers) > 1 else 0
    for buffer in buffers:
        if sent < len(buffer):
            transport.write(memoryview(buffer)[sent:] if sent else buffer)
        sent = max(0, sent - len(buffer))


def _sent_at_once(transport: asyncio.WriteTransport, buffers: Sequence[Buffer]) -> int:
    """How many bytes the socket took. None where something waits before them, or TLS has to see them."""
    if transport.get_write_buffer_size() or transport.get_extra_info("sslcontext") is not None:
        return 0
    try:
        return os.writev(transport.get_extra_info("socket").fileno(), buffers[:WRITEV_BUFFERS_MAX])
    except OSError:  # It takes nothing now, or is lost: the transport finds out, and deals with it.
        return 0
