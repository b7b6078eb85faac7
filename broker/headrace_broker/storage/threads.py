"""What the logs of one broker share: the threads that wait for the disk, and the closed segments that stay open.

Syncs have threads of their own, so that readers of cold data never stand before them. One per broker process; closed
after the last log.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from headrace.core.limits import READ_THREADS_MAX, SYNC_THREADS_MAX
from headrace_broker.storage.open_segments import OpenSegments

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
