"""A guard for a blocking client that one thread at a time uses: the client is closed once, while no thread is inside.

A signal handler that closes the client may have interrupted its own thread inside, and must not wait for itself;
another thread that closes it waits for the one inside. In both cases the thread inside closes it on its way out. A
second thread that comes in meanwhile is refused: it would tear apart what the first one does.

The guard looks into the stack of the thread that came in, and never only counts: an interrupt may strike before a
thread has said that it leaves, and nobody may wait for one that has gone.
"""

import sys
import threading
from collections.abc import Callable
from enum import Enum, auto
from types import FrameType, TracebackType
from typing import NamedTuple

from headrace.core.errors import LocalError


class Closing(Enum):
    NOW = auto()
    """No thread is inside: the thread that asks closes it."""
    LATER = auto()
    """The thread that asks is inside itself: the client is closed when the thread leaves."""
    WAIT = auto()
    """Another thread is inside, or closes it."""


class Visit(NamedTuple):
    """A call of a thread inside: the thread is inside while this frame runs, or waits for what it has called."""

    thread: int
    frame: FrameType

    def is_under_way(self) -> bool:
        running = sys._current_frames().get(self.thread)
        while running is not None and running is not self.frame:
            running = running.f_back
        return running is not None


class ThreadGuard:
    def __init__(self) -> None:
        self.is_closing = False
        self._lock = threading.RLock()
        """The lock of the fields below. No thread waits while it holds it; a signal handler may come in between."""
        self._inside: Visit | None = None
        self._closer: Visit | None = None
        self._closed = threading.Event()

    def check(self) -> None:
        """Raise LocalError where another thread is inside."""
        inside = self._inside
        if inside is not None and inside.thread != threading.get_ident() and inside.is_under_way():
            raise LocalError(
                "another thread uses this consumer just now: it belongs to one thread at a time, so make one for each"
                " thread, or lock it (wakeup and close may be called from any thread)"
            )

    def enter(self, frame: FrameType) -> Visit | None:
        """Enter for the call of `frame`. None: this thread is inside already. Raises what `check` raises."""
        with self._lock:
            inside = self._inside
            if inside is not None and inside.is_under_way():
                self.check()
                return None
            self._inside = visit = Visit(threading.get_ident(), frame)
            return visit

    def leave(self, visit: Visit | None, frame: FrameType) -> bool:
        """Leave. True: `frame` closes the client now."""
        if visit is None:
            return False
        self._inside = None
        return self.is_closing and self._may_close(frame)

    def ask(self, frame: FrameType) -> Closing:
        """Ask to close the client; `frame` does it where the answer is NOW."""
        self.is_closing = True
        me = threading.get_ident()
        at_work = [visit.thread for visit in (self._inside, self._closer) if visit is not None and visit.is_under_way()]
        if me in at_work:
            return Closing.LATER
        return Closing.NOW if not at_work and self._may_close(frame) else Closing.WAIT

    def _may_close(self, frame: FrameType) -> bool:
        """Return whether `frame` closes the client now: once, unless that was interrupted."""
        with self._lock:
            if self._closed.is_set() or (self._closer is not None and self._closer.is_under_way()):
                return False
            self._closer = Visit(threading.get_ident(), frame)
            return True

    def closed(self) -> None:
        self._closer = None
        self._closed.set()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the client is closed; False: it was not in time."""
        return self._closed.wait(max(0, timeout_ms) / 1000)


class Inside:
    """A context in which one thread uses the client; on leaving, the thread calls `close` where it is to close it."""

    __slots__ = ("_close", "_guard", "_visit")

    def __init__(self, guard: ThreadGuard, close: Callable[[], None]) -> None:
        self._guard, self._close = guard, close
        self._visit: Visit | None = None

    def __enter__(self) -> None:
        self._visit = self._guard.enter(sys._getframe(1))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._guard.leave(self._visit, sys._getframe()):
            self._close()
