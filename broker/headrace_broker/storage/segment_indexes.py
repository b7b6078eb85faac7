"""The two sparse indexes of one segment, by offset and by time, and the walk over batches that builds them again.

An `IndexFile` holds entries of a fixed size and is searched, never loaded. Entries are appended by the partition's
task; lookups may run in other threads meanwhile, because they go by `count`, which grows after the entry was written.

`SegmentIndexes` keeps both files in step: opened, resumed after a restart, written anew when they are damaged. A
`Segment` owns it, which replaces the object as a whole when the files are built again: a reader in another thread goes
on with the one that it has. Invariant: both files have `count` entries, entry by entry for the same batches.

`walk_batches` goes from batch to batch through a segment, by their headers alone. The functions raise OSError.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from headrace.core.errors import CorruptBatchError, CorruptLogError
from headrace.core.limits import BATCH_HEADER_BYTES, INDEX_INTERVAL_BYTES
from headrace.core.log.segments import (
    INDEX_SUFFIX,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TIME_INDEX_SUFFIX,
    DamagedIndexError,
    IndexCursor,
    OffsetEntry,
    TimeEntry,
    entries_while,
)
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import (
    TEMPORARY_SUFFIX,
    Buffer,
    FileHandle,
    ReadAt,
    fsync_directory,
    read_blocking,
    shown,
)

_WINDOW_BYTES = INDEX_INTERVAL_BYTES + BATCH_HEADER_BYTES
"""The size of one read, which takes a walker from an index entry to where the next one may be."""
Entry = TypeVar("Entry", OffsetEntry, TimeEntry)


def walk_batches(log: FileHandle, read: ReadAt, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from `position`, where one starts, to `end`, where one ends.

    Raises CorruptLogError where bytes are no batch header or a batch does not end by `end`, and what `read` raises.
    """
    while position < end:
        window = read(log, position, min(_WINDOW_BYTES, end - position))
        start, length = position, len(window)
        while position - start <= length - BATCH_HEADER_BYTES:
            header = _unpack_header(window, position - start, log, position)
            yield position, header
            position += header.batch_bytes
        if position > end or position == start:
            raise CorruptLogError(f"{shown(log.path)} ends within a batch at position {position}")


def _unpack_header(window: bytes | bytearray | memoryview, at: int, log: FileHandle, position: int) -> BatchHeader:
    try:
        header = BatchHeader.unpack(window, at)
    except CorruptBatchError as error:
        raise CorruptLogError(f"{shown(log.path)} is damaged at position {position}: {error.message}") from error
    if header.is_heartbeat:
        raise CorruptLogError(f"{shown(log.path)} is damaged at position {position}: a heartbeat, which no log holds")
    return header


@dataclass(frozen=True, slots=True)
class IndexKind(Generic[Entry]):
    suffix: str
    entry_bytes: int
    unpack: Callable[[Buffer, Offset], Entry]


OFFSET_INDEX: Final = IndexKind(INDEX_SUFFIX, OFFSET_ENTRY_BYTES, OffsetEntry.unpack)
TIME_INDEX: Final = IndexKind(TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES, TimeEntry.unpack)


class IndexFile(Generic[Entry]):
    __slots__ = ("_base_offset", "_kind", "count", "handle")

    def __init__(self, handle: FileHandle, kind: IndexKind[Entry], base_offset: Offset, count: int) -> None:
        self.handle = handle
        self.count = count
        self._kind: IndexKind[Entry] = kind
        self._base_offset = base_offset

    @classmethod
    def create(cls, path: Path, kind: IndexKind[Entry], base_offset: Offset) -> "IndexFile[Entry]":
        """Create an empty one, in place of any that is there. Raises OSError."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
        return cls(FileHandle(path, flags), kind, base_offset, 0)

    @classmethod
    def open(cls, path: Path, kind: IndexKind[Entry], base_offset: Offset) -> "IndexFile[Entry]":
        """Open it. Raises DamagedIndexError where it is missing or ends within an entry; OSError."""
        try:
            handle = FileHandle(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError as error:
            raise DamagedIndexError(f"{path.name} is missing") from error
        count, torn = divmod(handle.size(), kind.entry_bytes)
        if torn:
            raise DamagedIndexError(f"{path.name} ends within an entry")
        return cls(handle, kind, base_offset, count)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries. Raises OSError; then `cut` brings the file back to what it was."""
        self.handle.append([entry.pack(self._base_offset) for entry in entries])
        self.count += len(entries)

    def cut(self, count: int) -> None:
        """Keep the first `count` entries. Raises OSError."""
        end = count * self._kind.entry_bytes
        if self.handle.size() != end:
            self.handle.cut(end)
        self.count = count

    def count_while(self, read: ReadAt, holds: Callable[[Entry], bool], guess: float = 0.5) -> int:
        """Return how many entries `holds` is true for; see `entries_while`. Raises what `entry` raises."""
        return entries_while(self.count, lambda i: self.entry(read, i), holds, guess)

    def last_while(self, read: ReadAt, holds: Callable[[Entry], bool], guess: float = 0.5) -> Entry | None:
        """Return the last entry that `count_while` counts; None where it counts none. Raises what `entry` raises."""
        count = self.count_while(read, holds, guess)
        return self.entry(read, count - 1) if count else None

    def entry(self, read: ReadAt, i: int) -> Entry:
        """Return an entry. Raises DamagedIndexError, and what `read` raises."""
        size = self._kind.entry_bytes
        entry: Entry = self._kind.unpack(read(self.handle, i * size, size), self._base_offset)
        return entry


