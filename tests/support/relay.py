"""A TCP relay before a server that cuts connections off when it is told to: answers that are under way are lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.support.patience import patient

_CHUNK_BYTES = 1 << 16


class Relay:
    """Runs on a loop in a thread of its own. Invariant: after `cut` no byte of an answer comes to any client any more
    over a connection that was there before."""

    def __init__(self, target_port: int, seen: Callable[[bytes], None]) -> None:
        """`seen` is told all that clients send."""
        self.port = 0
        self._target_port = target_port
        self._seen = seen
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """All connections at once."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(patient(30))

    async def _cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, stopped: asyncio.Event, started: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stopped.wait()
        server.close()
        await self._cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, back, self._seen)),
            asyncio.create_task(self._pump(there, writer, _look_away)),
        ]
        self._tasks.update(pumps)
        for pump in pumps:
            pump.add_done_callback(self._tasks.discard)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Callable[[bytes], None]
    ) -> None:
        self._writers.add(writer)
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                seen(chunk)
                writer.write(chunk)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()


def _look_away(_chunk: bytes) -> None:
    pass


@contextmanager
def relaying(target_port: int, seen: Callable[[bytes], None] = _look_away) -> Iterator[Relay]:
    relay, started, stopped = Relay(target_port, seen), threading.Event(), asyncio.Event()
    loop = relay._loop
    thread = threading.Thread(target=lambda: loop.run_until_complete(relay._serve(stopped, started)))
    thread.start()
    assert started.wait(patient(30))
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(patient(30))
        loop.close()
