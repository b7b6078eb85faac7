"""The clients' clock, in the unit that their pure modules take."""

import time


def now_ms() -> int:
    """Of a clock that never goes back: for waits and time limits."""
    return time.monotonic_ns() // 1_000_000


def epoch_ms() -> int:
    """Since 1970 UTC: for the times of records."""
    return time.time_ns() // 1_000_000
