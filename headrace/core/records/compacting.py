"""The records that compaction keeps: the last one of each key, and the batches without the others. Pure.

    batch ──> a control batch, or one beyond the records that are known: passed on as it is
          ──> one that was written so that it cannot be decoded: the same, and counted
          ──> one that holds how far a producer has come: stands for itself
          ──> any other joins the batches before it, until they are large enough, differ, or `flush` ends them

`LatestRecords` serves one pass over one log and is bounded: it takes whole batches while there is room, and knows all
up to an offset (`end`). An offset below `end` is in it if its key has no later record below `end`. Keys are compared as
they are, very long ones by a digest of 64 bytes, which no short key can be mistaken for.

Offsets never change. The batches that come out cover the same offsets as those that went in, without a hole between
them: what a batch has lost are gaps within it (`offset_delta`), and a run of which nothing stays becomes a batch
without records. Invariants: a batch that comes out has one leader epoch and one time type; the last batches of each
producer keep its id and its sequence numbers, and are joined with no others; a batch that lost nothing and was joined
with nothing keeps its bytes. Called by `headrace_broker.storage.compaction_worker`.
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import UnreadableBatchError
from headrace.core.limits import PRODUCER_BATCHES_REMEMBERED
from headrace.core.records.columns import SPARSE_RECORD_SCHEMA, DecodedBatch, assemble, decode_batch, record_columns
from headrace.core.records.header import NO_PRODUCER, SPARSE_BIT, BatchHeader
from headrace.core.records.raw import emptied_batch
from headrace.core.types import LeaderEpoch, Offset

COMPACTED_BATCH_BYTES = 1 << 20
"""The size up to which batches that compaction has made small are joined."""


_KEY_BYTES_MAX = 64
_NEVER = -1
_NO_KEY: Any = None
Batch = Sequence[bytes | memoryview]
"""One batch, as buffers to be written one after the other; the header stands in the first one."""
_SPAN_MAX = 1 << 31
"""The number of offsets in one batch: deltas have 31 bits."""
_NO_RECORDS = record_columns([], timestamps_ms=0)
_NO_OFFSETS = np.empty(0, np.int64)


class LatestRecords:
    def __init__(self, end: Offset, keys_max: int) -> None:
        """Begin with no batch yet; the first one will start at `end`."""
        self.end = end
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    def add(self, batch: DecodedBatch) -> bool:
        """Take the next batch; return False, with nothing of it taken, where it might not fit. The first one always
        does."""
        if self._offsets and len(self._offsets) + len(batch.offsets) > self._keys_max:
            return False
        keys = batch.records.column(0)
        self._offsets.update(zip(_bounded(keys), batch.offsets.tolist(), strict=True))
        self._offsets.pop(_NO_KEY, None)
        self.end = batch.header.next_offset
        return True

    def skip(self, end: Offset) -> None:
        """Skip offsets before `end`, which hold no records."""
        self.end = end

    def are_last(self, batch: DecodedBatch) -> npt.NDArray[np.bool_]:
        """Return, for each record of a batch below `end`, whether its key has no later one; false for those without a
        key."""
        keys = batch.records.column(0)
        found = map(self._offsets.get, _bounded(keys), [_NEVER] * len(keys))
        later = np.fromiter(found, np.int64, len(keys)) > batch.offsets
        if keys.null_count:
            later |= keys.is_null().to_numpy(zero_copy_only=False)
        return np.asarray(~later, np.bool_)


def _bounded(keys: pa.Array) -> Iterable[Any]:
    """Yield the keys, and None where there is none."""
    entries: list[Any] = keys.to_pylist()
    if all(key is None or len(key) <= _KEY_BYTES_MAX for key in entries):
        return entries
    return [_digest(key) if key is not None and len(key) > _KEY_BYTES_MAX else key for key in entries]


def _digest(key: bytes) -> bytes:
    return blake2b(key).digest() + b"\0"  # It is one byte longer than any key that is not digested.


class ProducersLast:
    """The batches that hold how far each producer has come: its last `PRODUCER_BATCHES_REMEMBERED`.

    Only producers that are still `remembered` count: those that the partition has forgotten would each leave some
    batches for ever. Fed the dirty part of a log in order. What lies before was compacted already, so that a producer's
    batches there are its last ones, unless there are enough of them in the dirty part.
    """

    def __init__(self, dirty_from: Offset, remembered: Container[int]) -> None:
        self._dirty_from = dirty_from
        self._remembered = remembered
        self._last: dict[int, deque[Offset]] = {}

    def add(self, header: BatchHeader) -> None:
        if header.producer_id in self._remembered:
            last = self._last.setdefault(header.producer_id, deque(maxlen=PRODUCER_BATCHES_REMEMBERED))
            last.append(header.base_offset)

    def must_stay(self, header: BatchHeader) -> bool:
        """Return whether this batch must stay the one of its producer that it is."""
        if header.producer_id not in self._remembered:
            return False
        last = self._last.get(header.producer_id, ())
        if header.base_offset < self._dirty_from:
            return len(last) < PRODUCER_BATCHES_REMEMBERED
        return header.base_offset in last


class Keep(NamedTuple):
    """The bounds of what stays, beside the last record of each key."""

    log_start: Offset
    """The offset below which records are deleted."""
    tombstones_from: Offset
    """The offset below which tombstones have been kept for long enough."""
    producers: ProducersLast


class _Shape(NamedTuple):
    """The properties that batches must have in common to become one."""

    leader_epoch: LeaderEpoch
    attributes: int
    append_time_ms: int | None

    @classmethod
    def of(cls, header: BatchHeader) -> "_Shape":
        time_ms = header.max_timestamp_ms if header.has_append_time else None
        return cls(header.leader_epoch, header.attributes & ~SPARSE_BIT, time_ms)


class _Piece(NamedTuple):
    """The part of one batch that stays."""

    header: BatchHeader
    shape: _Shape | None
    """The shape; None where no record stays."""
    records: pa.RecordBatch
    offsets: npt.NDArray[np.int64]
    size_bytes: int
    """The size of its records in memory, not compressed."""
    untouched: memoryview | None
    """The batch's bytes, where nothing was taken from it."""


