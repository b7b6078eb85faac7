"""Appending to a log and reading it, also while the disk is slow."""

import asyncio
import gc
import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import (
    DiskFullError,
    FencedEpochError,
    OffsetOutOfRangeError,
)
from headrace.core.records.columns import decode_batches
from headrace.core.records.raw import split_replicated
from headrace.core.types import LeaderEpoch, Offset
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
    log_bytes,
    log_files,
    open_log,
    raw_batch,
    values_from,
)
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
