"""Which closed segments stay open for readers, over all logs of a broker: those that were read last.

A consumer that jumps about in a long log finds its segments open, and a thousand logs together still keep to a share of
the descriptors that the process may have. One per process, used by every `SegmentSet`, from any thread; nobody waits
for the disk while it is locked. A segment that is let go of closes with its last reader.
"""

import resource
import threading
import weakref
from collections import OrderedDict
from typing import Protocol

from headrace.core.limits import CLOSED_SEGMENTS_OPEN_MAX
from headrace.core.types import Offset

_FILES_SHARE = 12
"""A segment is three files; a quarter of all descriptors are for closed segments at most."""


class Owner(Protocol):
    """A log's `SegmentSet`."""

    def let_go(self, base: Offset) -> None: ...


class OpenSegments:
    def __init__(self, segments_max: int = CLOSED_SEGMENTS_OPEN_MAX) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limited = soft != resource.RLIM_INFINITY
        self._segments_max = min(segments_max, max(1, soft // _FILES_SHARE)) if limited else segments_max
        self._lock = threading.Lock()
        self._used: OrderedDict[tuple[int, Offset], weakref.ref[Owner]] = OrderedDict()
        """By log and base offset, in the order of use. Logs that are closed leave their places behind for a while."""

    def note(self, owner: Owner, base: Offset) -> None:
        """The segment is open and in use just now; another may have to go."""
        key = (id(owner), base)
        with self._lock:
            self._used[key] = weakref.ref(owner)
            self._used.move_to_end(key)
            oldest = self._used.popitem(last=False) if len(self._used) > self._segments_max else None
        if oldest is not None:
            (_, gone), log = oldest
            former = log()
            if former is not None:
                former.let_go(gone)
