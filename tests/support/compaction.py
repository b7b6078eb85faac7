"""Logs with keys, for tests of compaction: written, compacted while nobody has them open, read back as a model."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.core.log.retention import ClosedSegment
from headrace.core.records.columns import columns_of, decode_batches, encode_batch
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from headrace_broker.storage.compaction_files import Cleaned, Job, PassDone, SegmentSpan, prepare_swap
from headrace_broker.storage.compaction_files import swap_in as swap
from headrace_broker.storage.compaction_worker import compact
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.segment import segments_in
from tests.support.logs import END, EPOCH, NOW_MS

Rows = list[tuple[int, RecordContent]]


def keyed(*records: tuple[str, str | None], time_ms: int = NOW_MS) -> RawBatch:
    """One batch of keys and values."""
    rows = [RecordContent(key.encode(), None if value is None else value.encode(), time_ms) for key, value in records]
    (batch,) = split_batches(encode_batch(columns_of(rows)), batch_bytes_max=1 << 30)
    return batch


def append(log: PartitionLog, *batches: RawBatch, epoch: LeaderEpoch = EPOCH) -> None:
    for batch in batches:
        log.append([batch], epoch, NOW_MS)


def closed_segments(directory: Path) -> list[ClosedSegment]:
    facts = segments_in(directory)
    ends = [each.base_offset for each in facts[1:]]
    return [ClosedSegment(each.base_offset, end, each.size_bytes) for each, end in zip(facts, ends, strict=False)]


def job(directory: Path, **changed: Any) -> Job:
    """The first pass over all closed segments, as if it were `NOW_MS`."""
    nowhere = Offset(0)
    segments = tuple(closed_segments(directory))
    first = Job(str(directory), segments, nowhere, nowhere, nowhere, 1 << 20, (), NOW_MS, "", producers=())
    return first._replace(**changed)


def compact_files(asked: Job) -> PassDone:
    """A whole pass over a log that nobody has open."""
    for made in compact(asked, lambda size: None):
        if isinstance(made, PassDone):
            return made
        swap_in(asked, made)
    raise AssertionError("a pass ends with Done")


def swap_in(asked: Job, made: Cleaned) -> None:
    span = SegmentSpan(made.base_offset, made.next_offset)
    prepare_swap(Path(asked.directory), span)
    swap(Path(asked.directory), span)


async def rows_from(log: PartitionLog, offset: int = 0, max_bytes: int = 3_000) -> Rows:
    """All records from `offset` on, read as a consumer does; its batches follow each other."""
    found: Rows = []
    while buffers := await log.read(Offset(offset), max_bytes=max_bytes, up_to=END):
        for buffer in buffers:
            assert BatchHeader.unpack(buffer).base_offset <= offset
            for batch in decode_batches(buffer):
                found += batch.since(offset).rows()
            offset = next_offset(buffer)
    assert offset == log.log_end_offset
    return found


def next_offset(buffer: memoryview) -> int:
    """Where the batches in it end; there is no hole between them."""
    header = BatchHeader.unpack(buffer)
    at = header.batch_bytes
    while at < len(buffer):
        following = BatchHeader.unpack(buffer, at)
        assert following.base_offset == header.next_offset
        header, at = following, at + following.batch_bytes
    return header.next_offset


def last_of_each_key(rows: Iterable[tuple[int, RecordContent]], below: int) -> Rows:
    """What compaction leaves when all below is compacted and no tombstone is old enough to go."""
    rows = list(rows)
    last = {row.key: offset for offset, row in rows if offset < below}
    return [(offset, row) for offset, row in rows if offset >= below or last[row.key] == offset]
