"""Bodies on their way out: what each stream still has to send, and whose turn it is. No I/O.

Owned by one connection, for its lifetime. Buffers are kept by reference and cut into DATA frames as windows allow; a
stream gets one frame a turn, so that a large body never keeps a small one waiting.

    put/end ──> ready ──pump──> sent, or ready again        (bytes left, window open)
                  └──pump──> blocked ──unblock──> ready     (window used up)

Invariants: a stream is in `_ready` or `_blocked` exactly when it has something to send; after `discard` nothing of
it is kept. Shared by server and clients.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.http2.engine import Engine
from headrace.http2.events import EVERY_STREAM

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(slots=True)
class _Body:
    buffers: deque[memoryview] = field(default_factory=deque)
    nbytes: int = 0
    ended: bool = False
    """END_STREAM follows the last byte."""

    def take(self, limit: int) -> bytes | memoryview:
        """Up to `limit` bytes from the front: a view where one buffer gives them, else joined."""
        first = self.buffers[0] if self.buffers else memoryview(b"")
        if len(first) >= limit or len(self.buffers) <= 1:
            return self._cut(limit)
        parts: list[memoryview] = []
        while self.buffers and limit:
            parts.append(self._cut(limit))
            limit -= len(parts[-1])
        return b"".join(parts)

    def _cut(self, limit: int) -> memoryview:
        if not self.buffers:
            return memoryview(b"")
        part = self.buffers[0][:limit]
        if len(part) == len(self.buffers[0]):
            self.buffers.popleft()
        else:
            self.buffers[0] = self.buffers[0][limit:]
        self.nbytes -= len(part)
        return part


class Outbox:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bodies: dict[int, _Body] = {}
        self._ready: deque[int] = deque()
        self._blocked: set[int] = set()

    def put(self, stream_id: int, buffers: Iterable[Buffer], *, ended: bool) -> None:
        """Queue body bytes, and with `ended` the end of the stream. The buffers must not change until they are sent."""
        if not self._engine.is_sending(stream_id):
            return
        body = self._bodies.get(stream_id)
        if body is None:
            body = self._bodies[stream_id] = _Body()
        idle = not body.nbytes and not body.ended
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if view.nbytes:
                body.buffers.append(view)
                body.nbytes += view.nbytes
        body.ended = ended
        if idle and (body.nbytes or ended):
            self._ready.append(stream_id)

    def pending(self, stream_id: int) -> int:
        """Bytes of this stream that have not been framed yet."""
        body = self._bodies.get(stream_id)
        return body.nbytes if body is not None else 0

    def is_open(self, stream_id: int) -> bool:
        """Whether something of this stream is still to be sent, its end included."""
        return stream_id in self._bodies

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def discard(self, stream_id: int) -> None:
        if self._bodies.pop(stream_id, None) is not None:
            self._blocked.discard(stream_id)
            if stream_id in self._ready:
                self._ready.remove(stream_id)

    def unblock(self, stream_id: int) -> None:
        """The peer opened a window: of one stream, or of all (`EVERY_STREAM`)."""
        if stream_id == EVERY_STREAM:
            self._ready.extend(sorted(self._blocked))
            self._blocked.clear()
        elif stream_id in self._blocked:
            self._blocked.remove(stream_id)
            self._ready.append(stream_id)

    def pump(self, limit: int) -> list[int]:
        """Frame about `limit` bytes, in turns; the streams that moved."""
        moved: list[int] = []
        while self._ready and limit > 0:
            stream_id = self._ready.popleft()
            body = self._bodies[stream_id]
            allowed = self._engine.sendable(stream_id)
            if body.nbytes and not allowed:
                self._blocked.add(stream_id)
                continue
            data = body.take(allowed)
            last = body.ended and not body.nbytes
            self._engine.send_body(stream_id, data, ended=last)
            moved.append(stream_id)
            limit -= len(data)
            if last:
                del self._bodies[stream_id]
            elif body.nbytes:
                self._ready.append(stream_id)
        return moved
