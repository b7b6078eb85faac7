"""A process that may open only so many more files."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count + 2, before[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
