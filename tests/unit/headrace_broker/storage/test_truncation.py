"""Cutting off the end of a log: what is left, now and after a crash, and what else has to know.

A cut that fails or dies half-way: a log is left that opens, and none that lost what it vouched for.

Reads and syncs that are under way while a log is cut: clean data, the right end, or another look.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    OffsetOutOfRangeError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.log.compaction import CleanPoint, CleanPoints
from headrace.core.log.epochs import EpochStart
from headrace.core.log.retention import Retention
from headrace.core.records.header import BatchHeader, ProducerNumbers
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.disk import Buffer, FileHandle, read_blocking
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.segment_set import SegmentGoneError
from headrace_broker.storage.threads import StorageThreads
from tests.support.failing_disk import before_each
from tests.support.logs import (
    END,
    EPOCH,
    NOW_MS,
    SMALL,
    file_size_limit,
    fill,
    flip_bit,
    log_bytes,
    log_files,
    new_log_directory,
    open_log,
    raw_batch,
    values_from,
)
from tests.support.patience import patient
from tests.support.replicas import epochs_of, replicate, stamped


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("end", [0, 1, 17, 18, 19, 50, 98, 99])
async def test_should_end_where_it_was_cut_now_and_after_a_crash(
    log: PartitionLog, directory: Path, threads: StorageThreads, end: int, synced: bool
) -> None:
    fill(log, 50)
    fill(log, 50, epoch=LeaderEpoch(7))
    if synced:
        await log.sync()
    kept = log_bytes(directory)[: end * len(log_bytes(directory)) // 100]

    assert await log.truncate(Offset(end)) == end

    assert log_bytes(directory) == kept
    assert (log.log_end_offset, log.durable_end, log.size_bytes) == (end, end, len(kept))
    assert log.last_epoch == (-1 if end == 0 else 1 if end <= 50 else 7)
    for each in (log, open_log(directory, threads, SMALL)):
        assert not each.recovery.cut_bytes
        assert await values_from(each, 0) == list(range(end))
        assert epochs_of(each) == epochs_of(log)
    replicate(log, range(end, 110), 5) if end <= 50 else fill(log, 110 - end, epoch=LeaderEpoch(7))
    assert await values_from(log, 0) == list(range(110))
    await log.sync()
    again = open_log(directory, threads, SMALL)
    assert (again.log_end_offset, epochs_of(again)) == (110, epochs_of(log))
    assert await values_from(again, 0) == list(range(110))
    assert not again.recovery.damaged_files


async def test_should_forget_an_epoch_that_was_cut_off_in_an_earlier_life(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    """The file may name it for long: it counts up to the recovery point only, which later moves beyond."""
    fill(log, 9)
    fill(log, 5, epoch=LeaderEpoch(7))
    log.close()
    await open_log(directory, threads, SMALL).truncate(Offset(6))
    again = open_log(directory, threads, SMALL)
    fill(again, 10)
    again.close()
    assert epochs_of(open_log(directory, threads, SMALL)) == [(1, 0)]


async def test_should_take_whatever_comes_once_all_is_deleted_or_cut_off(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    """Epochs of deleted records are forgotten, also where the file still names them: nothing is cut for them."""
    for epoch in (1, 7, 9):
        fill(log, 10, epoch=LeaderEpoch(epoch))
    log.close()
    log = open_log(directory, threads, SMALL)
    await log.delete_before(Offset(20))
    assert await log.truncate(Offset(20)) == 20
    replicate(log, range(20, 23), 3)
    await log.sync()
    again = open_log(directory, threads, SMALL)
    assert not again.recovery.cut_reason
    assert await values_from(again, 20) == [20, 21, 22]
    assert epochs_of(again) == [(3, 20)]


async def test_should_cut_off_the_batch_that_holds_the_end(log: PartitionLog) -> None:
    log.append([raw_batch(4), raw_batch(5), raw_batch(6)], EPOCH, NOW_MS)
    assert await log.truncate(Offset(8)) == 4
    assert await log.truncate(Offset(9)) == 4
    assert await log.truncate(Offset(3)) == 0


async def test_should_put_all_on_disk_when_there_is_nothing_to_cut(log: PartitionLog) -> None:
    fill(log, 40)
    assert await log.truncate(Offset(40)) == 40
    assert log.durable_end == 40


async def test_should_refuse_to_cut_below_its_start(log: PartitionLog) -> None:
    fill(log, 40)
    await log.delete_before(Offset(20))
    with pytest.raises(OffsetOutOfRangeError, match="cannot cut at 19: the log starts at 20"):
        await log.truncate(Offset(19))
    assert await log.truncate(Offset(20)) == 20
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


async def test_should_start_lower_when_it_started_within_the_batch_that_goes(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    log.append([raw_batch(4), raw_batch(5)], EPOCH, NOW_MS)
    await log.delete_before(Offset(6))
    assert await log.truncate(Offset(7)) == 4
    assert log.log_start_offset == 4
    replicate(log, range(4, 6), 1)
    for each in (log, open_log(directory, threads, SMALL)):
        assert (each.log_start_offset, each.log_end_offset) == (4, 6)


async def test_should_refuse_to_cut_what_is_committed_unless_it_is_known_to_be_lost(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 60)
    await log.sync()
    await log.checkpoint_high_watermark(Offset(30))
    before = log_bytes(directory)

    with pytest.raises(CorruptLogError, match=r"at offset 29 would take away what is committed: .* checkpoint is 30"):
        await log.truncate(Offset(29))
    assert (log_bytes(directory), log.log_end_offset) == (before, 60)
    assert await log.truncate(Offset(30)) == 30
    assert await log.truncate(Offset(29), allow_below_high_watermark=True) == 29

    assert log.high_watermark_checkpoint == 29
    report = open_log(directory, threads, SMALL).recovery
    assert not report.cut_below_high_watermark


async def test_should_find_nothing_of_what_was_cut_when_other_records_take_its_place(log: PartitionLog) -> None:
    fill(log, 100)
    assert await values_from(log, 0) == list(range(100))  # positions, open segments and times are remembered now
    assert await log.find_timestamp(NOW_MS + 500, END) == (50, NOW_MS + 500)
    await log.truncate(Offset(20))

    for offset in range(20, 120):
        log.append_replicated([raw_batch(1, 700, 5).stamp(Offset(offset), LeaderEpoch(2))], NOW_MS)

    assert await values_from(log, 0) == list(range(120))
    for offset in range(120):
        assert await values_from(log, offset) == list(range(offset, 120))
    assert await log.find_timestamp(NOW_MS + 191, END) is None
    assert await log.find_timestamp(NOW_MS + 100, END) == (10, NOW_MS + 100)


async def test_should_count_as_not_compacted_above_the_cut(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 100)
    await log.sync()
    files = PartitionFiles(directory)
    files.write_clean_points(CleanPoints([CleanPoint(Offset(40), 1, 0)]))
    await log.truncate(Offset(40))
    assert files.clean_points().end == 40
    await log.truncate(Offset(39))
    assert files.clean_points().end == 0
    assert open_log(directory, threads, SMALL).log_end_offset == 39


async def test_should_forget_the_epochs_of_deleted_records_but_not_the_last(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    for epoch in range(1, 11):
        fill(log, 10, epoch=LeaderEpoch(epoch))
    await log.delete_before(Offset(55))
    assert epochs_of(log)[0] == (6, 50)
    await log.delete_before(Offset(100))
    assert log.epochs.starts == (EpochStart(LeaderEpoch(10), Offset(90)),)
    log.close()
    assert open_log(directory, threads, SMALL).last_epoch == 10


async def test_should_forget_the_batches_of_producers_that_are_cut_off(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    for sequence in range(4):
        log.append([raw_batch(1, 1000, NOW_MS, ProducerNumbers(7, 0, sequence))], EPOCH, NOW_MS)
    await log.sync()
    log.close()
    log = open_log(directory, threads, SMALL)
    await log.truncate(Offset(2))
    for each in (log, open_log(directory, threads, SMALL)):
        assert [batch.last_offset for batch in each.producers.states()[7].batches] == [0, 1]
        assert each.producers.states()[7].next_sequence == 2


async def test_should_know_how_old_a_segment_is_that_took_the_place_of_another(log: PartitionLog) -> None:
    fill(log, 40)
    assert await log.expired(Retention(100, None), Offset(40), NOW_MS + 1_000)
    await log.truncate(Offset(0))
    for offset in range(40):
        log.append_replicated([raw_batch(1, 1000, NOW_MS + 999).stamp(Offset(offset), EPOCH)], NOW_MS)
    assert await log.expired(Retention(100, None), Offset(40), NOW_MS + 1_000) == []


async def test_should_put_on_disk_what_is_left_and_none_of_what_is_gone(log: PartitionLog, directory: Path) -> None:
    fill(log, 30)
    await log.sync()
    fill(log, 30)
    assert len(log_files(directory)) == 5
    synced = list[str]()

    def note(fd: int) -> None:
        synced.append(os.path.realpath(f"/proc/self/fd/{fd}"))

    with before_each(("fsync", "fdatasync"), note):
        await log.truncate(Offset(30))

    left = list(map(str, log_files(directory)))
    assert len(left) == 3
    assert {left[-1], str(directory)} <= {*synced}
    assert not [path for path in synced if "deleted" in path]
    assert {f"{base:020d}" for base in log._segments._closed} <= {path.stem for path in log_files(directory)}


def failing_for(path: Path) -> Callable[[int], None]:
    def act(fd: int) -> None:
        if os.path.realpath(f"/proc/self/fd/{fd}") == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    return act


@pytest.mark.parametrize("kind", ["ftruncate", "fsync"])
async def test_should_be_over_when_the_disk_fails_half_way(
    log: PartitionLog, directory: Path, threads: StorageThreads, kind: str
) -> None:
    fill(log, 100)
    await log.sync()
    with (
        before_each((kind,), failing_for(log_files(directory)[0])),
        pytest.raises(StorageFailedError, match="cutting the log in"),
    ):
        await log.truncate(Offset(5))

    assert log.durable_end == 5
    with pytest.raises(StorageFailedError):
        log.append([raw_batch()], EPOCH, NOW_MS)
    with pytest.raises(StorageFailedError):
        await log.truncate(Offset(4))
    with pytest.raises(StorageFailedError):
        await log.sync()
    again = open_log(directory, threads, SMALL)
    assert await values_from(again, 0) == list(range(5))
    assert not again.recovery.cut_below_recovery_point


async def test_should_tell_readers_when_only_the_next_start_knows_what_is_left(
    log: PartitionLog, directory: Path
) -> None:
    fill(log, 100)
    with (
        before_each(("ftruncate",), failing_for(log_files(directory)[0])),
        pytest.raises(StorageFailedError),
    ):
        await log.truncate(Offset(5))
    with pytest.raises(StorageFailedError, match="the next start can tell"):
        await log.read(Offset(0), max_bytes=1, up_to=END)


async def test_should_be_as_it_was_when_the_disk_is_too_full_to_say_that_less_is_left(log: PartitionLog) -> None:
    fill(log, 40)
    await log.sync()
    with file_size_limit(10), pytest.raises(DiskFullError):
        await log.truncate(Offset(5))
    assert log.log_end_offset == 40
    assert await values_from(log, 0) == list(range(40))
    assert await log.truncate(Offset(5)) == 5


async def test_should_be_as_it_was_when_its_segment_cannot_be_opened(log: PartitionLog, directory: Path) -> None:
    fill(log, 40)
    await log.sync()
    first = log_files(directory)[0]
    hidden = first.rename(first.with_suffix(".hidden"))
    with pytest.raises(StorageFailedError, match="opening what is left"):
        await log.truncate(Offset(5))
    hidden.rename(first)
    assert log.log_end_offset == 40
    assert await log.truncate(Offset(5)) == 5


async def test_should_cut_where_an_index_is_damaged(log: PartitionLog, directory: Path) -> None:
    fill(log, 100)
    for path in indexes(directory):
        fd = os.open(path, os.O_WRONLY)
        os.pwrite(fd, bytes(path.stat().st_size), 0)
        os.close(fd)
    assert await log.truncate(Offset(30)) == 30
    assert await values_from(log, 0) == list(range(30))


async def test_should_be_as_it_was_when_the_place_is_damaged(log: PartitionLog, directory: Path) -> None:
    fill(log, 40)
    await log.sync()
    for path in indexes(directory):
        path.write_bytes(b"")
    flip_bit(log_files(directory)[0], 8 * 5)
    with pytest.raises(CorruptLogError):
        await log.truncate(Offset(5))
    assert log.log_end_offset == 40


def indexes(directory: Path) -> list[Path]:
    return [*directory.glob("*.index"), *directory.glob("*.timeindex")]


class _DiedError(Exception):
    pass


async def test_should_open_as_a_log_whatever_a_crash_left_of_a_cut(tmp_path: Path, threads: StorageThreads) -> None:
    """It dies before each call that changes a file: what is left is a part of what was, and nothing counts as lost."""
    steps, finished = 0, False
    while not finished:
        parent = tmp_path / str(steps)
        parent.mkdir()
        log = open_log(new_log_directory(parent), threads, SMALL)
        fill(log, 50)
        fill(log, 50, epoch=LeaderEpoch(9))
        await log.sync()
        await log.checkpoint_high_watermark(Offset(30))
        whole = log_bytes(log.directory)

        finished = cut_and_die(log, Offset(31), steps)

        again = open_log(log.directory, threads, SMALL)
        end = again.log_end_offset
        assert end == 31 if finished else 31 <= end <= 100
        assert whole.startswith(log_bytes(log.directory))
        assert await values_from(again, 0) == list(range(end))
        report = again.recovery
        assert report.checkpoints_whole
        assert not report.cut_below_recovery_point
        assert not report.cut_below_high_watermark
        assert await again.truncate(Offset(31)) == 31
        steps += 1
    assert steps > 20, "files of seven segments and a checkpoint"


def cut_and_die(log: PartitionLog, end: Offset, steps: int) -> bool:
    """It dies after so many changes to files; whether it came to its end before."""
    left = steps

    def live_on(_: object) -> None:
        nonlocal left
        if left == 0:
            raise _DiedError
        left -= 1

    with before_each(("unlink", "ftruncate", "rename"), live_on):
        try:
            log._truncate(end, allow_below_high_watermark=False)
        except _DiedError:
            return False
    return True


@pytest.mark.parametrize("back", range(1, 32))
async def test_should_open_as_a_log_when_some_changes_to_files_were_lost_with_the_power(
    log: PartitionLog, directory: Path, threads: StorageThreads, back: int
) -> None:
    """Before the last sync of a cut the disk has any of its changes to segments, but all of its checkpoints."""
    fill(log, 60)
    await log.sync()
    whole = log_bytes(directory)
    before = {path: path.read_bytes() for path in log_files(directory)}
    assert len(before) == 5
    await log.truncate(Offset(5))

    for i, (path, content) in enumerate(before.items()):
        if back & 1 << i:
            path.write_bytes(content)

    again = open_log(directory, threads, SMALL)
    assert whole.startswith(log_bytes(directory))
    assert await values_from(again, 0) == list(range(again.log_end_offset))
    assert again.log_end_offset >= 5
    assert again.recovery.checkpoints_whole
    assert not again.recovery.cut_below_recovery_point


@contextmanager
def slow_disk() -> Iterator[threading.Event]:
    """Says when an fdatasync has begun, which comes back at the end of the block."""
    began, may_go, fdatasync = threading.Event(), threading.Event(), os.fdatasync

    def slow(fd: int) -> None:
        began.set()
        assert may_go.wait(patient(10))
        fdatasync(fd)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fdatasync", slow)
            yield began
    finally:
        may_go.set()


async def test_should_append_and_roll_nothing_before_the_cut_is_on_disk(log: PartitionLog) -> None:
    fill(log, 60)
    with slow_disk() as began:
        syncing = asyncio.create_task(log.sync())
        await asyncio.to_thread(began.wait, 10)
        cutting = asyncio.create_task(log.truncate(Offset(20)))
        await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="before the cut is on disk"):
            log.append([raw_batch()], EPOCH, NOW_MS)
        with pytest.raises(ThrottledError, match="being cut"):
            log._appender.close_active()
        assert not cutting.done()

    assert await cutting == 20
    await syncing
    assert log.durable_end == 20
    fill(log, 5)
    assert (log.durable_end, log.log_end_offset) == (20, 25)


async def test_should_report_no_more_than_is_left_when_a_sync_had_covered_more(log: PartitionLog) -> None:
    fill(log, 60)
    with slow_disk() as began:
        syncing = asyncio.create_task(log.sync())
        await asyncio.to_thread(began.wait, 10)
    # The loop stands still meanwhile, so that the sync comes back before the cut and is heard of after it.
    log._truncate(Offset(20), allow_below_high_watermark=False)
    fill(log, 30)
    assert await syncing == 20


def cutting(log: PartitionLog, end: int, then: Callable[[], None]) -> Callable[[FileHandle, int, int], Buffer]:
    """Reads as the thread of a reader, before whose first look at a file the log is cut."""
    before = log.log_end_offset

    def read(file: FileHandle, position: int, length: int) -> Buffer:
        if log.log_end_offset == before:
            log._truncate(Offset(end), allow_below_high_watermark=False)
            then()
        return read_blocking(file, position, length)

    return read


@pytest.mark.parametrize("end", [45, 14, 5])
async def test_should_throw_away_what_was_read_of_two_histories(log: PartitionLog, end: int) -> None:
    """What is written anew lies where the reader looks, in the same file, and its batches begin elsewhere."""

    def write_anew() -> None:
        for offset in range(end, 90):
            log.append_replicated([stamped(offset, 2, value_bytes=1237)], NOW_MS)

    fill(log, 50)
    reader, read = log._reader, cutting(log, end, write_anew)
    with pytest.raises(SegmentGoneError):
        reader._of_one_history(lambda read: reader._read(read, Offset(13), 9_000, END), read)
    assert await values_from(log, 0) == list(range(90))


def test_should_have_a_reader_look_again_when_the_cut_shows_as_damage(log: PartitionLog) -> None:
    fill(log, 50)
    reader, read = log._reader, cutting(log, 14, lambda: None)
    with pytest.raises(SegmentGoneError) as seen:
        reader._of_one_history(lambda read: reader._read(read, Offset(20), 9_000, END), read)
    assert isinstance(seen.value.__cause__, CorruptLogError)


async def test_should_say_so_when_a_reader_comes_for_what_was_cut_off(log: PartitionLog) -> None:
    fill(log, 50)
    await log.truncate(Offset(20))
    with pytest.raises(OffsetOutOfRangeError, match="21 was cut off just now"):
        await log._reader.read(Offset(21), 1_000, END)
    assert await log._reader.read(Offset(20), 1_000, END) == []


async def test_should_have_readers_wait_for_a_cut_that_is_being_made(log: PartitionLog) -> None:
    fill(log, 50)
    segments = log._segments
    with segments._opening:
        segments.is_being_cut = True
        assert log.read_cached(Offset(0), max_bytes=10, up_to=END) is None
        reading = asyncio.create_task(log.read(Offset(0), max_bytes=10, up_to=END))
        await asyncio.sleep(0)
        assert not reading.done()
        segments.is_being_cut = False
    (buffer,) = await reading
    assert BatchHeader.unpack(buffer).base_offset == 0


async def test_should_take_what_replaced_it_for_another_segment(log: PartitionLog) -> None:
    """Open files, positions, times: all that is remembered of a segment that was cut and filled again."""
    fill(log, 100)
    assert await values_from(log, 0) == list(range(100))
    await log.truncate(Offset(20))
    for offset in range(20, 120):
        log.append_replicated([raw_batch(1, 700, 5).stamp(Offset(offset), LeaderEpoch(2))], NOW_MS)
    for offset in range(120):
        assert await values_from(log, offset) == list(range(offset, 120))
