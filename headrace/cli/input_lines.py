"""Lines of a file or a pipe as they come: in large pieces from a file, at once from a pipe where somebody types."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import BinaryIO, Final

from headrace.core.limits import JSON_LINE_BYTES_MAX

_READ_BYTES: Final = 256 << 10
"""A few thousand records: enough to send them as columns, few enough to spread over partitions."""


def lines_of(file: BinaryIO, before_reading: Callable[[], None]) -> Iterator[bytes]:
    """The lines with their ends; `before_reading` is called before each read, which may wait for ever.

    A line that is longer than any format takes comes in its first part, so that memory stays bounded.
    """
    read = getattr(file, "read1", file.read)  # Whatever a pipe has, not so many bytes whenever they come.
    rest = b""
    while True:
        before_reading()
        piece = read(_READ_BYTES)
        lines = BytesIO(rest + piece).readlines()
        if not piece:
            yield from lines
            return
        rest = b"" if lines[-1].endswith(b"\n") or len(lines[-1]) > JSON_LINE_BYTES_MAX else lines.pop()
        yield from lines
