"""From batch to batch through a segment, by their headers alone."""

from collections.abc import Iterator

from headrace.core.errors import CorruptBatchError, CorruptLogError
from headrace.core.limits import BATCH_HEADER_BYTES, INDEX_INTERVAL_BYTES
from headrace.core.records.header import BatchHeader
from headrace_broker.storage.disk import FileHandle, ReadAt, shown

_WINDOW_BYTES = INDEX_INTERVAL_BYTES + BATCH_HEADER_BYTES
"""One read takes a walker from an index entry to where the next one may be."""


def walk(log: FileHandle, read: ReadAt, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`, where one starts, to `end`, where one ends.

    Raises CorruptLogError where bytes are no batch header or a batch does not end by `end`, and what `read` raises.
    """
    while position < end:
        window = read(log, position, min(_WINDOW_BYTES, end - position))
        start, length = position, len(window)
        while position - start <= length - BATCH_HEADER_BYTES:
            header = _unpack(window, position - start, log, position)
            yield position, header
            position += header.batch_bytes
        if position > end or position == start:
            raise CorruptLogError(f"{shown(log.path)} ends within a batch at position {position}")


def _unpack(window: bytes | bytearray | memoryview, at: int, log: FileHandle, position: int) -> BatchHeader:
    try:
        header = BatchHeader.unpack(window, at)
    except CorruptBatchError as error:
        raise CorruptLogError(f"{shown(log.path)} is damaged at position {position}: {error.message}") from error
    if header.is_heartbeat:
        raise CorruptLogError(f"{shown(log.path)} is damaged at position {position}: a heartbeat, which no log holds")
    return header
