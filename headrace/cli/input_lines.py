"""Lines of a file or a pipe as they come: in large pieces from a file, at once from a pipe where somebody types."""

import select
from collections.abc import Callable, Iterator
from io import BytesIO, UnsupportedOperation
from typing import BinaryIO, Final

from headrace.core.limits import JSON_LINE_BYTES_MAX

_READ_BYTES: Final = 256 << 10


def lines_of(file: BinaryIO, before_waiting: Callable[[], None]) -> Iterator[bytes]:
    """The lines with their ends; `before_waiting` is called before each read that may take for ever.

    A line that is longer than any format takes comes in its first part, so that memory stays bounded.
    """
    read = getattr(file, "read1", file.read)  # Whatever a pipe has, not so many bytes whenever they come.
    rest = b""
    while True:
        if not _has_something(file):
            before_waiting()
        piece = read(_READ_BYTES)
        lines = BytesIO(rest + piece).readlines()
        if not piece:
            yield from lines
            return
        rest = b"" if lines[-1].endswith(b"\n") or len(lines[-1]) > JSON_LINE_BYTES_MAX else lines.pop()
        yield from lines


def _has_something(file: BinaryIO) -> bool:
    """Whether a read gives something (or the end) at once. Reads leave nothing behind in the file's own buffer."""
    try:
        return bool(select.select([file], [], [], 0)[0])
    except UnsupportedOperation:  # Nothing that the operating system knows.
        return False
