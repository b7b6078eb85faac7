"""How far a log reaches that is not open, without a change to it: for whoever decides which replica's is the latest.

Checkpoints alone would not do: after kill -9 they may be far behind, and the broker with the latest records would seem
to hold none. So the batches above the recovery point are followed, by their headers: a body that is damaged shows only
when the log is opened. Blocks. Called by `partition_store`.
"""

import os
from contextlib import suppress
from pathlib import Path

from headrace.core.control.broker_reports import HeldLog
from headrace.core.errors import CorruptLogError, HeadraceError
from headrace.core.log.epochs import NO_EPOCH, LeaderEpochs
from headrace.core.log.recovery import SegmentFacts, TailScan, scan_start
from headrace.core.log.segments import LOG_SUFFIX, segment_name
from headrace.core.types import Offset
from headrace_broker.storage.disk import FileHandle, read_blocking, shown, storage_errors
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.segment import segments_in
from headrace_broker.storage.walk import walk


def glance(directory: Path) -> HeldLog:
    """What recovery would keep, as far as headers tell; `trouble` where it cannot be read."""
    try:
        with storage_errors(f"reading {shown(directory)}"):
            scan = _scan(directory)
    except HeadraceError as error:
        return HeldLog(NO_EPOCH, Offset(0), trouble=error.message)
    return HeldLog(scan.epochs.latest, scan.next_offset)


def _scan(directory: Path) -> TailScan:
    """Raises OSError, StorageFailedError."""
    files, segments = PartitionFiles(directory), segments_in(directory)
    if not segments:
        return TailScan(Offset(0), LeaderEpochs())
    epochs, cut_at = files.epochs(), files.cut_at()
    start = scan_start(segments, files.recovery_point() if epochs else None)
    scan = TailScan(start.offset, epochs or LeaderEpochs())
    scan.epochs.cut(start.offset)
    position = start.position
    for facts in segments[start.segment :]:
        if position == 0 and scan.enter_segment(facts.base_offset):
            break
        _follow(scan, directory, facts, position, cut_at.offset if cut_at else None)
        position = 0
    return scan


def _follow(scan: TailScan, directory: Path, facts: SegmentFacts, position: int, limit: Offset | None) -> None:
    log = FileHandle(directory / (segment_name(facts.base_offset) + LOG_SUFFIX), os.O_RDONLY)
    with suppress(CorruptLogError):  # The log ends there, as it would for recovery.
        for at, header in walk(log, read_blocking, position, facts.size_bytes):
            is_cut = limit is not None and header.base_offset >= limit
            if is_cut or at + header.batch_bytes > facts.size_bytes or not scan.follow(header):
                return
