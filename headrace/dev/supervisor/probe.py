"""Is a process ready? One HTTP GET on loopback, asked often while something starts."""

import asyncio
import contextlib
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
            reader, writer = await asyncio.open_connection(parts.hostname or LOOPBACK, parts.port)
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
