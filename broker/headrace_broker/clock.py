"""The two clocks of the process: what the core is told as `now_ms`, and what records are stamped with."""

import time


def monotonic_ms() -> int:
    """For deadlines and ages; comparable within this process only."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, for timestamps; never for deadlines."""
    return time.time_ns() // 1_000_000
