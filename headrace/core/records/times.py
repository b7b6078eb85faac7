"""The times of the records of a batch as it arrived, without decoding the rest of it.

A broker believes a header's times: the time index, retention and look-ups by time know nothing else. So it reads the
one column that they must agree with, eight bytes a record, before it takes a batch. Where the column is compressed, it
alone is decompressed. Called by `raw.split_batches`; `time_rules` holds the times against what a topic allows.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_HEADER_BYTES, TIMES_COUNTED_PLAINLY_MAX
from headrace.core.records.arrow_message import STORED_AS_IS, ArrowMessage, time_buffer
from headrace.core.records.header import BatchHeader, Compression

_I64 = struct.Struct("<q")
TIME_BYTES: Final = _I64.size
_CODECS: Final = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}


class RecordTimes(NamedTuple):
    """Times in milliseconds since 1970, in the order of the records."""

    each: memoryview
    """As int64."""
    oldest_ms: int
    newest_ms: int

    def first_outside(self, low_ms: int, high_ms: int) -> int | None:
        """Index of the first record whose time is below `low_ms` or above `high_ms`; None where there is none."""
        if low_ms <= self.oldest_ms and self.newest_ms <= high_ms:
            return None
        return next(index for index, time_ms in enumerate(self.each) if not low_ms <= time_ms <= high_ms)

    def count_outside(self, low_ms: int, high_ms: int) -> int:
        """How many there are of those."""
        if low_ms <= self.oldest_ms and self.newest_ms <= high_ms:
            return 0
        if len(self.each) <= TIMES_COUNTED_PLAINLY_MAX:
            return sum(not low_ms <= time_ms <= high_ms for time_ms in self.each)
        import numpy as np

        numbers = np.frombuffer(self.each, np.int64)
        return int(((numbers < low_ms) | (numbers > high_ms)).sum())


def times_in(column: memoryview) -> RecordTimes:
    """Of one int64 for each record, one at least, in memory that need not be aligned."""
    each = column.cast("B").cast("q")
    if len(each) <= TIMES_COUNTED_PLAINLY_MAX:
        return RecordTimes(each, min(each), max(each))
    import numpy as np

    numbers = np.frombuffer(each, np.int64)
    return RecordTimes(each, int(numbers.min()), int(numbers.max()))


def read_times(header: BatchHeader, message: ArrowMessage, body: Sequence[memoryview]) -> RecordTimes:
    """The times of a whole batch with records; `body` is all that follows its header, in pieces.

    Raises CorruptBatchError where there is not one for each record, or the header says other ones.
    """
    at, size = time_buffer(message, header.compression)
    column = _slice(body, at - BATCH_HEADER_BYTES, size)
    needed = header.record_count * TIME_BYTES
    if header.compression is not Compression.NONE:
        column = _decompressed(column, needed, header.compression)
    if len(column) < needed:
        raise CorruptBatchError(f"the times of {header.record_count} records take {needed} bytes, not {len(column)}")
    times = times_in(column[:needed])
    if (header.base_timestamp_ms, header.max_timestamp_ms) != (times.each[0], times.newest_ms):
        raise CorruptBatchError(
            f"base_timestamp_ms is {header.base_timestamp_ms} and max_timestamp_ms {header.max_timestamp_ms}: the first"
            f" record's time is {times.each[0]}, the greatest {times.newest_ms}"
        )
    return times


def _slice(pieces: Sequence[memoryview], at: int, size: int) -> memoryview:
    """These bytes of the pieces together: a copy only where a piece ends within them."""
    found: list[memoryview] = []
    for piece in pieces:
        if at < len(piece) and size:
            found.append(piece[at : at + size])
            size -= len(found[-1])
        at = max(0, at - len(piece))
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def _decompressed(column: memoryview, needed: int, compression: Compression) -> memoryview:
    if len(column) < _I64.size:
        raise CorruptBatchError(f"the compressed times take {len(column)} bytes: they begin with their length, 8 bytes")
    (claimed,) = _I64.unpack_from(column)
    if claimed == STORED_AS_IS:
        return column[_I64.size :]
    if claimed < needed or claimed > needed + BATCH_HEADER_BYTES:
        raise CorruptBatchError(f"the times take {needed} bytes, and claim {claimed} once they are decompressed")
    import pyarrow as pa

    try:
        return memoryview(pa.decompress(column[_I64.size :], claimed, codec=_CODECS[compression])).cast("B")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptBatchError(f"the times cannot be decompressed: {error}") from error
