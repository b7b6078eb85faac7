"""The resources that the logs of one broker share: the threads that wait for the disk, and the closed segments that
stay open. One of each per broker process; closed after the last log.

Syncs have threads of their own, so that readers of cold data never stand before them.

`OpenSegments` keeps those closed segments open that were read last, over all logs: a consumer that jumps about in a
long log finds its segments open, and a thousand logs together still keep to a share of the descriptors that the process
may have. It is used by every `SegmentSet`, from any thread; nobody waits for the disk while it is locked. A segment
that is let go of closes with its last reader.
"""

import asyncio
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from headrace.core.types import Offset

CLOSED_SEGMENTS_OPEN_MAX = 1024
"""Closed segments that a broker keeps open for its readers, or fewer where it may not open many files."""
SYNC_THREADS_MAX = 16
READ_THREADS_MAX = 8
"""Threads of their own: readers of cold data never stand before an `fdatasync`."""


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


P = ParamSpec("P")
T = TypeVar("T")


class StorageThreads:
    def __init__(self) -> None:
        self._syncs = ThreadPoolExecutor(SYNC_THREADS_MAX, "sync")
        self._reads = ThreadPoolExecutor(READ_THREADS_MAX, "read")
        self.open_segments = OpenSegments()

    async def sync(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what writes and syncs."""
        return await _run(self._syncs, call, *args, **kwargs)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what reads."""
        return await _run(self._reads, call, *args, **kwargs)

    def close(self) -> None:
        """Wait for what runs; nothing new is taken."""
        self._syncs.shutdown()
        self._reads.shutdown()


async def _run(pool: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, lambda: call(*args, **kwargs))
