"""The two sparse indexes of a segment: offset -> position (`.index`), and time -> offset (`.timeindex`).

An entry is due for each batch that starts at least `INDEX_INTERVAL_BYTES` after the last entry's, so where entries lie
follows from the batches alone: recovery writes the same bytes again, and a reader that passes a batch that should have
an entry and has none knows that the index is damaged. The start of the segment has no entry, it is known.

Every entry carries a checksum, so that a lookup, which sees only a few entries of a file, never believes a damaged one.
Whoever follows an entry also finds there the very batch that it names, or the index is damaged. A damaged index costs
a rebuild, never data.

    .index      offset - base u32 | position u32 | crc32c of the 8 bytes before u32
    .timeindex  greatest time of a record below the offset i64 | offset - base u32 | crc32c of the 12 bytes before u32
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from headrace.core.limits import INDEX_INTERVAL_BYTES
from headrace.core.records.header import BatchHeader
from headrace.core.slotted import dataclass
from headrace.core.types import Offset

_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct("<III"), struct.Struct("<qII")
_CHECKSUM = struct.Struct("<I")
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.size

BEFORE_ALL_TIMES_MS: Final = -(1 << 63)
"""Greatest time of no record at all."""

Entry = TypeVar("Entry")


class DamagedIndexError(Exception):
    """An index is not what its segment asks for: rebuild it from the segment."""


class OffsetEntry(NamedTuple):
    offset: Offset
    """Base offset of the batch that starts at `position`."""
    position: int

    def pack(self, base_offset: Offset) -> bytes:
        return _sealed(_OFFSET_ENTRY.pack(self.offset - base_offset, self.position, 0))

    @classmethod
    def unpack(cls, content: bytes | bytearray | memoryview, base_offset: Offset) -> "OffsetEntry":
        """Raises DamagedIndexError."""
        _check_seal(content, OFFSET_ENTRY_BYTES)
        delta, position, _ = _OFFSET_ENTRY.unpack(content)
        return cls(Offset(base_offset + delta), position)


class TimeEntry(NamedTuple):
    max_timestamp_ms: int
    """Greatest time of the segment's records below `offset`."""
    offset: Offset

    def pack(self, base_offset: Offset) -> bytes:
        return _sealed(_TIME_ENTRY.pack(self.max_timestamp_ms, self.offset - base_offset, 0))

    @classmethod
    def unpack(cls, content: bytes | bytearray | memoryview, base_offset: Offset) -> "TimeEntry":
        """Raises DamagedIndexError."""
        _check_seal(content, TIME_ENTRY_BYTES)
        max_timestamp_ms, delta, _ = _TIME_ENTRY.unpack(content)
        return cls(max_timestamp_ms, Offset(base_offset + delta))


@dataclass(slots=True)
class IndexCursor:
    """How far the indexes of one segment have come; fed every batch in order, it says which entries are due."""

    indexed_position: int = 0
    """Position of the last entry's batch."""
    max_timestamp_ms: int = BEFORE_ALL_TIMES_MS
    """Of all batches so far."""

    def copy(self) -> "IndexCursor":
        return IndexCursor(self.indexed_position, self.max_timestamp_ms)

    def is_due(self, position: int) -> bool:
        """Whether the batch at `position` has an entry."""
        return position - self.indexed_position >= INDEX_INTERVAL_BYTES

    def passed(self, header: BatchHeader, position: int) -> tuple[OffsetEntry, TimeEntry] | None:
        """The entries of the batch at `position`, where they are due."""
        entries = None
        if self.is_due(position):
            offset = header.base_offset
            entries = OffsetEntry(offset, position), TimeEntry(self.max_timestamp_ms, offset)
            self.indexed_position = position
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp_ms)
        return entries


def entries_while(count: int, read: Callable[[int], Entry], holds: Callable[[Entry], bool], guess: float) -> int:
    """How many of `count` entries `holds` is true for; it is true up to some entry, and for none after.

    `guess` is about which part of them, 0 to 1: entries lie so evenly that a good guess saves most reads. The last
    entry is read first, because most readers are near the end; then O(log) of how far off the guess is.
    """
    if count == 0 or holds(read(count - 1)):
        return count
    low, high, top = 0, count - 1, count - 1
    probe, step = int(guess * top), 1
    while low < high:
        probe = min(max(probe, low), high - 1)
        if holds(read(probe)):
            low = probe + 1
        else:
            high = probe
        if high == top:
            probe = low + step
        elif low == 0:
            probe = high - 1 - step
        else:
            probe = (low + high) // 2
        step *= 2
    return low


def _sealed(entry: bytes) -> bytes:
    """`entry` with its last field, which is 0, replaced by the checksum of the others."""
    body = entry[: -_CHECKSUM.size]
    return body + _CHECKSUM.pack(crc32c(body))


def _check_seal(content: bytes | bytearray | memoryview, entry_bytes: int) -> None:
    body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
    if len(content) != entry_bytes or _CHECKSUM.unpack(checksum)[0] != crc32c(body):
        raise DamagedIndexError(f"entry {bytes(content).hex()} does not have the checksum that its content asks for")
