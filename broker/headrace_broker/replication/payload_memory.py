"""Where a follower receives batches: into memory that is used again and again."""

from typing import Final

from headrace.core.limits import REPLICATION_READ_BYTES

_KEPT_BYTES_MAX: Final = 2 * REPLICATION_READ_BYTES
"""A larger batch gets memory of its own."""


class PayloadMemory:
    """For one payload at a time: whatever was received is appended before the next one begins.

    New memory for each would be filled with zeros first, which costs as much as to receive what comes.
    """

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def __call__(self, size: int) -> memoryview:
        if size > _KEPT_BYTES_MAX:
            return memoryview(bytearray(size))
        if size > len(self._memory):
            self._memory = memoryview(bytearray(min(2 * size, _KEPT_BYTES_MAX)))
        return self._memory[:size]
