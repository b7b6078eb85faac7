"""Is a process ready? One HTTP or HTTPS GET on loopback, asked often while something starts.

As a kubelet's probe, it takes any certificate: it asks whether the process works, not who it is.
"""

import asyncio
import contextlib
import ssl
from urllib.parse import urlsplit

from headrace.dev.supervisor.ports import LOOPBACK

_TIMEOUT_S = 2.0
_INTERVAL_S = 0.05


async def until_answers(url: str) -> None:
    """Ask until the answer is yes."""
    while True:
        if await answers(url):
            return
        await asyncio.sleep(_INTERVAL_S)


async def answers(url: str) -> bool:
    """Whether a GET of `url` comes back with 200; anything else, a refused connection included, is a no."""
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                parts.hostname or LOOPBACK, parts.port, ssl=_unverified() if parts.scheme == "https" else None
            )
            try:
                writer.write(request)
                status_line = await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
    return status_line.split()[1:2] == [b"200"]


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
