"""The segments of a partition: the names of their files, when the log goes on in a new one, and their sparse indexes.

A segment is a run of batches in one `.log` file, named after the offset of its first record, with two sparse indexes
beside it. Only the last segment is written to; the others are closed and never change.

    .index      offset - base u32 | position u32 | crc32c of the 8 bytes before u32
    .timeindex  greatest time of a record below the offset i64 | offset - base u32 | crc32c of the 12 bytes before u32

An entry is due for each batch that starts at least `INDEX_INTERVAL_BYTES` after the last entry's, so the batches alone
decide where entries lie: recovery writes the same bytes again, and a reader that passes a batch that should have an
entry and has none knows that the index is damaged. The start of the segment has no entry, it is known. Every entry
carries a checksum, so that a lookup, which sees only a few entries, never uses a damaged one; and a lookup finds the
very batch that the entry names. A damaged index costs a rebuild, never data. `headrace_broker.storage` calls it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeVar

from crc32c import crc32c

from headrace.core.limits import INDEX_INTERVAL_BYTES, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, UNSYNCED_SEGMENTS_MAX
from headrace.core.records.header import BatchHeader
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.types import Offset

SEGMENT_BYTES_MIN = 16 << 10
"""The smallest `segment.bytes` that counts: a segment is three files, and not every small request is worth that
much."""


LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"

_DIGITS = 20
_CHECKSUM = struct.Struct("<I")
BEFORE_ALL_TIMES_MS: Final = -(1 << 63)
"""The greatest time of no record at all."""
Entry = TypeVar("Entry")


def segment_name(base_offset: Offset) -> str:
    """Return the name that the three files of a segment share; it sorts as the offsets do."""
    return f"{base_offset:0{_DIGITS}d}"


def parse_log_name(file_name: str) -> Offset | None:
    """Return the base offset of a `.log` file; None for every other name."""
    name = file_name.removesuffix(LOG_SUFFIX)
    if name == file_name or len(name) != _DIGITS or not (name.isascii() and name.isdecimal()):
        return None
    return Offset(int(name))


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings that a log takes from its topic's spec; they may be replaced while the log is open."""

    segment_bytes: int
    """The size of a segment, at least SEGMENT_BYTES_MIN where it comes from a topic."""
    segment_ms: int
    durability: Durability

    @classmethod
    def of_topic(cls, spec: TopicSpec) -> Self:
        return cls(max(spec.segment_bytes, SEGMENT_BYTES_MIN), spec.segment_ms, spec.durability)


class Growth(NamedTuple):
    """The content of the active segment, and what is about to be appended to it. Made for each append, so a tuple."""

    segment_bytes: int
    segment_offsets: int
    """The offsets from its base to the end of the log."""
    created_ms: int
    append_bytes: int
    append_offsets: int
    now_ms: int
    unsynced_segments: int
    """The number of segments that are closed, but not on disk yet."""


def roll_reason(growth: Growth, config: LogConfig) -> str:
    """Return why the append must go to a new segment; empty where it goes to the active one.

    One append is never split, so a segment is larger than `segment_bytes` where a single append is; and so it is where
    many closed segments wait for their sync already. An empty segment is never rolled: two segments cannot have one
    base offset.
    """
    if growth.segment_bytes == 0:
        return ""
    grown_bytes = growth.segment_bytes + growth.append_bytes
    if grown_bytes > SEGMENT_BYTES_MAX:
        return f"its index cannot name positions beyond {SEGMENT_BYTES_MAX}"
    if growth.segment_offsets + growth.append_offsets > SEGMENT_OFFSETS_MAX:
        return f"its index cannot name more than {SEGMENT_OFFSETS_MAX} offsets"
    if growth.unsynced_segments >= UNSYNCED_SEGMENTS_MAX:
        return ""
    if grown_bytes > config.segment_bytes:
        return f"{grown_bytes} bytes would pass segment.bytes {config.segment_bytes}"
    if growth.now_ms - growth.created_ms >= config.segment_ms:
        return f"it is {growth.now_ms - growth.created_ms} ms old, segment.time is {config.segment_ms} ms"
    return ""


_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct("<III"), struct.Struct("<qII")
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.size


class DamagedIndexError(Exception):
    """The index is not what its segment asks for: rebuild it from the segment."""


class OffsetEntry(NamedTuple):
    offset: Offset
    """The base offset of the batch that starts at `position`."""
    position: int

    def pack(self, base_offset: Offset) -> bytes:
        return _sealed(_OFFSET_ENTRY.pack(self.offset - base_offset, self.position, 0))

    @classmethod
    def unpack(cls, content: bytes | bytearray | memoryview, base_offset: Offset) -> "OffsetEntry":
        """Unpack an entry. Raises DamagedIndexError."""
        _check_seal(content, OFFSET_ENTRY_BYTES)
        delta, position, _ = _OFFSET_ENTRY.unpack(content)
        return cls(Offset(base_offset + delta), position)


class TimeEntry(NamedTuple):
    max_timestamp_ms: int
    """The greatest time of the segment's records below `offset`."""
    offset: Offset

    def pack(self, base_offset: Offset) -> bytes:
        return _sealed(_TIME_ENTRY.pack(self.max_timestamp_ms, self.offset - base_offset, 0))

    @classmethod
    def unpack(cls, content: bytes | bytearray | memoryview, base_offset: Offset) -> "TimeEntry":
        """Unpack an entry. Raises DamagedIndexError."""
        _check_seal(content, TIME_ENTRY_BYTES)
        max_timestamp_ms, delta, _ = _TIME_ENTRY.unpack(content)
        return cls(max_timestamp_ms, Offset(base_offset + delta))


@dataclass(slots=True)
class IndexCursor:
    """The progress of one segment's indexes; it gets every batch in order, and returns which entries are due."""

    indexed_position: int = 0
    """The position of the last entry's batch."""
    max_timestamp_ms: int = BEFORE_ALL_TIMES_MS
    """The greatest time of all batches so far."""

    def copy(self) -> "IndexCursor":
        return IndexCursor(self.indexed_position, self.max_timestamp_ms)

    def is_due(self, position: int) -> bool:
        """Return whether the batch at `position` has an entry."""
        return position - self.indexed_position >= INDEX_INTERVAL_BYTES

    def passed(self, header: BatchHeader, position: int) -> tuple[OffsetEntry, TimeEntry] | None:
        """Return the entries of the batch at `position`, where they are due."""
        entries = None
        if self.is_due(position):
            offset = header.base_offset
            entries = OffsetEntry(offset, position), TimeEntry(self.max_timestamp_ms, offset)
            self.indexed_position = position
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp_ms)
        return entries


def entries_while(count: int, read: Callable[[int], Entry], holds: Callable[[Entry], bool], guess: float) -> int:
    """Return how many of `count` entries `holds` is true for; it is true up to some entry, and for none after.

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
    """Return `entry` with its last field, which is 0, replaced by the checksum of the others."""
    body = entry[: -_CHECKSUM.size]
    return body + _CHECKSUM.pack(crc32c(body))


def _check_seal(content: bytes | bytearray | memoryview, entry_bytes: int) -> None:
    body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
    if len(content) != entry_bytes or _CHECKSUM.unpack(checksum)[0] != crc32c(body):
        raise DamagedIndexError(f"entry {bytes(content).hex()} does not have the checksum that its content asks for")
