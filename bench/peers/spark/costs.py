"""What a process and all that it has started have cost: Spark is a process of Python, a JVM and Python workers.

The kernel forgets the time of Spark's Python workers when they end, because nobody waits for them. So the tree is
looked at all the time, and what was last seen of each process counts.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.25
"""A process that ends is short of what it took since the last look; a look takes some milliseconds."""


class Tree:
    """Of the process, its children and theirs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[tuple[int, str], int] = {}
        """Ticks by process id and start: ids are used again."""
        self._looking = threading.Lock()

    def cpu_s(self) -> float:
        with self._looking:
            self._seen |= _ticks_below(self._pid)
            return sum(self._seen.values()) / _TICKS_A_SECOND

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looked at all the time, by a thread."""
        over = threading.Event()
        watching = threading.Thread(target=self._watch, args=(over,), daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            self.cpu_s()


def _ticks_below(pid: int) -> dict[tuple[int, str], int]:
    stats, found = _stats(), {}
    children = defaultdict(list)
    for child, fields in stats.items():
        children[int(fields[1])].append(child)
    waiting = [pid] if pid in stats else []
    while waiting:
        one = waiting.pop()
        user, system = stats[one][11:13]
        found[one, stats[one][19]] = int(user) + int(system)
        waiting += children[one]
    return found


def _stats() -> dict[int, list[str]]:
    """Of all processes: what /proc says from the state on. The name before it may hold spaces."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # It has just ended.
                continue
    return found
