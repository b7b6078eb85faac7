"""One request over HTTP/2 on its way through the application: what its connection knows of it.

Made with the request's head and owned by its `ServerConnection`, until the handler is done and the response is framed.
Decides nothing.
"""

import asyncio
from typing import Protocol

from headrace.core.slotted import dataclass
from headrace.http2.bodies import RequestBody
from headrace.http2.events import ErrorCode, Fields


class StreamConnection(Protocol):
    """What a stream asks of its connection."""

    def send_head(self, stream_id: int, fields: Fields, *, ended: bool) -> None: ...
    def send_body(self, stream_id: int, chunk: bytes | memoryview, *, ended: bool) -> None: ...
    def reset(self, stream_id: int, error_code: ErrorCode) -> None: ...
    async def drained(self, stream: "ServerStream") -> None: ...


@dataclass(slots=True, eq=False)
class ServerStream:
    """The `ResponseSink` of its response's writer."""

    stream_id: int
    connection: "StreamConnection"
    body: RequestBody
    unread: int | None
    """What the announced Content-Length still lacks; None where none was announced."""

    task: asyncio.Task[None] | None = None
    begun: bool = False
    """Whether the task has had its first step."""
    sent: int = 0
    """Bytes of the response's body that were queued."""
    _waiter: asyncio.Future[None] | None = None

    def send_head(self, fields: Fields, *, ended: bool) -> None:
        self.connection.send_head(self.stream_id, fields, ended=ended)

    def send_body(self, chunk: bytes | memoryview, *, ended: bool) -> None:
        self.sent += len(chunk)
        self.connection.send_body(self.stream_id, chunk, ended=ended)

    async def drained(self) -> None:
        await self.connection.drained(self)

    async def moved(self) -> None:
        """Wait until some of the response has gone, or the client has."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def abort(self) -> None:
        self.connection.reset(self.stream_id, ErrorCode.INTERNAL_ERROR)
