"""A log file that another process writes: its last lines, then whatever comes, in the next file where it is rolled.

Owns the open file until `close`. Only a bounded piece of it is ever in memory. A file that is not there yet is an empty
one. Called by `logs`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headrace.core.limits import DEV_LOG_LINE_BYTES_MAX, DEV_LOG_READ_BYTES


class Tail:
    def __init__(self, path: Path, last: int | None) -> None:
        """Begins `last` lines before the end; None: at the beginning."""
        self._path = path
        self._file = _opened(path)
        self._rest = b""
        """The line that has no end yet."""
        if self._file is not None and last is not None:
            self._file.seek(start_of_last(self._file, last))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new_lines(self) -> Iterator[list[bytes]]:
        """Whole lines that have come since the last call, in pieces."""
        yield from self._read()
        if self._was_left():
            self.close()
            self._file = _opened(self._path)
            yield [self.take_rest()]
            yield from self._read()

    def take_rest(self) -> bytes:
        """What has come of a line without an end; it is not told again."""
        rest, self._rest = self._rest, b""
        return rest

    def _read(self) -> Iterator[list[bytes]]:
        while self._file is not None and (piece := self._file.read(DEV_LOG_READ_BYTES)):
            *whole, self._rest = (self._rest + piece).split(b"\n")
            lines = [line + b"\n" for line in whole]
            if len(self._rest) > DEV_LOG_LINE_BYTES_MAX:
                lines.append(self.take_rest())
            yield lines

    def _was_left(self) -> bool:
        """The writer has begun another file under this name, or this one anew."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        return now.st_ino != os.fstat(self._file.fileno()).st_ino or now.st_size < self._file.tell()


def start_of_last(file: BinaryIO, lines: int) -> int:
    """Where the last so many lines begin, which may be fewer; a last line without an end is one."""
    end = at = file.seek(0, os.SEEK_END)
    if not lines or not end:
        return end
    file.seek(end - 1)
    wanted = lines + (file.read(1) == b"\n")
    while at > 0:
        at, before = max(0, at - DEV_LOG_READ_BYTES), at
        file.seek(at)
        piece = file.read(before - at)
        if (found := piece.count(b"\n")) >= wanted:
            ends = [index for index, byte in enumerate(piece) if byte == ord("\n")]
            return at + ends[-wanted] + 1
        wanted -= found
    return 0


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
