"""Who is inside a blocking client that is used by one thread at a time: it is closed once, while nobody is inside.

Whoever closes it from a signal handler may have interrupted himself inside, and must not wait for himself; whoever does
so from another thread waits for the one inside. In both cases the one inside closes it on his way out. No lock is
waited for here.
"""

import threading
from enum import Enum, auto


class Closing(Enum):
    NOW = auto()
    """Nobody is inside: whoever asks closes it."""
    LATER = auto()
    """Whoever asks is inside himself: it is closed when he leaves."""
    WAIT = auto()
    """Somebody else is inside, or closes it."""


class Door:
    def __init__(self) -> None:
        self.is_closing = False
        self._inside: int | None = None
        self._depth = 0
        self._closes = threading.Lock()
        """Taken for ever by whoever closes."""
        self._closer: int | None = None
        self._closed = threading.Event()

    def enter(self) -> None:
        me = threading.get_ident()
        if self._inside != me:
            self._inside, self._depth = me, 0
        self._depth += 1

    def leave(self) -> bool:
        """True: it is to be closed now, by whoever leaves."""
        self._depth -= 1
        if self._depth:
            return False
        self._inside = None
        return self.is_closing and self.may_close()

    def ask(self) -> Closing:
        self.is_closing = True
        me = threading.get_ident()
        if me in (self._inside, self._closer):
            return Closing.LATER
        return Closing.NOW if self._inside is None and self.may_close() else Closing.WAIT

    def may_close(self) -> bool:
        """Once."""
        if not self._closes.acquire(blocking=False):
            return False
        self._closer = threading.get_ident()
        return True

    def closed(self) -> None:
        self._closer = None
        self._closed.set()

    def wait(self, timeout_ms: int) -> bool:
        """Until it is closed; False: not in time."""
        return self._closed.wait(max(0, timeout_ms) / 1000)
