"""One sparse index of one segment: a file of fixed-size entries that is searched, never loaded.

Owned by a `Segment`. Entries are appended by the partition's task; lookups may run in other threads meanwhile, because
they go by `count`, which grows after the entry was written.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from headrace.core.log.segments import (
    INDEX_SUFFIX,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TIME_INDEX_SUFFIX,
    DamagedIndexError,
    OffsetEntry,
    TimeEntry,
    entries_while,
)
from headrace.core.types import Offset
from headrace_broker.storage.disk import Buffer, FileHandle, ReadAt

Entry = TypeVar("Entry", OffsetEntry, TimeEntry)


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
        """An empty one, in place of whatever is there. Raises OSError."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
        return cls(FileHandle(path, flags), kind, base_offset, 0)

    @classmethod
    def open(cls, path: Path, kind: IndexKind[Entry], base_offset: Offset) -> "IndexFile[Entry]":
        """Raises DamagedIndexError where it is missing or ends within an entry; OSError."""
        try:
            handle = FileHandle(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError as error:
            raise DamagedIndexError(f"{path.name} is missing") from error
        count, torn = divmod(handle.size(), kind.entry_bytes)
        if torn:
            raise DamagedIndexError(f"{path.name} ends within an entry")
        return cls(handle, kind, base_offset, count)

    def append(self, entries: Sequence[Entry]) -> None:
        """Raises OSError; then `cut` brings the file back to what it was."""
        self.handle.append([entry.pack(self._base_offset) for entry in entries])
        self.count += len(entries)

    def cut(self, count: int) -> None:
        """Keep the first `count` entries. Raises OSError."""
        end = count * self._kind.entry_bytes
        if self.handle.size() != end:
            self.handle.cut(end)
        self.count = count

    def count_while(self, read: ReadAt, holds: Callable[[Entry], bool], guess: float = 0.5) -> int:
        """How many entries `holds` is true for; see `entries_while`. Raises as `entry`."""
        return entries_while(self.count, lambda i: self.entry(read, i), holds, guess)

    def last_while(self, read: ReadAt, holds: Callable[[Entry], bool], guess: float = 0.5) -> Entry | None:
        """The last entry that `count_while` counts; None where it counts none. Raises as `entry`."""
        count = self.count_while(read, holds, guess)
        return self.entry(read, count - 1) if count else None

    def entry(self, read: ReadAt, i: int) -> Entry:
        """Raises DamagedIndexError, and what `read` raises."""
        size = self._kind.entry_bytes
        entry: Entry = self._kind.unpack(read(self.handle, i * size, size), self._base_offset)
        return entry
