"""The process that compacts for a broker: jobs come on standard input, results go to standard output.

`CompactionProcess` runs it as `python -m headrace_broker.storage.compaction_worker` when there is something to do, at a
lower priority, so that produce and fetch come first. It is a process of its own because it decodes every record: Python
would hold up the broker's event loop meanwhile. No module of the broker imports this one: it loads numpy and pyarrow.
It does one job at a time, no faster than `COMPACTION_BYTES_PER_SECOND`, and ends at once, in the middle of its work,
when its input ends: then the broker is gone, and another one may be opening the same logs.

    segments' dirty part ──> LatestRecords ──> groups of segments ──> CleanedSegment, one at a time ──> Done

A pass reads closed segments and writes their compacted forms beside them. It changes nothing that is there; the broker
swaps each segment in as it comes (`compaction_files`), so that the disk needs room for one of them. Memory is bounded
by the keys of a pass (`COMPACTION_KEYS_MAX`) and a few chunks. A batch that was written so that it cannot be decoded
stays as it is, and the pass goes on: older records of its keys stay as well. A pass raises OSError; CorruptBatchError
and CorruptLogError where a batch was damaged: then the log stays as it is.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from headrace.core.errors import CorruptBatchError, CorruptLogError, HeadraceError, UnreadableBatchError
from headrace.core.limits import BATCH_HEADER_BYTES, COMPACTION_CHUNK_BYTES, SEGMENT_BYTES_MAX
from headrace.core.log.compaction import CleanPoints, groups
from headrace.core.log.retention import ClosedSegment
from headrace.core.log.segments import LOG_SUFFIX, segment_name
from headrace.core.records.columns import decode_batch
from headrace.core.records.compacting import Batch, BatchCompactor, Keep, LatestRecords, ProducersLast
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.compaction_files import (
    GO_ON,
    Cleaned,
    CleanedSegment,
    CompactorMessage,
    FailureCause,
    Job,
    PassDone,
    PassFailed,
    SegmentSpan,
    UnreadableBatches,
    discard_cleaned,
    format_message,
)
from headrace_broker.storage.disk import FileHandle, read_blocking, shown

COMPACTION_BYTES_PER_SECOND = 128 << 20
"""The bytes that compaction reads in a second at most, for all partitions of a broker together."""


_SAME_MAX = 1 << 16
"""The number of batches of a segment that are remembered instead of being written, in case all of it stays as it is."""
PaceBytes = Callable[[int], None]
"""A function that is called with the number of bytes read, and may wait."""
_NICENESS = 10
_ENDED_FIRST = "1000"


def compact(job: Job, pace: PaceBytes) -> Iterator[Cleaned | PassDone]:
    """Compact; the last result is Done. A segment is written when the caller asks for the next one: the last is swapped
    in then."""
    latest, producers = _latest_records(job, pace)
    compactor = BatchCompactor(latest, Keep(job.log_start, job.tombstones_from, producers))
    segments = [segment for segment in job.segments if segment.base_offset < latest.end]
    for group in groups(segments, job.segment_bytes):
        cleaned = _write_cleaned(Path(job.directory), group, compactor, pace)
        if cleaned is not None:
            yield cleaned
    tally = compactor.tally
    tombstones: Any = np.concatenate([*tally.tombstones, np.empty(0, np.int64)])
    points = CleanPoints(job.points).after_pass(latest.end, job.now_ms, tombstones)
    unreadable = UnreadableBatches(len(tally.unreadable), tally.unreadable[0]) if tally.unreadable else None
    yield PassDone(points.points, tally.records_before, tally.records_after, tally.without_key, unreadable)


def _latest_records(job: Job, pace: PaceBytes) -> tuple[LatestRecords, ProducersLast]:
    """Return the latest records of the dirty part, as far as it fits."""
    dirty = [segment for segment in job.segments if segment.next_offset > job.dirty_from]
    latest = LatestRecords(job.dirty_from, job.keys_max)
    producers = ProducersLast(job.dirty_from, frozenset(job.producers))
    for segment in dirty:
        for header, content in _batches_in(Path(job.directory), segment, pace):
            if header.next_offset <= job.dirty_from:
                continue
            if header.is_empty or header.is_control:
                latest.skip(header.next_offset)
            elif not _add_records(latest, header, content):
                return latest, producers
            producers.add(header)
    return latest, producers


def _add_records(latest: LatestRecords, header: BatchHeader, content: memoryview) -> bool:
    """Add the records of a batch; return False where they might not fit."""
    try:
        return latest.add(decode_batch(content))
    except UnreadableBatchError:
        latest.skip(header.next_offset)
        return True


class _Target:
    """The target of a group's compacted form: no file as long as the form equals what is there already."""

    def __init__(self, directory: Path, group: Sequence[ClosedSegment]) -> None:
        self._directory = directory
        self._group = group
        self._same: list[BatchHeader] = []
        """The group's first batches, as they are."""
        self.span = SegmentSpan(group[0].base_offset, group[-1].next_offset)
        self.cleaned: CleanedSegment | None = None

    def put(self, batch: Batch) -> None:
        # A batch that is passed on as it is comes as the one view that it was read into.
        if self.cleaned is None and isinstance(batch[0], memoryview) and self._may_be_same():
            self._same.append(BatchHeader.unpack(batch[0]))
        else:
            self._begun().append(batch)

    def finish(self) -> CleanedSegment | None:
        """Finish it on disk; return None, with nothing written, where the group is one segment that loses nothing."""
        cleaned = self.cleaned if len(self._group) == 1 else self._begun()
        if cleaned is not None:
            if cleaned.size > SEGMENT_BYTES_MAX:
                raise CorruptLogError(
                    f"{_path(self._directory, self._group[0])} would grow to {cleaned.size} bytes, an index can name"
                    f" positions up to {SEGMENT_BYTES_MAX}: give the topic a smaller segment.bytes"
                )
            cleaned.finish(max(_path(self._directory, segment).stat().st_mtime_ns for segment in self._group))
        return cleaned

    def _may_be_same(self) -> bool:
        return len(self._group) == 1 and len(self._same) < _SAME_MAX

    def _begun(self) -> CleanedSegment:
        if self.cleaned is None:
            self.cleaned = CleanedSegment(self._directory, self.span)
            self.cleaned.copy(FileHandle(_path(self._directory, self._group[0]), os.O_RDONLY), self._same)
        return self.cleaned


