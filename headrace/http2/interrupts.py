"""Ctrl-C, held back while the main thread does what must not be torn apart. Linux and macOS; no I/O of its own.

    outside ──enter──> held ──allow──> allowed ──> held ──leave──> outside, and what was held is raised now

A connection that is read by a caller is state that others share: a KeyboardInterrupt between two of its lines would
lose what has arrived. Signal handlers run in the main thread only, so elsewhere there is nothing to hold back. Other
signals are left alone: a handler that raises is the program's own risk there.
"""

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self, TypeAlias, TypeVar

_Handler: TypeAlias = Callable[[int, FrameType | None], object]
_Got = TypeVar("_Got")

# The functions of `signal` without the enums around them, which take ten times as long: every small answer passes here.
_get_handler: Callable[[int], _Handler | int | None] = _signal.getsignal
_set_handler: Callable[[int, _Handler], object] = _signal.signal
_SIGINT = int(signal.SIGINT)


class HeldInterrupts:
    """A context that holds back interrupts during one call of one thread."""

    __slots__ = ("_allowed", "_came", "_frame", "_handler")

    def __init__(self) -> None:
        self._handler: _Handler | None = None
        """The program's own handler, while it is replaced."""
        self._allowed = False
        self._came = False
        self._frame: FrameType | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = _get_handler(_SIGINT)
            if callable(handler):  # Otherwise an interrupt raises nothing.
                self._handler = handler
                _set_handler(_SIGINT, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            _set_handler(_SIGINT, self._handler)
            self._tell()

    def allowing(self, step: Callable[..., _Got], *given: object) -> _Got:
        """Return `step(*given)`, which may be interrupted, also by what was held back."""
        try:
            self._allowed = True
            self._tell()
            return step(*given)
        finally:
            self._allowed = False

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self._came, self._frame = True, frame
        if self._allowed:
            self._tell()

    def _tell(self) -> None:
        if self._came and self._handler is not None:
            frame, self._came, self._frame = self._frame, False, None
            self._handler(_SIGINT, frame)
