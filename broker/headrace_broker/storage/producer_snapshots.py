"""What a log knows of its idempotent producers, kept on disk: `producer-snapshot`, in step with the recovery point.

A start takes the snapshot, cuts it to where its scan begins, and notes what the scan keeps: so the snapshot has to be
right only below the recovery point, and is written before that moves. It may know more: what lies above is cut away.
Where it is damaged, the headers of the newest `PRODUCERS_REBUILD_BYTES` below are looked at instead; whoever wrote last
before that counts as not known, and any sequence of his is taken. Where there is none, nobody has written below.

Blocks. Raises OSError, CorruptLogError. Called by `recovery`, and by `log_syncer` in its thread.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headrace.core.errors import CorruptLogError
from headrace.core.limits import PRODUCERS_REBUILD_BYTES
from headrace.core.log.recovery import SegmentFacts
from headrace.core.log.segments import INDEX_SUFFIX, LOG_SUFFIX, DamagedIndexError, segment_name
from headrace.core.replication.producers import Producers
from headrace.core.types import Offset
from headrace_broker.storage.disk import FileHandle, read_blocking
from headrace_broker.storage.index_file import OFFSET_INDEX, IndexFile
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.walk import walk


class ProducerSnapshot:
    """Of one log that is open. `is_written`: the file says the same as `producers` does."""

    def __init__(self, files: PartitionFiles, producers: Producers, *, is_written: bool) -> None:
        self.producers = producers
        self._files = files
        self._revision = producers.revision if is_written else -1
        """What the file says."""

    def write(self) -> None:
        """Where there is something new. Raises OSError."""
        # Taken first: what is noted meanwhile is written again the next time.
        revision = self.producers.revision
        if revision == self._revision:
            return
        states = self.producers.states()
        if states or self._files.has_producers():
            self._files.write_producers(states)
        self._revision = revision


def rebuild_producers(directory: Path, segments: Sequence[SegmentFacts], now_ms: int) -> Producers:
    """From the newest of these segments, each as far as it is known to be whole, in order."""
    producers, left_bytes, skipped = Producers(), PRODUCERS_REBUILD_BYTES, len(segments)
    while skipped and left_bytes > 0:
        skipped -= 1
        left_bytes -= segments[skipped].size_bytes
    for facts in segments[skipped:]:
        start = _batch_at(directory, facts.base_offset, -left_bytes) if left_bytes < 0 else 0
        left_bytes = 0
        log = FileHandle(directory / (segment_name(facts.base_offset) + LOG_SUFFIX), os.O_RDONLY)
        with suppress(CorruptLogError):  # Whoever reads there hears of it.
            for _, header in walk(log, read_blocking, start, facts.size_bytes):
                producers.note(header, now_ms)
    return producers


def _batch_at(directory: Path, base_offset: Offset, position: int) -> int:
    """Where a batch starts, at `position` or not far below; the segment's start where its index cannot tell."""
    try:
        index = IndexFile.open(directory / (segment_name(base_offset) + INDEX_SUFFIX), OFFSET_INDEX, base_offset)
        entry = index.last_while(read_blocking, lambda entry: entry.position <= position)
    except DamagedIndexError:
        return 0
    return entry.position if entry is not None else 0
