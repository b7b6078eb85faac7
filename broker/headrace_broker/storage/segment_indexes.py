"""Both indexes of one segment, kept in step: opened, resumed after a restart, written anew when they are damaged.

Owned by a `Segment`, which replaces the object as a whole when the files are built again: a reader in another thread
goes on with the one that it has. Invariant: both files have `count` entries, entry by entry for the same batches.
Raises OSError.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from headrace.core.errors import CorruptLogError
from headrace.core.log.segments import DamagedIndexError, IndexCursor, OffsetEntry, TimeEntry
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import TEMPORARY_SUFFIX, FileHandle, fsync_directory, read_blocking
from headrace_broker.storage.index_file import OFFSET_INDEX, TIME_INDEX, IndexFile
from headrace_broker.storage.walk import walk


class SegmentIndexes:
    __slots__ = ("by_offset", "by_time", "cursor")

    def __init__(self, by_offset: IndexFile[OffsetEntry], by_time: IndexFile[TimeEntry]) -> None:
        self.by_offset = by_offset
        self.by_time = by_time
        self.cursor = IndexCursor()

    @classmethod
    def create(cls, name: Path, base_offset: Offset, suffix: str = "") -> "SegmentIndexes":
        """Empty ones, in place of whatever is there; `name` is the segment's path without suffix."""
        return cls(
            IndexFile.create(_path(name, OFFSET_INDEX.suffix + suffix), OFFSET_INDEX, base_offset),
            IndexFile.create(_path(name, TIME_INDEX.suffix + suffix), TIME_INDEX, base_offset),
        )

    @classmethod
    def open(cls, name: Path, base_offset: Offset) -> "SegmentIndexes":
        """As they are. Raises DamagedIndexError where that shows at once."""
        by_offset = IndexFile.open(_path(name, OFFSET_INDEX.suffix), OFFSET_INDEX, base_offset)
        by_time = IndexFile.open(_path(name, TIME_INDEX.suffix), TIME_INDEX, base_offset)
        if by_offset.count != by_time.count:
            raise DamagedIndexError(f"{by_offset.count} entries by offset, {by_time.count} by time")
        return cls(by_offset, by_time)

    @property
    def count(self) -> int:
        return self.by_offset.count

    def add(self, headers: Iterable[BatchHeader], position: int) -> None:
        """These batches follow each other in the segment from `position`. After an OSError call `cut`."""
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
        """Back to `count` entries and to what `cursor` was then."""
        self.by_offset.cut(count)
        self.by_time.cut(count)
        self.cursor = cursor

    def sync(self) -> None:
        self.by_offset.handle.sync_data()
        self.by_time.handle.sync_data()

    def forget_from(self, log: FileHandle, base_offset: Offset, position: int) -> Offset:
        """Do not count the entries from `position` on; returns the offset to which the batches before it lead.

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
            for at, header in walk(log, read_blocking, cursor.indexed_position, position):
                if header.base_offset != offset or cursor.passed(header, at):
                    raise DamagedIndexError(f"entry {count - 1} and the batch at position {at} disagree")
                offset = header.next_offset
        except CorruptLogError as error:
            raise DamagedIndexError(f"entry {count - 1} leads to no batch: {error.message}") from error
        self.by_offset.count = self.by_time.count = count
        self.cursor = cursor
        return offset

    def trim(self) -> None:
        """The files hold what is counted, and no more."""
        self.cut(self.count, self.cursor)


def rebuild_indexes(name: Path, log: FileHandle, base_offset: Offset, end: int) -> tuple[SegmentIndexes, int, Offset]:
    """Write both indexes of a segment anew from the batches below `end`, and put them on disk.

    Returns them with the place to which the batches lead: (`end`, the offset there), or the first damage before it.
    """
    built = SegmentIndexes.create(name, base_offset, TEMPORARY_SUFFIX)
    position, offset = 0, base_offset
    try:
        for at, header in walk(log, read_blocking, 0, end):
            if header.base_offset != offset:
                break
            built.add([header], at)
            position, offset = at + header.batch_bytes, header.next_offset
    except CorruptLogError:
        pass  # the caller sees it by the place
    built.sync()
    for index, kind in ((built.by_offset, OFFSET_INDEX), (built.by_time, TIME_INDEX)):
        os.rename(index.handle.path, _path(name, kind.suffix))
        index.handle.path = _path(name, kind.suffix)
    fsync_directory(name.parent)
    return built, position, offset


def _path(name: Path, suffix: str) -> Path:
    return name.with_name(name.name + suffix)
