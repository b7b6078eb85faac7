"""A cut that fails or dies half-way: a log is left that opens, and none that lost what it vouched for."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.errors import CorruptLogError, DiskFullError, StorageFailedError
from headrace.core.types import LeaderEpoch, Offset
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
    flip_bit,
    log_bytes,
    log_files,
    new_log_directory,
    open_log,
    raw_batch,
    values_from,
)


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
