"""Retention on real logs: which segments it finds, when the segment that is written to is closed for it."""

import asyncio
import gc
import os
from contextlib import suppress
from dataclasses import replace

import pytest

from headrace.core.errors import DiskFullError
from headrace.core.log.retention import Expired, ExpiryReason, Retention
from headrace.core.types import Offset
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
    log_files,
    open_log,
    raw_batch,
)

FOR_EVER = Retention(None, None)


def bases(log: PartitionLog) -> list[int]:
    return [int(path.stem) for path in log_files(log.directory)]


def open_files() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


async def expired(log: PartitionLog, retention: Retention, now_ms: int) -> list[Expired]:
    return await log.expired(retention, END, now_ms)


async def test_should_know_the_newest_record_of_each_segment_after_a_restart_too(
    log: PartitionLog, threads: StorageThreads
) -> None:
    fill(log, 200)  # a record every 10 ms
    starts = bases(log)
    for each in (log, open_log(log.directory, threads, SMALL)):
        for count in (1, 3):
            newest_ms = NOW_MS + 10 * (starts[count] - 1)
            assert len(await expired(each, Retention(0, None), newest_ms)) == count - 1
            found = await expired(each, Retention(0, None), newest_ms + 1)
            assert [(item.segment.base_offset, item.reason) for item in found] == [
                (base, ExpiryReason.TIME) for base in starts[:count]
            ]
            assert found[-1].segment.next_offset == starts[count]


async def test_should_delete_what_it_found_and_say_how_much_that_is(log: PartitionLog) -> None:
    fill(log, 200)
    size, files = log.size_bytes, [path.stat().st_size for path in log_files(log.directory)]
    found = await expired(log, Retention(None, size - files[0] - files[1]), NOW_MS)
    assert [item.reason for item in found] == [ExpiryReason.SIZE] * 2
    assert await log.delete_before(found[-1].segment.next_offset) == files[:2]
    assert log.size_bytes == size - files[0] - files[1]
    assert await expired(log, Retention(None, log.size_bytes), NOW_MS) == []


async def test_should_leave_what_is_not_committed(log: PartitionLog) -> None:
    fill(log, 200)
    second = Offset(bases(log)[1])
    assert await log.expired(Retention(0, 0), Offset(second - 1), 1 << 50) == []
    assert len(await log.expired(Retention(0, 0), second, 1 << 50)) == 1


async def test_should_take_the_files_age_when_records_claim_to_be_from_the_future(log: PartitionLog) -> None:
    log.append([raw_batch(1, 100, 1 << 60)], EPOCH, NOW_MS)
    log.close_segment(Retention(500, None), NOW_MS)
    assert log.active_segment == 0, "it was written just now"
    os.utime(log_files(log.directory)[0], ns=(0, 1_000_000 * NOW_MS))
    log.close_segment(Retention(500, None), NOW_MS + 501)
    assert log.active_segment == 1
    assert await expired(log, Retention(500, None), NOW_MS + 500) == []
    assert len(await expired(log, Retention(500, None), NOW_MS + 501)) == 1


@pytest.mark.parametrize("damaged", ["log", "timeindex"])
async def test_should_delete_a_damaged_segment_when_its_file_is_old_enough(
    log: PartitionLog, threads: StorageThreads, damaged: str
) -> None:
    fill(log, 200)
    await log.sync()
    first = log_files(log.directory)[0]
    broken = first.with_suffix(f".{damaged}")
    last_bytes = raw_batch(1, 1000).nbytes if damaged == "log" else 4
    flip_bit(broken, 8 * (broken.stat().st_size - last_bytes))
    os.utime(first, ns=(0, 1_000_000 * NOW_MS))
    again = open_log(log.directory, threads, SMALL)
    assert await expired(again, Retention(500, None), NOW_MS + 500) == []
    assert len(await expired(again, Retention(500, None), NOW_MS + 501)) == 1


def test_should_close_the_active_segment_when_its_newest_record_is_too_old(log: PartitionLog) -> None:
    fill(log, 3, value_bytes=10)
    newest_ms = NOW_MS + 20
    log.close_segment(Retention(100, None), newest_ms + 100)
    assert bases(log) == [0]
    log.close_segment(FOR_EVER, newest_ms + 101)
    assert bases(log) == [0]
    for _ in range(2):  # an empty one is never closed
        log.close_segment(Retention(100, None), newest_ms + 101)
        assert bases(log) == [0, 3]


def test_should_close_the_active_segment_when_segment_time_is_over_though_nothing_is_appended(
    log: PartitionLog,
) -> None:
    log.config = replace(SMALL, segment_ms=500)
    fill(log, 1)
    log.close_segment(FOR_EVER, NOW_MS + 499)
    assert bases(log) == [0]
    log.close_segment(FOR_EVER, NOW_MS + 500)
    assert bases(log) == [0, 1]
    log.append([raw_batch()], EPOCH, NOW_MS + 700)
    log.close_segment(FOR_EVER, NOW_MS + 1199)
    assert bases(log) == [0, 1], "its age begins with its first record"


async def test_should_give_the_whole_log_back_when_all_of_it_is_over(
    log: PartitionLog, threads: StorageThreads
) -> None:
    fill(log, 100)
    over = Retention(0, None)
    log.close_segment(over, 1 << 50)
    found = await expired(log, over, 1 << 50)
    assert sum(await log.delete_before(found[-1].segment.next_offset)) > 100_000
    assert (bases(log), log.size_bytes, log.log_start_offset, log.log_end_offset) == ([100], 0, 100, 100)
    again = open_log(log.directory, threads, SMALL)
    assert (again.log_start_offset, again.log_end_offset, again.recovery.cut_bytes) == (100, 100, 0)
    assert not again.recovery.cut_below_recovery_point
    assert again.append([raw_batch()], EPOCH, NOW_MS).first_offset == 100


async def test_should_keep_no_deleted_file_open_when_nothing_is_appended_any_more(log: PartitionLog) -> None:
    fill(log, 100)
    await log.sync()
    over = Retention(0, None)
    log.close_segment(over, 1 << 50)  # all of it is durable: no sync has to see to it
    await log.delete_before(log.log_end_offset)
    gc.collect()
    assert [path for path in open_files() if str(log.directory) in path and path.endswith(" (deleted)")] == []


async def test_should_make_room_on_a_full_disk_by_all_of_the_log(log: PartitionLog) -> None:
    fill(log, 30)
    with file_size_limit(1), pytest.raises(DiskFullError):
        await log.delete_before(Offset(30))
    assert (bases(log), log.size_bytes, log.log_start_offset) == ([30], 0, 30)
    assert await log.delete_before(Offset(30)) == []


async def test_should_build_indexes_once_when_a_reader_comes_by(log: PartitionLog, threads: StorageThreads) -> None:
    fill(log, 200)
    log.close()
    for _ in range(10):
        again = open_log(log.directory, threads, SMALL)
        log_files(log.directory)[0].with_suffix(".index").unlink()
        reading = asyncio.gather(*(again.read(Offset(offset), max_bytes=1, up_to=END) for offset in (3, 5, 9)))
        assert len(await expired(again, Retention(0, None), NOW_MS + 150)) == 1
        assert all(await reading)
