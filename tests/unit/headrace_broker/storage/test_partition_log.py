"""Appending to a log and reading it, also while the disk is slow.

A log whose disk is full, out of files, damaged or failing.

A follower's log takes batches as its leader has stamped them, and none that does not follow.
"""

import asyncio
import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    DivergedLogError,
    FencedEpochError,
    OffsetOutOfRangeError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.records.columns import decode_batches
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import HEARTBEAT, emptied_batch, split_replicated
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.disk import FileHandle
from headrace_broker.storage.log_reader import READ_POSITIONS_MAX
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.batches import packed
from tests.support.logs import (
    CONFIG,
    END,
    EPOCH,
    NOW_MS,
    SMALL,
    content_of,
    file_size_limit,
    fill,
    flip_bit,
    log_bytes,
    log_files,
    open_log,
    raw_batch,
    values_from,
)
from tests.support.replicas import epochs_of, replicate, stamped
from tests.support.waiting import eventually


async def test_should_read_all_in_order_when_segments_roll(log: PartitionLog) -> None:
    fill(log, 300)
    assert len(log_files(log.directory)) > 5
    assert await values_from(log, 0) == list(range(300))
    assert await values_from(log, 123) == list(range(123, 300))


async def test_should_give_one_whole_batch_when_it_is_larger_than_asked_for(log: PartitionLog) -> None:
    log.append([raw_batch(5, 2_000)], EPOCH, NOW_MS)
    (buffer,) = await log.read(Offset(3), max_bytes=1, up_to=END)
    assert bytes(buffer) == log_bytes(log.directory)


async def test_should_write_the_buffers_as_they_are_when_there_are_more_than_one_writev_takes(
    log: PartitionLog,
) -> None:
    batches = [raw_batch() for _ in range(700)]
    assert sum(len(batch.buffers) for batch in batches) > 1024
    log.append(batches, EPOCH, NOW_MS)
    assert log_bytes(log.directory) == b"".join(map(content_of, batches))


async def test_should_say_the_valid_range_when_an_offset_is_out_of_it(log: PartitionLog) -> None:
    fill(log, 3)
    assert await log.read(Offset(3), max_bytes=10, up_to=END) == []
    with pytest.raises(OffsetOutOfRangeError, match="offset 4 is out of range: the log holds 0 to 3"):
        await log.read(Offset(4), max_bytes=10, up_to=END)
    with pytest.raises(OffsetOutOfRangeError):
        await log.read(Offset(-1), max_bytes=10, up_to=END)


def test_should_refuse_an_epoch_that_is_over(log: PartitionLog) -> None:
    log.append([raw_batch()], LeaderEpoch(5), NOW_MS)
    with pytest.raises(FencedEpochError, match="epoch 4 is over: the log holds 5"):
        log.append([raw_batch()], LeaderEpoch(4), NOW_MS)
    assert (log.last_epoch, log.log_end_offset) == (5, 1)


def test_should_keep_the_age_of_a_segment_when_it_is_opened_again(directory: Path, threads: StorageThreads) -> None:
    config = replace(CONFIG, segment_ms=100)
    log = open_log(directory, threads, config)
    log.append([raw_batch()], EPOCH, NOW_MS)
    log.close()
    log = open_log(directory, threads, config)
    log.append([raw_batch()], EPOCH, NOW_MS + 99)
    assert len(log_files(directory)) == 1
    log.append([raw_batch()], EPOCH, NOW_MS + 100)
    assert len(log_files(directory)) == 2


async def test_should_read_from_the_disk_in_a_thread_when_nothing_is_cached(log: PartitionLog) -> None:
    fill(log, 60)
    await log.sync()
    for path in log.directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    assert await values_from(log, 0) == list(range(60))


async def test_should_read_only_whole_batches_when_appends_go_on_meanwhile(log: PartitionLog) -> None:
    async def produce() -> None:
        for _ in range(100):
            log.append([raw_batch(1, 500), raw_batch(2, 900)], EPOCH, NOW_MS)
            await asyncio.sleep(0)
            await log.sync()

    producing = asyncio.create_task(produce())
    offset = 0
    while offset < 300:
        for buffer in await log.read(Offset(offset), max_bytes=10_000, up_to=log.durable_end):
            for batch in decode_batches(buffer):
                assert batch.header.base_offset == offset
                offset = batch.header.next_offset
        await asyncio.sleep(0)
    await producing


async def test_should_forget_the_oldest_positions_when_many_readers_pass(log: PartitionLog) -> None:
    fill(log, READ_POSITIONS_MAX + 40)
    for offset in range(READ_POSITIONS_MAX + 39):
        await log.read(Offset(offset), max_bytes=1, up_to=END)
    assert await values_from(log, 0) == list(range(READ_POSITIONS_MAX + 40))


async def test_should_find_the_record_itself_when_a_batch_holds_earlier_ones(log: PartitionLog) -> None:
    log.append([raw_batch(4, 10, [10, 50, 20, 30])], EPOCH, NOW_MS)
    log.append([raw_batch(2, 10, [40, 60])], EPOCH, NOW_MS)

    assert await log.find_timestamp(15, END) == (1, 50)
    assert await log.find_timestamp(51, END) == (5, 60)
    assert await log.find_timestamp(61, END) is None
    assert await log.find_timestamp(51, Offset(4)) is None


