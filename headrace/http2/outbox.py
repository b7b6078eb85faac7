"""Bodies on their way out: what each stream still has to send, and whose turn it is. No I/O.

Owned by one connection, for its lifetime. Buffers are kept by reference and cut into DATA frames as windows allow; a
stream gets one frame a turn, so that a large body never keeps a small one waiting.

    put/end ──> ready ──pump──> sent, or ready again        (bytes left, windows open)
                  ├──pump──> blocked ──unblock──> ready     (its own window is used up)
                  └──pump──> held ──pump──> as ready        (the connection's window was used up, and is open again)

Invariants: a stream is in one of `_ready`, `_blocked` and `_held` exactly when it has something to send; nothing of it
is kept after `discard`. A window that opens by a byte costs no more than the frame that it lets out, however many
streams wait. Shared by server and clients.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import field

from headrace.core.slotted import dataclass
from headrace.http2.engine import Engine
from headrace.http2.output import Buffer


@dataclass(slots=True)
class _Body:
    buffers: deque[memoryview] = field(default_factory=deque)
    nbytes: int = 0
    ended: bool = False
    """END_STREAM follows the last byte."""

    def take(self, limit: int) -> list[memoryview]:
        """Up to `limit` bytes from the front, as views."""
        parts: list[memoryview] = []
        while self.buffers and limit:
            parts.append(self._cut(limit))
            limit -= len(parts[-1])
        return parts

    def _cut(self, limit: int) -> memoryview:
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
        self._held: deque[int] = deque()

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
        return bool(self._turn())

    def discard(self, stream_id: int) -> None:
        if self._bodies.pop(stream_id, None) is not None:
            self._blocked.discard(stream_id)
            for queue in (self._ready, self._held):
                if stream_id in queue:
                    queue.remove(stream_id)

    def unblock(self, stream_id: int) -> None:
        """The peer opened this stream's window. That the connection's is open is seen by itself."""
        if stream_id in self._blocked:
            self._blocked.remove(stream_id)
            self._ready.append(stream_id)

    def pump(self, limit: int) -> list[int]:
        """Frame about `limit` bytes, in turns; the streams that moved."""
        moved: list[int] = []
        while limit > 0 and (queue := self._turn()):
            stream_id = queue.popleft()
            body = self._bodies[stream_id]
            allowed = self._engine.sendable(stream_id)
            if body.nbytes and not allowed:
                self._wait(stream_id)
                continue
            before = body.nbytes
            parts = body.take(allowed)
            limit -= before - body.nbytes
            last = body.ended and not body.nbytes
            self._engine.send_body(stream_id, *parts, ended=last)
            moved.append(stream_id)
            if last:
                del self._bodies[stream_id]
            elif body.nbytes:
                self._ready.append(stream_id)
        return moved

    def _turn(self) -> deque[int]:
        """Whose turn it is: those who waited for the connection first; empty where it is nobody's."""
        return self._held if self._held and self._engine.is_connection_open else self._ready

    def _wait(self, stream_id: int) -> None:
        if self._engine.is_connection_open:
            self._blocked.add(stream_id)
        else:
            self._held.append(stream_id)
