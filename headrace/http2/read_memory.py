"""Where a connection receives, while some of what came is still wanted. No I/O.

Whoever cuts frames out of a stream may keep views of what arrived until a frame is whole, instead of copying its pieces
to where they lie together. Memory is used again as soon as nothing in it is kept; while something is, what comes next
lies behind it, or in another buffer where that is full.

    begin ── received, nothing kept ──> begin
      └── received, something kept ──> behind it ── full ──> the next buffer ──> ... ── nothing kept ──> begin

Invariant: no byte is overwritten that came since what is kept began. Owned by one connection, for its lifetime.
"""

from collections.abc import Set as AbstractSet

from headrace.core.limits import H2_READ_BYTES, H2_READ_ROOM_BYTES_MIN


class ReadMemory:
    def __init__(self, buffer_bytes: int = H2_READ_BYTES, room_bytes_min: int = H2_READ_ROOM_BYTES_MIN) -> None:
        self._buffer_bytes = buffer_bytes
        self._room_bytes_min = room_bytes_min
        self._buffer = self._new()
        """What is received into now."""
        self._at = 0
        """Where in it."""
        self._full: list[memoryview] = []
        """Behind each other, before that one: something in them is kept."""
        self._spare: memoryview | None = None
        self._kept: AbstractSet[object] = frozenset()

    def room(self) -> memoryview:
        """For the next bytes: never empty, and the same until some were received."""
        if len(self._buffer) - self._at < self._room_bytes_min:
            self._full.append(self._buffer)
            self._buffer, self._spare = self._spare or self._new(), None
            self._at = 0
        return self._buffer[self._at :]

    def received(self, nbytes: int) -> memoryview:
        """So many came into the room."""
        begin, self._at = self._at, self._at + nbytes
        return self._buffer[begin : self._at]

    def handled(self, kept: AbstractSet[object]) -> None:
        """What is still wanted, by names: a new name stands for something that came with the last `received`."""
        if not kept & self._kept:
            self._spare = self._full[0] if self._full else self._spare
            self._full.clear()
        if not kept:
            self._at = 0
        self._kept = kept

    def _new(self) -> memoryview:
        return memoryview(bytearray(self._buffer_bytes))  # A view: asyncio's TLS slices it.
