"""A log whose disk is full, out of files, damaged or failing."""

import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import FileHandle
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
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
    open_log,
    raw_batch,
    values_from,
)


@contextmanager
def replaced_by(fd: int, path: str) -> Iterator[None]:
    """The descriptor stands for another file for a while: what the kernel refuses there, it refuses here."""
    other, saved = os.open(path, os.O_RDWR), os.dup(fd)
    os.dup2(other, fd, inheritable=False)
    try:
        yield
    finally:
        os.dup2(saved, fd, inheritable=False)
        os.close(saved)
        os.close(other)


@contextmanager
def files_left(count: int) -> Iterator[None]:
    """This process can open so many more files."""
    gc.collect()  # handles of other tests, let go of meanwhile, would leave more
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY)]
    while held[-1] < 200:
        held.append(os.open("/dev/null", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in held:
            os.close(fd)


async def test_should_go_on_when_the_disk_was_full_and_has_room_again(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 3)
    before = log_bytes(directory)
    with file_size_limit(len(before) + 100), pytest.raises(DiskFullError, match="free some space"):
        log.append([raw_batch(), raw_batch(3, 500)], EPOCH, NOW_MS)

    assert log_bytes(directory) == before
    fill(log, 30)
    assert await values_from(log, 0) == list(range(33))
    await log.sync()
    assert open_log(directory, threads).log_end_offset == 33


async def test_should_go_on_in_the_old_segment_when_the_disk_is_full_at_a_roll(log: PartitionLog) -> None:
    fill(log, 16)
    with file_size_limit(0), pytest.raises(DiskFullError):
        log.append([raw_batch(1, 9_000)], EPOCH, NOW_MS)
    assert await log.sync() == 16
    log.append([raw_batch(1, 9_000)], EPOCH, NOW_MS)
    await log.sync()
    assert await values_from(log, 0) == list(range(17))


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_should_go_on_in_the_old_segment_when_no_more_files_can_be_opened(log: PartitionLog, left: int) -> None:
    fill(log, 12)
    with files_left(left):
        for _ in range(3):
            with pytest.raises(ThrottledError, match="ulimit -n"):
                log.append([raw_batch(1, 9_000)], EPOCH, NOW_MS)
        assert log._syncer.unsynced_segments == 1
        assert await log.sync() == 12
    log.append([raw_batch(1, 9_000)], EPOCH, NOW_MS)
    await log.sync()
    assert len(log_files(log.directory)) == 2
    assert await values_from(log, 0) == list(range(13))


async def test_should_tell_readers_to_wait_when_no_more_files_can_be_opened(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    for _ in range(3):
        log.append([raw_batch(1, 9_000)], EPOCH, NOW_MS)
    log.close()
    again = open_log(directory, threads)
    with files_left(0), pytest.raises(ThrottledError, match="ulimit -n"):
        await again.read(Offset(0), max_bytes=1, up_to=Offset(3))
    assert await values_from(again, 0) == [0, 1, 2]


async def test_should_be_over_when_an_append_cannot_be_cut_back(log: PartitionLog) -> None:
    fill(log, 3)
    with (
        replaced_by(log._segments.active.log.fd, "/dev/full"),
        pytest.raises(StorageFailedError, match=r"cutting .* back failed"),
    ):
        log.append([raw_batch()], EPOCH, NOW_MS)
    with pytest.raises(StorageFailedError):
        log.append([raw_batch()], EPOCH, NOW_MS)
    with pytest.raises(StorageFailedError):
        await log.sync()
    assert log.log_end_offset == 3


async def test_should_cut_to_what_was_durable_when_a_sync_has_failed(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 30)
    await log.sync()
    fill(log, 30)
    # fdatasync refuses a character device with EINVAL, as it would report a failed write of the disk with EIO.
    with replaced_by(log._segments.active.log.fd, "/dev/null"), pytest.raises(StorageFailedError, match="fdatasync"):
        await log.sync()
    with pytest.raises(StorageFailedError):
        await log.sync()
    with pytest.raises(StorageFailedError, match="fdatasync"):
        log.close()

    for _ in range(2):
        log = open_log(directory, threads, SMALL)
        assert log.log_end_offset == log.durable_end == 30
        assert not log.recovery.cut_below_recovery_point
    assert log.recovery.cut_bytes == 0
    fill(log, 3)
    log.close()
    assert open_log(directory, threads, SMALL).log_end_offset == 33


@pytest.mark.parametrize(
    "part",
    [
        lambda log: log._segments.active.log,
        lambda log: log._syncer._rolled[0].log,
        lambda log: log._syncer._rolled[-1].log,
        lambda log: log._syncer._rolled[0].indexes.by_offset.handle,
        lambda log: log._syncer._rolled[0].indexes.by_time.handle,
        lambda log: log._segments.active.indexes.by_offset.handle,
        lambda log: log._segments.active.indexes.by_time.handle,
        lambda log: log._syncer._directory,
    ],
)
async def test_should_not_call_anything_durable_when_one_of_its_files_is_not(
    log: PartitionLog, part: Callable[[PartitionLog], FileHandle]
) -> None:
    fill(log, 40)
    assert len(log._syncer._rolled) == 3
    with replaced_by(part(log).fd, "/dev/null"), pytest.raises(StorageFailedError):
        await log.sync()
    assert log._syncer._recovery_point.offset == 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
async def test_should_build_an_index_again_when_it_is_damaged_while_the_log_is_open(
    log: PartitionLog, suffix: str
) -> None:
    fill(log, 100)
    for path in log.directory.glob(f"*{suffix}"):
        content = path.read_bytes()
        fd = os.open(path, os.O_WRONLY)
        os.pwrite(fd, bytes(len(content)), 0)
        os.close(fd)

    for i in (99, 0, 50, 71, 3):
        assert (await values_from(log, i))[0] == i
        assert await log.find_timestamp(NOW_MS + 10 * i, END) == (i, NOW_MS + 10 * i)
    fill(log, 30)
    assert await values_from(log, 0) == list(range(130))


async def test_should_name_file_and_position_when_a_closed_segment_is_damaged(
    directory: Path, log: PartitionLog
) -> None:
    fill(log, 40)
    first = log_files(directory)[0]
    damaged = BatchHeader.unpack(first.read_bytes()).batch_bytes * 2
    flip_bit(first, 8 * (damaged + 5))

    with pytest.raises(CorruptLogError, match=rf"{first.name} is damaged at position {damaged}"):
        await log.read(Offset(2), max_bytes=1, up_to=END)
    assert (await values_from(log, 10))[0] == 10


async def test_should_say_so_when_a_closed_segment_lost_its_end(
    directory: Path, log: PartitionLog, threads: StorageThreads
) -> None:
    fill(log, 40)
    log.close()
    first = log_files(directory)[0]
    os.truncate(first, first.stat().st_size // 2)
    log = open_log(directory, threads, SMALL)

    with pytest.raises(CorruptLogError, match="ends before offset 9"):
        await log.read(Offset(9), max_bytes=1, up_to=END)
    assert (await values_from(log, 20))[0] == 20


async def test_should_stay_open_when_the_disk_is_full_at_the_recovery_point(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, 20)
    with file_size_limit(0):
        assert await log.sync() == 20
    assert open_log(directory, threads, SMALL).recovery.scanned_bytes == len(log_bytes(directory))


def test_should_say_what_failed_when_the_directory_cannot_be_opened(threads: StorageThreads, tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError, match=r"opening the log in .* No such file"):
        open_log(tmp_path / "none", threads)


async def test_should_sync_names_and_closed_segments_only_once(log: PartitionLog) -> None:
    fill(log, 40)
    closed = log._syncer._rolled[0].log
    await log.sync()
    fill(log, 1)
    with replaced_by(closed.fd, "/dev/null"), replaced_by(log._syncer._directory.fd, "/dev/null"):
        assert await log.sync() == 41