@dataclass(slots=True)
class _Run:
    """A run of batches that become one."""

    header: BatchHeader
    """The header of the first one."""
    next_offset: Offset
    untouched: memoryview | None
    """The bytes that it has already, where it is one batch that nothing was taken from."""
    shape: _Shape | None = None
    records: list[pa.RecordBatch] = field(default_factory=list)
    offsets: list[npt.NDArray[np.int64]] = field(default_factory=list)
    size_bytes: int = 0

    def takes(self, piece: _Piece) -> bool:
        alike = self.shape is None or piece.shape is None or piece.shape == self.shape
        fits = not self.size_bytes or self.size_bytes + piece.size_bytes <= COMPACTED_BATCH_BYTES
        return (
            piece.header.leader_epoch == self.header.leader_epoch
            and alike
            and (fits or piece.shape is None)
            and piece.header.next_offset - self.header.base_offset <= _SPAN_MAX
        )

    def join(self, piece: _Piece) -> None:
        """Join one more that `takes` has a place for; its producer's numbers are lost."""
        self.next_offset, self.untouched = piece.header.next_offset, None
        self.header = self.header._replace(producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER, base_sequence=-1)
        self.put(piece)

    def put(self, piece: _Piece) -> None:
        if piece.shape is not None:
            self.shape = piece.shape
            self.records.append(piece.records)
            self.offsets.append(piece.offsets)
            self.size_bytes += piece.size_bytes

    def encoded(self) -> Batch:
        if self.untouched is not None:
            return [self.untouched]
        header = self.header._replace(last_offset_delta=self.next_offset - self.header.base_offset - 1)
        if self.shape is None:
            return [emptied_batch(header)]
        offsets = np.concatenate(self.offsets)
        times = [part.column(2).to_numpy() for part in self.records]
        header = header._replace(
            attributes=self.shape.attributes | SPARSE_BIT,
            record_count=len(offsets),
            base_timestamp_ms=int(times[0][0]),
            max_timestamp_ms=max(int(each.max()) for each in times),
        )
        if len(offsets) == self.next_offset - header.base_offset:  # Batches were joined, and nothing was taken.
            return assemble(header._replace(attributes=self.shape.attributes), pa.concat_batches(self.records))
        deltas = pa.array((offsets - header.base_offset).astype(np.int32))
        columns = [*pa.concat_batches(self.records).columns, deltas]
        return assemble(header, pa.RecordBatch.from_arrays(columns, schema=SPARSE_RECORD_SCHEMA))


