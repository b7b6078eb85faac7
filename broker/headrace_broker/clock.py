"""The two clocks of the process: the one that the core gets as `now_ms`, and the one that records are stamped with."""

import time


def monotonic_ms() -> int:
    """Return the time for deadlines and ages; comparable within this process only."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return milliseconds since 1970, for timestamps; never for deadlines."""
    return time.time_ns() // 1_000_000
