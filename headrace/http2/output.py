"""What one connection has to write, as a list of buffers: heads and small payloads joined, large payloads as they are.

Joining what is small saves system calls; not joining what is large saves the copy. Owned by one `Engine`. Payloads are
kept by reference until they are taken, and by whoever takes them until they are written: they must not change before.
"""

from typing import TypeAlias

from headrace.core import limits

Buffer: TypeAlias = bytes | bytearray | memoryview


class Output:
    def __init__(self) -> None:
        self._small: list[Buffer] = []
        """What becomes one buffer, once something large or the end follows."""
        self._buffers: list[Buffer] = []

    def put(self, frame: bytes) -> None:
        self._small.append(frame)

    def put_payload(self, buffers: tuple[Buffer, ...]) -> None:
        """The payload of the frame whose head was put just before."""
        for buffer in buffers:
            if len(buffer) < limits.H2_JOINED_BYTES_MAX:
                self._small.append(buffer)
            else:
                self._join_small()
                self._buffers.append(buffer)

    def take(self) -> list[Buffer]:
        """All of it, in order; none of the buffers is empty."""
        self._join_small()
        buffers, self._buffers = self._buffers, []
        return buffers

    def _join_small(self) -> None:
        if joined := b"".join(self._small):
            self._buffers.append(joined)
        self._small.clear()
