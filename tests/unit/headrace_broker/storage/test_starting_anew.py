"""A log that starts anew, above its end or at 0: empty, on disk, and whole whenever it dies on the way."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.errors import DiskFullError, OffsetOutOfRangeError, StorageFailedError
from headrace.core.log.compaction import CleanPoint, CleanPoints
from headrace.core.log.epochs import EpochStart
from headrace.core.records.header import ProducerNumbers
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.failing_disk import before_each
from tests.support.logs import (
    END,
    EPOCH,
    NOW_MS,
    SMALL,
    file_size_limit,
    fill,
    log_bytes,
    log_files,
    new_log_directory,
    open_log,
    raw_batch,
    values_from,
)
from tests.support.replicas import epochs_of, replicate

START = Offset(1_000)


@pytest.mark.parametrize("batches", [0, 1, 50])
@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("start", [50, 51, 1_000])
async def test_should_be_empty_at_its_new_start_now_and_after_a_crash(
    log: PartitionLog, directory: Path, threads: StorageThreads, batches: int, synced: bool, start: int
) -> None:
    fill(log, batches)
    if synced:
        await log.sync()

    await log.start_at(Offset(start))

    assert log_bytes(directory) == b""
    assert [path.stem for path in log_files(directory)] == [f"{start:020d}"]
    for each in (log, open_log(directory, threads, SMALL)):
        assert (each.log_start_offset, each.log_end_offset, each.durable_end) == (start, start, start)
        assert (each.size_bytes, each.high_watermark_checkpoint) == (0, start)
        assert each.last_epoch == -1, "what lay before is not known any more"
        assert not each.recovery.cut_reason
        assert not each.recovery.cut_below_recovery_point
        with pytest.raises(OffsetOutOfRangeError):
            await each.read(Offset(start - 1), max_bytes=1, up_to=END)
    replicate(log, range(start, start + 60), 5)
    await log.sync()
    again = open_log(directory, threads, SMALL)
    for each in (log, again):
        assert await values_from(each, start) == list(range(start, start + 60))
    assert epochs_of(again)[-1] == EpochStart(LeaderEpoch(5), Offset(start))
    assert not again.recovery.damaged_files
    assert again.recovery.checkpoints_whole


@pytest.mark.parametrize("deleted", [0, 3, 25, 40])
@pytest.mark.parametrize("started", [0, 1_000])
async def test_should_forget_all_when_it_is_of_another_history(
    log: PartitionLog, directory: Path, threads: StorageThreads, deleted: int, started: int
) -> None:
    """Its start too, which may lie within a segment, at the end of the log, or above where it once ended."""
    if started:
        fill(log, 2)
        await log.start_at(Offset(started))
    log.append([raw_batch(1, numbers=ProducerNumbers(77, 0, 0))], LeaderEpoch(5), NOW_MS)
    replicate(log, range(started + 1, started + 40), 5)
    await log.sync()
    await log.checkpoint_high_watermark(Offset(started + 40))
    await log.delete_before(Offset(started + deleted))
    PartitionFiles(directory).write_clean_points(CleanPoints([CleanPoint(Offset(started + 18), NOW_MS, 0)]))

    await log.start_at(Offset(0))

    assert log_bytes(directory) == b""
    assert [path.stem for path in log_files(directory)] == [f"{0:020d}"]
    for each in (log, open_log(directory, threads, SMALL)):
        assert (each.log_start_offset, each.log_end_offset, each.durable_end) == (0, 0, 0)
        assert (each.size_bytes, each.high_watermark_checkpoint, each.last_epoch) == (0, 0, -1)
        assert not each.recovery.cut_reason
        assert 77 not in each.producers.states() or each.producers.states()[77].next_sequence == 0
    assert PartitionFiles(directory).clean_points().end == 0
    replicate(log, range(60), 3)
    await log.sync()
    again = open_log(directory, threads, SMALL)
    for each in (log, again):
        assert await values_from(each, 0) == list(range(60))
    assert epochs_of(again) == [EpochStart(LeaderEpoch(3), Offset(0))]
    assert not again.recovery.damaged_files


async def test_should_only_start_above_its_end_or_at_the_first_offset(log: PartitionLog) -> None:
    fill(log, 5)
    with pytest.raises(AssertionError, match="truncate instead"):
        await log.start_at(Offset(4))


async def test_should_go_on_appending_and_rolling(log: PartitionLog, directory: Path, threads: StorageThreads) -> None:
    fill(log, 30)
    await log.start_at(START)
    fill(log, 60)
    assert len(log_files(directory)) > 3
    assert await values_from(log, START) == list(range(1_000, 1_060))
    assert await log.truncate(Offset(1_030)) == 1_030
    assert await values_from(open_log(directory, threads, SMALL), START) == list(range(1_000, 1_030))


async def test_should_cut_back_to_its_new_start(log: PartitionLog) -> None:
    fill(log, 30)
    await log.start_at(START)
    fill(log, 30)
    assert await log.truncate(START) == 1_000
    assert (log.log_start_offset, log.size_bytes) == (1_000, 0)


async def test_should_remember_producers(log: PartitionLog, directory: Path, threads: StorageThreads) -> None:
    log.append([raw_batch(3, numbers=ProducerNumbers(77, 0, 0))], EPOCH, NOW_MS)
    await log.start_at(START)
    for each in (log, open_log(directory, threads, SMALL)):
        assert each.producers.states()[77].next_sequence == 3


async def test_should_keep_what_says_how_far_it_was_compacted_and_committed(log: PartitionLog, directory: Path) -> None:
    """Both are below: nothing new is taken for compacted, and nothing counts as lost."""
    fill(log, 30)
    await log.sync()
    await log.checkpoint_high_watermark(Offset(20))
    PartitionFiles(directory).write_clean_points(CleanPoints([CleanPoint(Offset(18), NOW_MS, 0)]))
    await log.start_at(START)
    assert PartitionFiles(directory).high_watermark() == 20
    assert PartitionFiles(directory).clean_points().end == 18
    await log.checkpoint_high_watermark(Offset(1_000))
    assert PartitionFiles(directory).high_watermark() == 1_000


async def test_should_be_as_it_was_when_the_disk_is_full(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 40)
    await log.sync()
    with file_size_limit(10), pytest.raises(DiskFullError):
        await log.start_at(START)
    for each in (log, open_log(directory, threads, SMALL)):
        assert await values_from(each, 0) == list(range(40))
        assert each.last_epoch == 1
        assert not each.recovery.cut_reason
    await log.start_at(START)
    assert log.log_end_offset == 1_000


async def test_should_be_as_it_was_when_there_is_no_room_to_begin_at_0(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    await log.start_at(START)
    fill(log, 40)
    await log.sync()
    with file_size_limit(10), pytest.raises(DiskFullError):
        await log.start_at(Offset(0))
    for each in (log, open_log(directory, threads, SMALL)):
        assert await values_from(each, START) == list(range(1_000, 1_040))
        assert not each.recovery.cut_reason
    await log.start_at(Offset(0))
    assert log.log_end_offset == 0


async def test_should_be_over_when_nobody_knows_where_it_starts(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 40)
    await log.sync()

    def fail(path: object) -> None:
        if "log-start" in str(path):
            raise OSError(5, os.strerror(5))

    with before_each(("rename",), fail), pytest.raises(StorageFailedError, match="starting the log anew"):
        await log.start_at(START)
    with pytest.raises(StorageFailedError):
        log.append([raw_batch()], EPOCH, NOW_MS)
    again = open_log(directory, threads, SMALL)
    assert await values_from(again, 0) == list(range(40))
    assert not again.recovery.cut_below_recovery_point


class _DiedError(Exception):
    pass


async def test_should_be_what_it_was_or_empty_at_its_new_start_wherever_it_died(
    tmp_path: Path, threads: StorageThreads
) -> None:
    """Before each call that changes a file. Whatever is left is a log, nothing counts as lost, and it can go on."""
    steps, finished, seen = 0, False, set[int]()
    while not finished:
        parent = tmp_path / str(steps)
        parent.mkdir()
        log = open_log(new_log_directory(parent), threads, SMALL)
        fill(log, 60)
        await log.sync()
        await log.checkpoint_high_watermark(Offset(60))

        finished = start_and_die(lambda log=log: log._start_at(START), steps)  # type: ignore[misc]

        again = open_log(log.directory, threads, SMALL)
        end = again.log_end_offset
        seen.add(end)
        assert end == 1_000 if finished else end in (60, 1_000)
        assert await values_from(again, again.log_start_offset) == (list(range(60)) if end == 60 else [])
        report = again.recovery
        assert report.checkpoints_whole
        assert not report.cut_below_recovery_point
        assert not report.cut_below_high_watermark
        await again.start_at(START)
        fill(again, 3)
        assert await values_from(open_log(log.directory, threads, SMALL), START) == [1_000, 1_001, 1_002]
        steps += 1
    assert steps > 20, "files of five segments and three checkpoints"
    assert seen == {60, 1_000}


@pytest.mark.parametrize("begun", [0, 1_000])
async def test_should_be_what_it_was_a_part_of_it_or_empty_at_0_wherever_it_died(
    tmp_path: Path, threads: StorageThreads, begun: int
) -> None:
    """It is of another history then, and can be cut and go on as the leader's has it, in whatever epoch."""
    steps, finished, seen = 0, False, set[int]()
    while not finished:
        parent = tmp_path / str(steps)
        parent.mkdir()
        log = open_log(new_log_directory(parent), threads, SMALL)
        if begun:
            await log.start_at(Offset(begun))
        replicate(log, range(begun, begun + 60), 5)
        await log.sync()
        await log.checkpoint_high_watermark(Offset(begun + 60))
        await log.delete_before(Offset(begun + 21))

        finished = start_and_die(lambda log=log: log._discard(Offset(0)), steps)  # type: ignore[misc]

        again = open_log(log.directory, threads, SMALL)
        start, end = again.log_start_offset, again.log_end_offset
        seen.add(end)
        assert end == 0 if finished else end <= begun + 60
        assert await values_from(again, start) == list(range(start, end))
        assert again.last_epoch == (5 if end > start else -1), "nothing of the old epochs is left where nothing else is"
        assert again.recovery.checkpoints_whole
        assert not again.recovery.cut_below_recovery_point
        assert not again.recovery.cut_below_high_watermark
        await again.start_at(Offset(0))
        replicate(again, range(3), 2)
        assert await values_from(open_log(log.directory, threads, SMALL), 0) == [0, 1, 2]
        steps += 1
    assert {0, begun + 60} <= seen


def start_and_die(start: Callable[[], None], steps: int) -> bool:
    """It dies after so many changes to files; whether it came to its end before."""
    left = steps

    def live_on(_: object) -> None:
        nonlocal left
        if left == 0:
            raise _DiedError
        left -= 1

    with before_each(("unlink", "rename", "open"), live_on):
        try:
            start()
        except _DiedError:
            return False
    return True