class SegmentIndexes:
    __slots__ = ("by_offset", "by_time", "cursor")

    def __init__(self, by_offset: IndexFile[OffsetEntry], by_time: IndexFile[TimeEntry]) -> None:
        self.by_offset = by_offset
        self.by_time = by_time
        self.cursor = IndexCursor()

    @classmethod
    def create(cls, name: Path, base_offset: Offset, suffix: str = "") -> "SegmentIndexes":
        """Create empty ones, in place of any that are there; `name` is the segment's path without suffix."""
        return cls(
            IndexFile.create(_index_path(name, OFFSET_INDEX.suffix + suffix), OFFSET_INDEX, base_offset),
            IndexFile.create(_index_path(name, TIME_INDEX.suffix + suffix), TIME_INDEX, base_offset),
        )

    @classmethod
    def open(cls, name: Path, base_offset: Offset) -> "SegmentIndexes":
        """Open them as they are. Raises DamagedIndexError where that shows at once."""
        by_offset = IndexFile.open(_index_path(name, OFFSET_INDEX.suffix), OFFSET_INDEX, base_offset)
        by_time = IndexFile.open(_index_path(name, TIME_INDEX.suffix), TIME_INDEX, base_offset)
        if by_offset.count != by_time.count:
            raise DamagedIndexError(f"{by_offset.count} entries by offset, {by_time.count} by time")
        return cls(by_offset, by_time)

    @property
    def count(self) -> int:
        return self.by_offset.count

    def add(self, headers: Iterable[BatchHeader], position: int) -> None:
        """Add batches that follow each other in the segment from `position`. After an OSError call `cut`."""
        due = []
        for header in headers:
            entries = self.cursor.passed(header, position)
            if entries:
                due.append(entries)
            position += header.batch_bytes
        if due:
            self.by_offset.append([entry for entry, _ in due])
            self.by_time.append([entry for _, entry in due])

    def cut(self, count: int, cursor: IndexCursor) -> None:
        """Cut back to `count` entries and to what `cursor` was then."""
        self.by_offset.cut(count)
        self.by_time.cut(count)
        self.cursor = cursor

    def sync(self) -> None:
        self.by_offset.handle.sync_data()
        self.by_time.handle.sync_data()

    def forget_from(self, log: FileHandle, base_offset: Offset, position: int) -> Offset:
        """Stop counting the entries from `position` on, and return the offset to which the batches before it lead.

        The files stay as they are until `trim`. Reads only the batches after the last entry. Raises DamagedIndexError
        where entries and batches disagree.
        """
        count = self.by_offset.count_while(read_blocking, lambda entry: entry.position < position)
        offset, cursor = base_offset, IndexCursor()
        if count:
            entry = self.by_offset.entry(read_blocking, count - 1)
            time_entry = self.by_time.entry(read_blocking, count - 1)
            offset, cursor = entry.offset, IndexCursor(entry.position, time_entry.max_timestamp_ms)
        try:
            for at, header in walk_batches(log, read_blocking, cursor.indexed_position, position):
                if header.base_offset != offset or cursor.passed(header, at):
                    raise DamagedIndexError(f"entry {count - 1} and the batch at position {at} disagree")
                offset = header.next_offset
        except CorruptLogError as error:
            raise DamagedIndexError(f"entry {count - 1} leads to no batch: {error.message}") from error
        self.by_offset.count = self.by_time.count = count
        self.cursor = cursor
        return offset

    def trim(self) -> None:
        """Cut the files to what is counted."""
        self.cut(self.count, self.cursor)


def rebuild_indexes(name: Path, log: FileHandle, base_offset: Offset, end: int) -> tuple[SegmentIndexes, int, Offset]:
    """Write both indexes of a segment anew from the batches below `end`, and put them on disk.

    It returns them with the place to which the batches lead: (`end`, the offset there), or the first damage before it.
    """
    built = SegmentIndexes.create(name, base_offset, TEMPORARY_SUFFIX)
    position, offset = 0, base_offset
    try:
        for at, header in walk_batches(log, read_blocking, 0, end):
            if header.base_offset != offset:
                break
            built.add([header], at)
            position, offset = at + header.batch_bytes, header.next_offset
    except CorruptLogError:
        pass  # The caller sees it by the place.
    built.sync()
    for index, kind in ((built.by_offset, OFFSET_INDEX), (built.by_time, TIME_INDEX)):
        os.rename(index.handle.path, _index_path(name, kind.suffix))
        index.handle.path = _index_path(name, kind.suffix)
    fsync_directory(name.parent)
    return built, position, offset


def _index_path(name: Path, suffix: str) -> Path:
    return name.with_name(name.name + suffix)
