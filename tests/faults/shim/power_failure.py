"""The power goes: what dead processes had changed and not synced is taken back, from the journal of `faulty_disk.c`.

Strictly as POSIX promises: data is on disk once its file was synced, a name once its directory was. Entries that a sync
covers stay; all others are undone, the latest first. With a seed some of them stay: of each directory's names those up
to some moment, of a file that was only appended to some first part of it, or pages here and there, zeros between.

The processes are dead and nobody else changes the files. Afterwards the journal is empty, and `boot-id` is gone,
because no kernel survives.
"""

import os
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

_ENTRY: Final = struct.Struct("<IIIIQQQQQQ")
_MAGIC: Final = 0x4A444648
_PAGE_BYTES: Final = 4096


class Kind(IntEnum):
    WROTE, CUT, SYNCED, CREATED, UNLINKED, RENAMED, REMOVED_DIRECTORY, GONE = range(1, 9)


_NAMES: Final = frozenset({Kind.CREATED, Kind.UNLINKED, Kind.RENAMED, Kind.REMOVED_DIRECTORY})


class Entry(NamedTuple):
    """`struct entry` of `faulty_disk.c`."""

    start: int
    kind: Kind
    inode: int
    at: int
    size: int
    child: int
    victim: int
    payload: bytes

    @property
    def names(self) -> list[str]:
        return [os.fsdecode(name) for name in self.payload.split(b"\0")[:-1]]


@dataclass(slots=True)
class Lost:
    """What the disk had not got."""

    changes: int = 0
    """To files and names, undone."""
    bytes: int = 0
    """That files are shorter by."""
    files: set[str] = field(default_factory=set)
    """Whose content is not what it was, below the root."""


def lose_power(root: Path, seed: int | None = None) -> Lost:
    """Of what lies below `root`, a directory that a `FaultyDisk` was made for."""
    place = root.with_name(f"{root.name}.faulty")
    chance = None if seed is None else random.Random(seed)
    undoing = _Undoing(root, place / "graves", chance)
    entries = _volatile(list(_read(place / "journal")))
    for entry in reversed(_undone(entries, chance)):
        undoing.undo(entry)
    undoing.settle()
    (root / "boot-id").unlink(missing_ok=True)
    (place / "journal").unlink(missing_ok=True)
    shutil.rmtree(place / "graves")
    (place / "graves").mkdir()
    return undoing.lost


def _read(journal: Path) -> Iterator[Entry]:
    content, start = journal.read_bytes() if journal.exists() else b"", 0
    while start < len(content):
        magic, size, kind, _, inode, at, old_size, child, victim, _ = _ENTRY.unpack_from(content, start)
        assert magic == _MAGIC, f"{journal} is damaged at {start}"
        payload = content[start + _ENTRY.size : start + size]
        yield Entry(start, Kind(kind), inode, at, old_size, child, victim, payload)
        start += size


def _volatile(entries: list[Entry]) -> list[Entry]:
    """Those that no sync covers, in order."""
    synced = dict[int, int]()
    """By inode, up to where in the journal."""
    found = list[Entry]()
    for entry in reversed(entries):
        match entry.kind:
            case Kind.SYNCED:
                synced[entry.inode] = max(synced.get(entry.inode, 0), entry.at)
            case Kind.GONE:
                synced[entry.inode] = sys.maxsize
            case _ if entry.start >= synced.get(entry.inode, 0):
                found.append(entry)
    return found[::-1]


def _undone(entries: list[Entry], chance: random.Random | None) -> list[Entry]:
    """Those that are undone: of each directory, what came after some moment of chance."""
    if chance is None:
        return entries
    names = dict[int, list[Entry]]()
    for entry in entries:
        if entry.kind in _NAMES:
            names.setdefault(entry.inode, []).append(entry)
    kept = {id(entry) for group in names.values() for entry in group[: chance.randint(0, len(group))]}
    return [entry for entry in entries if id(entry) not in kept]