def _write_cleaned(
    directory: Path, group: Sequence[ClosedSegment], compactor: BatchCompactor, pace: PaceBytes
) -> Cleaned | None:
    """Write the segment; return None, with nothing left on disk, where it would equal the one that is there."""
    target = _Target(directory, group)
    try:
        for segment in group:
            for header, content in _batches_in(directory, segment, pace):
                for batch in compactor.add(header, content):
                    target.put(batch)
            for batch in compactor.flush():
                target.put(batch)
        cleaned = target.finish()
    except BaseException:
        discard_cleaned(directory, target.span)
        raise
    bytes_before = sum(segment.size_bytes for segment in group)
    return None if cleaned is None else Cleaned(*target.span, cleaned.size, bytes_before)


def _batches_in(directory: Path, segment: ClosedSegment, pace: PaceBytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield (header, bytes) of each batch of a closed segment."""
    log = FileHandle(_path(directory, segment), os.O_RDONLY)
    window, at, position, offset = memoryview(b""), 0, 0, segment.base_offset
    while position < segment.size_bytes:
        left = segment.size_bytes - position
        wanted = min(BATCH_HEADER_BYTES, left)
        if len(window) - at >= wanted:
            header = _header_at(window, at, log, offset)
            if header.batch_bytes <= len(window) - at:
                yield header, window[at : at + header.batch_bytes]
                at, position, offset = at + header.batch_bytes, position + header.batch_bytes, header.next_offset
                continue
            wanted = header.batch_bytes
        size = min(left, max(COMPACTION_CHUNK_BYTES, wanted))
        pace(size)
        window, at = memoryview(read_blocking(log, position, size)), 0
        if size < wanted:
            raise CorruptLogError(f"{shown(log.path)} ends within the batch at position {position}")
    if offset != segment.next_offset:
        raise CorruptLogError(
            f"{shown(log.path)} ends at offset {offset}, the next segment starts at {segment.next_offset}"
        )


def _header_at(window: memoryview, at: int, log: FileHandle, offset: Offset) -> BatchHeader:
    header = BatchHeader.unpack(window, at)
    if header.base_offset != offset:
        raise CorruptLogError(f"{shown(log.path)} goes on with offset {header.base_offset} where {offset} must be")
    return header


def _path(directory: Path, segment: ClosedSegment) -> Path:
    return directory / (segment_name(segment.base_offset) + LOG_SUFFIX)


class ReadPace:
    """A rate limit: it waits as long as it takes to read no more than the limit allows."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at_s = time.monotonic()

    def __call__(self, size: int) -> None:
        now_s = time.monotonic()
        time.sleep(max(0.0, self._free_at_s - now_s))
        self._free_at_s = max(now_s, self._free_at_s) + size / self._bytes_per_second


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker.
    os.nice(_NICENESS)
    with suppress(OSError):
        # Where memory runs out the kernel should end this process, not the broker.
        Path("/proc/self/oom_score_adj").write_text(_ENDED_FIRST)
    lines = SimpleQueue[bytes]()
    threading.Thread(target=_read_input, args=(lines,), daemon=True).start()
    pace = ReadPace(COMPACTION_BYTES_PER_SECOND)
    while True:
        _work(Job.parse(lines.get()), pace, lines)


def _read_input(lines: "SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _work(job: Job, pace: ReadPace, lines: "SimpleQueue[bytes]") -> None:
    try:
        for told in compact(job, pace):
            _tell(told)
            if lines.get() != GO_ON:
                return
    except MemoryError:
        _tell(PassFailed(FailureCause.MEMORY, f"compacting {job.directory} takes more memory than there is"))
    except FileNotFoundError as error:
        _tell(PassFailed(FailureCause.CHANGED, str(error)))
    except OSError as error:
        _tell(PassFailed(FailureCause.DISK, f"compacting {job.directory} failed: {error.strerror}"))
    except (CorruptBatchError, CorruptLogError) as error:
        _tell(PassFailed(FailureCause.DAMAGED, error.message))
    except HeadraceError as error:
        _tell(PassFailed(FailureCause.DISK, error.message))


def _tell(told: CompactorMessage) -> None:
    sys.stdout.buffer.write(format_message(told))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
