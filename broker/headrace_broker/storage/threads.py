"""The resources that the logs of one broker share: the threads that wait for the disk, and the closed segments that
stay open. One of each per broker process; closed after the last log.

Syncs have threads of their own, so that readers of cold data never stand before them.

`OpenSegments` keeps those closed segments open that were read last, over all logs: a consumer that jumps about in a
long log finds its segments open, and a thousand logs together still keep to a share of the descriptors that the process
may have. It is used by every `SegmentSet`, from any thread; no thread waits for the disk while it is locked. A segment
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
"""The number of closed segments that a broker keeps open for its readers, or fewer where it may not open many files."""
SYNC_THREADS_MAX = 16
READ_THREADS_MAX = 8
"""The number of threads of their own for reads: readers of cold data never wait behind an `fdatasync`."""


_FILES_SHARE = 12
"""The share of descriptors for a segment: it is three files, and a quarter of all descriptors are for closed segments
at most."""
P = ParamSpec("P")
T = TypeVar("T")


class Owner(Protocol):
    """The owner of an open segment: a log's `SegmentSet`."""

    def let_go(self, base: Offset) -> None: ...


class OpenSegments:
    def __init__(self, segments_max: int = CLOSED_SEGMENTS_OPEN_MAX) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limited = soft != resource.RLIM_INFINITY
        self._segments_max = min(segments_max, max(1, soft // _FILES_SHARE)) if limited else segments_max
        self._lock = threading.Lock()
        self._used: OrderedDict[tuple[int, Offset], weakref.ref[Owner]] = OrderedDict()
        """The segments by log and base offset, in the order of use. Closed logs leave their places behind for a
        while."""

    def note(self, owner: Owner, base: Offset) -> None:
        """Note that the segment is open and in use just now; another may have to go."""
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


class StorageThreads:
    def __init__(self) -> None:
        self._syncs = ThreadPoolExecutor(SYNC_THREADS_MAX, "sync")
        self._reads = ThreadPoolExecutor(READ_THREADS_MAX, "read")
        self.open_segments = OpenSegments()

    async def sync(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that writes and syncs."""
        return await _run(self._syncs, call, *args, **kwargs)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that reads."""
        return await _run(self._reads, call, *args, **kwargs)

    def close(self) -> None:
        """Wait for what runs; no new call is taken."""
        self._syncs.shutdown()
        self._reads.shutdown()


async def _run(pool: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, lambda: call(*args, **kwargs))
