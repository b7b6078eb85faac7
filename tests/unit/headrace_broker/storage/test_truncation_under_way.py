"""Reads and syncs that are under way while a log is cut: clean data, the right end, or another look."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import CorruptLogError, OffsetOutOfRangeError, ThrottledError
from headrace.core.records.header import BatchHeader
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.disk import Buffer, FileHandle, read_blocking
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.segment_set import SegmentGoneError
from tests.support.logs import END, EPOCH, NOW_MS, fill, raw_batch, values_from
from tests.support.patience import patient
from tests.support.replicas import stamped


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
