"""An internal topic's log as what was decided: entries in, one batch for each decision; batches out, as entries.

pyarrow is loaded in a thread before the first of either (`prepare`). What is read is decoded in a thread, too: the log
of a busy coordinator has a hundred thousand batches. Called by `coordinating`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from headrace.core.coordinator_events import EntryT
from headrace.core.errors import CorruptLogError, UnreadableBatchError
from headrace.core.limits import BATCH_HEADER_BYTES, READ_INLINE_BYTES_MAX
from headrace.core.records.header import BatchHeader, skim_batches
from headrace.core.records.raw import RawBatch
from headrace.core.types import Offset
from headrace_broker.clock import wall_ms
from headrace_broker.partition import Partition

_log = logging.getLogger(__name__)
_ALL = 1 << 62


async def prepare() -> None:
    """Load what encodes and decodes: a third of a second, once in a process."""
    await asyncio.to_thread(_load)


def _load() -> None:
    from headrace.core.records import small_batches  # noqa: F401


@dataclass(frozen=True, slots=True)
class Codec(Generic[EntryT]):
    """What the records of one internal topic are."""

    encode: Callable[[EntryT], tuple[bytes, bytes | None]]
    """Key and value; None is a tombstone."""
    decode: Callable[[bytes, bytes | None], EntryT]
    """Raises UnreadableRecordError."""
    leaves_out: bool = False
    """A batch that nobody can decode is left out, loudly: what was decided before it holds again. False: it is worse to
    forget a decision than to decide nothing."""

    def encoded(self, entries: Sequence[EntryT]) -> RawBatch:
        """One batch, which is committed whole or not at all."""
        from headrace.core.records.arrays import bytes_array
        from headrace.core.records.columns import encode_batch, record_columns
        from headrace.core.records.small_batches import are_few, encode_rows

        records = [self.encode(entry) for entry in entries]
        keys = [key for key, _ in records]
        values = [value for _, value in records]
        now_ms = wall_ms()
        whole = [value for value in values if value is not None]
        if are_few(values, keys, sum(map(len, keys)) + sum(map(len, whole))):
            chunks = encode_rows(whole, keys, [now_ms] * len(keys))
        else:
            # As arrays: of lists with a tombstone Arrow would ask pandas, and import it first, which takes seconds.
            chunks = encode_batch(record_columns(bytes_array(values), bytes_array(keys), timestamps_ms=now_ms))
        # Not checked as a client's would be: its keys are there, and its checksums were made a moment ago.
        whole_batch = b"".join(chunks)
        head, body = (
            memoryview(bytearray(whole_batch[:BATCH_HEADER_BYTES])),
            memoryview(whole_batch)[BATCH_HEADER_BYTES:],
        )
        return RawBatch(BatchHeader.unpack(head), [head, body], keyless_count=0)

    async def entries(self, partition: Partition, end: Offset) -> AsyncIterator[tuple[EntryT, ...]]:
        """All that the log holds below `end`, which is the end of a batch and committed, in order.

        Raises UnreadableRecordError, CorruptBatchError, and what `PartitionLog.read` raises.
        """
        offset = partition.log.log_start_offset
        while offset < end:
            buffers = await partition.log.read(offset, max_bytes=READ_INLINE_BYTES_MAX, up_to=end)
            if not buffers:
                raise CorruptLogError(f"{partition.place}: nothing can be read at offset {offset}, below {end}")
            yield await asyncio.to_thread(self._decoded, buffers)
            offset = skim_batches(buffers[-1], _ALL).next_offset

    def _decoded(self, buffers: Sequence[memoryview]) -> tuple[EntryT, ...]:
        from headrace.core.records.columns import decode_batch
        from headrace.core.records.small_batches import decode_rows

        found: list[EntryT] = []
        for buffer in buffers:
            at = 0
            while at < len(buffer):
                header = BatchHeader.unpack(buffer, at)
                batch = buffer[at : at + header.batch_bytes]
                at += header.batch_bytes
                if (rows := decode_rows(batch, header)) is not None:
                    found += map(self.decode, *rows)
                elif not header.is_empty:
                    try:
                        records = decode_batch(batch).records
                    except UnreadableBatchError as error:
                        if not self.leaves_out:
                            raise
                        _log.error("left out of a coordinator's log: %s", error.message)
                        continue
                    found += map(self.decode, records.column(0).to_pylist(), records.column(1).to_pylist())
        return tuple(found)