async def test_should_find_by_time_across_segments(log: PartitionLog) -> None:
    fill(log, 200)
    for i in (0, 1, 57, 199):
        assert await log.find_timestamp(NOW_MS + 10 * i - 5, END) == (i, NOW_MS + 10 * i)
    assert await log.find_timestamp(NOW_MS + 10 * 57, Offset(57)) is None


async def test_should_answer_with_the_batch_when_its_body_cannot_be_decoded(log: PartitionLog) -> None:
    good = raw_batch(1, 10, 70)
    body = bytearray(content_of(good)[64:])
    body[-64:] = b"\xff" * 64
    (batch,) = split_replicated([packed(good.header, bytes(body))])
    log.append([batch], EPOCH, NOW_MS)
    assert await log.find_timestamp(60, END) == (0, 70)


async def test_should_look_further_when_a_header_promises_a_later_time_than_its_records_have(
    log: PartitionLog,
) -> None:
    good = raw_batch(1, 10, 70)
    lying = good.header._replace(max_timestamp_ms=500)
    (batch,) = split_replicated([packed(lying, content_of(good)[64:])])
    log.append([batch, raw_batch(1, 10, 400)], EPOCH, NOW_MS)
    assert await log.find_timestamp(300, END) == (1, 400)


async def test_should_keep_reading_what_was_begun_when_the_directory_is_deleted(log: PartitionLog) -> None:
    fill(log, 3)
    for path in log.directory.iterdir():
        path.unlink()
    assert await values_from(log, 0) == [0, 1, 2]


async def test_should_remember_the_high_watermark(log: PartitionLog, directory: Path, threads: StorageThreads) -> None:
    fill(log, 5)
    await log.checkpoint_high_watermark(Offset(4))
    await log.checkpoint_high_watermark(Offset(4))
    with file_size_limit(0), pytest.raises(DiskFullError, match="high-watermark"):
        await log.checkpoint_high_watermark(Offset(5))
    log.close()
    assert open_log(directory, threads).high_watermark_checkpoint == 4


async def test_should_let_go_of_its_files_as_soon_as_nobody_has_it(directory: Path, threads: StorageThreads) -> None:
    def open_files() -> list[str]:
        targets = map(os.path.realpath, Path("/proc/self/fd").iterdir())
        return [target for target in targets if target.startswith(str(directory))]

    gc.disable()  # A broker's collector does not look at what was there when it became ready.
    try:
        log = open_log(directory, threads, SMALL)
        fill(log, 60)
        await log.sync()
        await values_from(log, 0)
        await log.find_timestamp(NOW_MS + 100, END)
        await log.delete_before(Offset(30))
        log.close()
        assert open_files()
        del log
        await eventually(lambda: not open_files(), "the last thread that had it is done with it")
    finally:
        gc.enable()


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


async def test_should_hold_the_bytes_that_the_leader_sent(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    sent = replicate(log, range(40), 1) + replicate(log, range(40, 70), 4)

    assert log_bytes(directory) == sent
    assert len(log_files(directory)) > 2
    assert epochs_of(log) == [(1, 0), (4, 40)]
    assert await values_from(log, 0) == list(range(70))
    assert await log.find_timestamp(NOW_MS + 395, END) == (40, NOW_MS + 400)
    again = open_log(directory, threads, SMALL)
    assert (again.log_end_offset, again.recovery.cut_bytes) == (70, 0)
    assert epochs_of(again) == [(1, 0), (4, 40)]


async def test_should_take_batches_of_several_epochs_and_emptied_ones_at_once(log: PartitionLog) -> None:
    first, second = stamped(0, 1, records=3), stamped(3, 2)
    emptied = emptied_batch(BatchHeader.unpack(content_of(stamped(4, 5, records=6))))
    batches = split_replicated([content_of(first) + content_of(second) + emptied])

    appended = log.append_replicated(batches, NOW_MS)

    assert (appended.first_offset, appended.last_offset) == (0, 9)
    assert appended.base_offsets == (0, 3, 4)
    assert epochs_of(log) == [(1, 0), (2, 3), (5, 4)]


def test_should_refuse_what_does_not_follow(log: PartitionLog, directory: Path) -> None:
    replicate(log, range(5), 3)
    before = log_bytes(directory)
    (heartbeat,) = split_replicated([HEARTBEAT])
    for batches, reason in [
        ([stamped(4, 3)], "base_offset is 4, the log goes on at 5"),
        ([stamped(5, 3), stamped(7, 3)], "base_offset is 7, the log goes on at 6"),
        ([stamped(5, 2)], "leader_epoch falls from 3 to 2"),
        ([stamped(5, 4), stamped(6, 3)], "leader_epoch falls from 4 to 3"),
        ([heartbeat], "a heartbeat"),
    ]:
        with pytest.raises(DivergedLogError, match=reason):
            log.append_replicated(batches, NOW_MS)
    assert log_bytes(directory) == before
    assert (log.log_end_offset, log.last_epoch) == (5, 3)
