"""How fast followers that are far behind may be sent what they lack: bytes a second, over all of them together.

A broker has one, for its lifetime. Whoever wants to read asks when it may, and is then counted: a piece that was
granted is never taken back. What was not used is not saved up.
"""

from headrace.core.limits import REPLICATION_READ_BYTES

_PIECES_PER_SECOND = 4


class Throttle:
    def __init__(self, bytes_per_second: int | None) -> None:
        """None: as fast as it goes."""
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0

    @property
    def piece_bytes(self) -> int:
        """How much to read at a time: a slow rate is kept in small pieces."""
        if self._bytes_per_second is None:
            return REPLICATION_READ_BYTES
        return min(REPLICATION_READ_BYTES, self._bytes_per_second // _PIECES_PER_SECOND)

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next piece may be read."""
        return max(0, self._free_at_ms - now_ms)

    def took(self, nbytes: int, now_ms: int) -> None:
        if self._bytes_per_second is not None:
            self._free_at_ms = max(self._free_at_ms, now_ms) + nbytes * 1000 // self._bytes_per_second
