"""The pipe that a member of a group prints into, and how many of its records the pipe's reader has taken.

Bytes that lie in a pipe are not read yet, and are lost with its reader. So a record counts as read once its last byte
has left the pipe, by what the operating system says is unread in it. From a reader that went away nothing more is
counted than when it was asked for the last time: it takes more than it uses (`head`), or failed at what it took last. A
record that comes again is better than one that never comes.

    write, add   (the printing thread)  bytes go into the pipe; these rows end there
    first_untaken (any thread)          how far the reader is, wherever offsets are committed

A socket is like a pipe: what its other end has not taken counts as unread. Files and terminals keep what is written.
"""

import fcntl
import os
import select
import stat
import struct
import sys
import termios
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from headrace.client.record import TopicPartition

_WRITE_BYTES_MAX = 16 << 10
"""The bytes of one write: what is on its way while a full pipe makes us wait counts as not taken, so it must be a part
of a pipe."""
_LOOK_MS_MIN, _LOOK_MS_MAX = 1, 50
"""The shortest and longest time between two checks: no operating system notifies that a pipe is empty, so it is polled,
less and less often."""
_LAST_LOOK_MS = 100
"""The time after which a last check is made: a reader that has had enough ends right after its last read; one that is
still there then waits for more."""


@dataclass(frozen=True, slots=True)
class _Printed:
    """Rows of one partition, one after another in the output."""

    place: TopicPartition
    offsets: Sequence[int]
    ends: Sequence[int]
    """The end of each row, in bytes since the beginning of the output."""


class Pipe:
    """The pipe or socket at stdout: a file to write to that knows how far its reader is."""

    def __init__(self, descriptor: int) -> None:
        """Take a descriptor. Raises OSError where the operating system cannot report what is unread."""
        self._descriptor = descriptor
        # Both ends of a pipe report what lies in it; a socket reports what has not gone to the other end yet.
        self._question = termios.FIONREAD if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else termios.TIOCOUTQ
        self._lock = threading.Lock()
        self._written = 0
        self._taken = 0
        self._printed: deque[_Printed] = deque()
        self._told: dict[TopicPartition, int] = {}
        """The offset that was returned last; before that, the first row."""
        self._behind: dict[TopicPartition, int] = {}
        """The offset behind the last row."""
        self._unread()

    # -- a file ------------------------------------------------------------------------------------------------------

    def write(self, content: bytes) -> int:
        """Write bytes. Raises BrokenPipeError where the reader is gone."""
        view = memoryview(content)
        while view:
            size = os.write(self._descriptor, view[:_WRITE_BYTES_MAX])
            self._written += size
            view = view[size:]
        return len(content)

    def flush(self) -> None:
        """Do nothing: what is written is in the pipe already."""

    def fileno(self) -> int:
        return self._descriptor

    # -- its reader --------------------------------------------------------------------------------------------------

    def add(self, place: TopicPartition, offsets: Sequence[int], lines: Sequence[bytes]) -> None:
        """Add the lines that are about to be written next."""
        ends = [*accumulate(map(len, lines), initial=self._written)][1:]
        with self._lock:
            self._look()
            self._told.setdefault(place, offsets[0])
            self._behind[place] = offsets[-1] + 1
            self._printed.append(_Printed(place, offsets, ends))

    def first_untaken(self, place: TopicPartition) -> int | None:
        """Return the offset of the first record that is not certainly read; None where all that was printed is."""
        with self._lock:
            if place not in self._told:
                return None
            self._look()
            # This is checked last: what a reader took before it went away is in `_look` already.
            if not self.is_left():
                return self._say(place)
            return self._told[place]

    def is_left(self, within_ms: int = 0) -> bool:
        """Return whether the reader is gone, now or soon."""
        gone = select.poll()  # Each call has its own: no two threads may wait for one.
        gone.register(self._descriptor, 0)
        return bool(gone.poll(within_ms))

    def is_taken(self) -> bool:
        with self._lock:
            self._look()
            return not self._printed

    def wait_until_taken(self, limit_ms: int | None = None) -> None:
        """Return when all is taken, the reader is gone, or the time is over."""
        look_ms, waited_ms = _LOOK_MS_MIN, 0
        while not self.is_taken() and (limit_ms is None or waited_ms < limit_ms):
            if self.is_left(look_ms):
                return
            waited_ms += look_ms
            look_ms = min(2 * look_ms, _LOOK_MS_MAX)
        self.is_left(_LAST_LOOK_MS)

    def comes_again(self) -> int:
        """Return how many offsets were printed and do not count as read, by what was returned last."""
        with self._lock:
            return sum(behind - self._told[place] for place, behind in self._behind.items())

    def _say(self, place: TopicPartition) -> int | None:
        for printed in self._printed:
            if printed.place == place:
                rows = bisect_right(printed.ends, self._taken)
                self._told[place] = printed.offsets[rows]
                return self._told[place]
        self._told[place] = self._behind[place]
        return None

    def _look(self) -> None:
        """Update what is taken, never by too much: what is being written at the moment counts as unread."""
        self._taken = max(self._taken, self._written - self._unread())
        while self._printed and self._printed[0].ends[-1] <= self._taken:
            self._printed.popleft()

    def _unread(self) -> int:
        (size,) = struct.unpack("i", fcntl.ioctl(self._descriptor, self._question, bytes(4)))
        return int(size)


def pipe_of_stdout() -> Pipe | None:
    """Return the pipe at stdout; None where what is printed stays (a file, a terminal), or its reader cannot be
    observed."""
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
        return Pipe(descriptor) if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
    except (OSError, ValueError):
        return None