class _Undoing:
    def __init__(self, root: Path, graves: Path, chance: random.Random | None) -> None:
        self.lost = Lost()
        self._root = root
        self._graves = graves
        self._chance = chance
        self._paths = dict[int, Path]()
        self._appended = dict[int, tuple[int, bytes]]()
        """By inode, what is cut off from files that were only appended to, and where."""
        self._rewritten = set[int]()
        self._look()

    def undo(self, entry: Entry) -> None:
        self.lost.changes += 1
        match entry.kind:
            case Kind.WROTE | Kind.CUT:
                self._restore_content(entry)
            case Kind.CREATED:
                self._remove_name(entry)
            case Kind.RENAMED:
                self._rename_back(entry)
            case _:
                self._dig_out(entry.child, self._named(entry.inode, entry.names[0]))

    def settle(self) -> None:
        """Some of what was appended had reached the disk."""
        for inode, (size, tail) in self._appended.items():
            path = self._paths.get(inode)
            if path is None or not path.exists():
                continue
            if self._chance is not None and inode not in self._rewritten:
                kept = _some_of(tail, size, self._chance)
                with open(path, "r+b") as file:
                    file.seek(size)
                    file.write(kept)
                self.lost.bytes -= len(kept)
            self.lost.bytes += len(tail)

    def _restore_content(self, entry: Entry) -> None:
        path = self._paths.get(entry.inode)
        if path is None:
            return  # It has no name any more.
        with open(path, "r+b") as file:
            content_bytes = file.seek(0, os.SEEK_END)
            if content_bytes > entry.size:
                file.seek(entry.size)
                _, after = self._appended.get(entry.inode, (0, b""))
                self._appended[entry.inode] = (entry.size, file.read() + after)
                file.truncate(entry.size)
            if entry.payload:
                self._rewritten.add(entry.inode)
                file.seek(entry.at)
                file.write(entry.payload)
            file.truncate(entry.size)
        self.lost.files.add(os.path.relpath(path, self._root))

    def _remove_name(self, entry: Entry) -> None:
        path = self._named(entry.inode, entry.names[0])
        if path is None or not path.exists() or path.lstat().st_ino != entry.child:
            return
        self.lost.files.add(os.path.relpath(path, self._root))
        # What lies in a directory whose name is lost is lost with it; what belongs elsewhere is there by now.
        if path.is_dir():
            shutil.rmtree(path)
        else:
            os.unlink(path)
        self._paths.pop(entry.child, None)

    def _rename_back(self, entry: Entry) -> None:
        old_name, new_name = entry.names
        old, new = self._named(entry.at, old_name), self._named(entry.inode, new_name)
        if old is not None and new is not None and new.exists() and new.lstat().st_ino == entry.child:
            os.rename(new, old)
            self._moved(entry.child, old)
        if entry.victim:
            self._dig_out(entry.victim, new)

    def _dig_out(self, inode: int, path: Path | None) -> None:
        grave = self._graves / str(inode)
        if path is not None and grave.exists():
            os.rename(grave, path)
            self._moved(inode, path)

    def _named(self, directory: int, name: str) -> Path | None:
        place = self._paths.get(directory)
        return place / name if place is not None else None

    def _moved(self, inode: int, path: Path) -> None:
        self._paths[inode] = path
        if path.is_dir():
            self._look()

    def _look(self) -> None:
        self._paths = {grave.lstat().st_ino: grave for grave in self._graves.iterdir()}
        self._paths[self._root.stat().st_ino] = self._root
        for directory, directories, files in os.walk(self._root):
            for name in (*directories, *files):
                path = Path(directory, name)
                self._paths[path.lstat().st_ino] = path


def _some_of(tail: bytes, position: int, chance: random.Random) -> bytes:
    """Of what was written at `position`: nothing, a first part, or its pages here and there."""
    match chance.choice(["nothing", "first", "pages"]):
        case "nothing":
            return b""
        case "first":
            return tail[: chance.randint(0, len(tail))]
        case _:
            kept = bytearray(tail)
            for page in range(position // _PAGE_BYTES, (position + len(tail)) // _PAGE_BYTES + 1):
                start, end = (max(0, at - position) for at in (page * _PAGE_BYTES, (page + 1) * _PAGE_BYTES))
                if chance.random() < 1 / 3:
                    kept[start:end] = bytes(len(kept[start:end]))
            return bytes(kept)


if __name__ == "__main__":
    sys.stdout.write(f"{lose_power(Path(sys.argv[1]).absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else None)}\n")