@dataclass(slots=True)
class Tally:
    """The counts of what was done so far."""

    records_before: int = 0
    records_after: int = 0
    without_key: int = 0
    """The records that were dropped for want of a key."""
    unreadable: list[Offset] = field(default_factory=list)
    """The offsets where batches begin that cannot be decoded."""
    tombstones: list[npt.NDArray[np.int64]] = field(default_factory=list)
    """The offsets of tombstones that stay."""


class BatchCompactor:
    def __init__(self, latest: LatestRecords, keep: Keep) -> None:
        self._latest = latest
        self._keep = keep
        self._run: _Run | None = None
        self.tally = Tally()

    def add(self, header: BatchHeader, content: memoryview) -> list[Batch]:
        """Add the next batch, and return those that are finished. Raises CorruptBatchError for one that was damaged."""
        if header.is_control or header.base_offset >= self._latest.end:
            return [*self.flush(), [content]]
        try:
            piece = self._what_stays(header, content)
        except UnreadableBatchError:
            self.tally.unreadable.append(header.base_offset)
            return [*self.flush(), [content]]
        tells_producer = self._keep.producers.must_stay(header)
        if not tells_producer and self._run is not None and self._run.takes(piece):
            self._run.join(piece)
            return []
        finished = self.flush()
        self._run = _Run(header, header.next_offset, piece.untouched)
        self._run.put(piece)
        return finished + self.flush() if tells_producer else finished

    def flush(self) -> list[Batch]:
        """Return what is left: at the end of a segment, so that no batch reaches from one into the next."""
        run, self._run = self._run, None
        return [] if run is None else [run.encoded()]

    def _what_stays(self, header: BatchHeader, content: memoryview) -> _Piece:
        if header.is_empty:
            return _Piece(header, None, _NO_RECORDS, _NO_OFFSETS, 0, content)
        batch = decode_batch(content)
        kept = self._kept(batch)
        count = int(kept.sum())
        if count == len(kept):
            return _Piece(header, _Shape.of(header), batch.records, batch.offsets, batch.records.nbytes, content)
        if count == 0:
            return _Piece(header, None, _NO_RECORDS, _NO_OFFSETS, 0, None)
        records = batch.records.filter(pa.array(kept))
        return _Piece(header, _Shape.of(header), records, batch.offsets[kept], records.nbytes, None)

    def _kept(self, batch: DecodedBatch) -> npt.NDArray[np.bool_]:
        """Return, for each record, whether it stays."""
        offsets, (keys, values, *_) = batch.offsets, batch.records.columns
        kept = self._latest.are_last(batch) & (offsets >= self._keep.log_start)
        tally = self.tally
        if values.null_count:
            is_tombstone: Any = values.is_null().to_numpy(zero_copy_only=False)
            kept &= ~is_tombstone | (offsets >= self._keep.tombstones_from)
            tally.tombstones.append(offsets[kept & is_tombstone])
        tally.records_before += len(kept)
        tally.records_after += int(kept.sum())
        tally.without_key += keys.null_count
        return kept
