"""How much memory this process may use before the kernel ends it: a container's limit, or what the machine has.

Read once, at the start. A limit that cannot be read is none.
"""

import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Of version 2 and of version 1; in a container they are those of the container itself."""


def memory_limit_bytes(cgroups: Path = _CGROUPS) -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for name in _FILES if (limit := _limit(cgroups / name)) is not None)])


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdecimal() else None
