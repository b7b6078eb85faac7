"""Counting a run of whole batches as a broker sends it, at a tenth of what checking each header would cost.

Length and record count of each batch are all that is looked at, on the event loop, for runs of tens of thousands of
batches. Whether a header is damaged otherwise its reader finds out: decoding checks both checksums. Called by
`headrace_broker.fetch`.
"""

import struct
from typing import Final, NamedTuple

from headrace.core.limits import BATCH_HEADER_BYTES
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset

_LENGTHS: Final = struct.Struct("<12xI16xi28x")
"""`batch_bytes` and `record_count` of a header; as long as one."""


class Run(NamedTuple):
    """At least one batch."""

    nbytes: int
    batches: int
    records: int
    next_offset: Offset


def skim(buffer: bytes | bytearray | memoryview, records_max: int) -> Run:
    """The first batches of `buffer` until `records_max` records are among them; one batch at least.

    Raises CorruptBatchError where the first or the last of them is damaged, or ends beyond the buffer.
    """
    unpack, end = _LENGTHS.unpack_from, len(buffer)
    at = last = batches = records = 0
    while at <= end - BATCH_HEADER_BYTES and (records < records_max or not batches):
        size, count = unpack(buffer, at)
        if size < BATCH_HEADER_BYTES:
            break
        last, at = at, at + size
        batches += 1
        records += count
    BatchHeader.unpack(buffer)
    final = BatchHeader.unpack(buffer, last if at <= end else end)
    return Run(at, batches, records, final.next_offset)
