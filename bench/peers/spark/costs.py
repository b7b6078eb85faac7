"""What a process and all that it has started have cost: Spark is a process of Python, a JVM and Python workers."""

import os
from collections import defaultdict
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def tree_cpu_s(pid: int) -> float:
    """Of the process, its children and theirs; of those that have ended, what they had taken then."""
    stats = _stats()
    children = defaultdict(list)
    for child, fields in stats.items():
        children[int(fields[1])].append(child)
    ticks, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        ticks += sum(map(int, stats[one][11:15]))
        waiting += children[one]
    return ticks / _TICKS_A_SECOND


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
