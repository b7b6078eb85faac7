"""Whose turn it is to read from a blocking connection: its thread's, or that of the one caller that waits. No I/O.

    thread's ── has read several times while exactly one caller waited ──> callers'
       ^──────── another waits too, or what one waits for does not come, or nobody has read for a while ────┘

A caller that reads what it waits for saves two hand-overs between threads, which take longer than all the rest of a
small answer. Where several wait, one reader serves them best. Owned by one connection, used under its lock.
"""

from headrace.core.limits import H2_READS_BEFORE_CALLERS_READ


class ReadingTurn:
    def __init__(self) -> None:
        self.is_callers = False
        """The thread leaves the socket alone, and looks now and then whether it is still read."""
        self._waiting = 0
        self._is_reading = False
        """A caller is."""
        self._is_used = False
        """It has been somebody's, or has become the callers', since the thread looked."""
        self._reads_for_one = 0
        """Of the thread, one after the other."""
        self._unread_sends = 0
        """Since a caller last read."""

    def come(self) -> bool:
        """A caller waits. Whether it is to read."""
        self._waiting += 1
        if not self.is_callers or self._is_reading:
            return False
        self._is_reading = self._is_used = True
        self._unread_sends = 0
        return True

    def sent(self) -> bool:
        """Something is sent. Whether the thread must be woken: nobody waited for the answer to what was sent before."""
        self._unread_sends += 1
        if not self.is_callers or self._is_reading or self._unread_sends == 1:
            return False
        self.is_callers = False
        return True

    def stop(self, *, was_served: bool) -> bool:
        """The caller reads no longer. Whether the thread must be woken: to read again."""
        self._is_reading = False
        self.is_callers = was_served and self._waiting == 1
        return not self.is_callers

    def leave(self) -> None:
        """A caller waits no longer."""
        self._waiting -= 1

    @property
    def is_caller_reading(self) -> bool:
        return self._is_reading

    def thread_read(self) -> None:
        self._reads_for_one = self._reads_for_one + 1 if self._waiting == 1 else 0
        self.is_callers = self._is_used = self._reads_for_one >= H2_READS_BEFORE_CALLERS_READ

    def thread_looked(self) -> None:
        """And takes its turn back where nobody uses it."""
        if self.is_callers and not self._is_used and not self._is_reading:
            self.is_callers = False
            self._reads_for_one = 0
        self._is_used = False
