"""Deleting from the front of a log, while it is read, and across crashes at any point of it."""

from pathlib import Path

import pytest

from headrace.core.errors import DiskFullError, OffsetOutOfRangeError, StorageFailedError
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.disk import Buffer, FileHandle, read_blocking
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.segment_set import SegmentGoneError
from headrace_broker.storage.threads import StorageThreads
from tests.support.failing_disk import failing_sync
from tests.support.logs import (
    END,
    EPOCH,
    NOW_MS,
    SMALL,
    file_size_limit,
    fill,
    log_files,
    new_log_directory,
    open_log,
    raw_batch,
)

BATCHES = 200


@pytest.fixture
def log(tmp_path: Path, threads: StorageThreads) -> PartitionLog:
    """Of many segments, one record a batch."""
    log = open_log(new_log_directory(tmp_path), threads, SMALL)
    fill(log, BATCHES)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [int(path.stem) for path in log_files(log.directory)]


def names(log: PartitionLog) -> set[str]:
    return {path.name for path in log.directory.iterdir()}


async def test_should_keep_what_it_must_and_remove_the_rest(log: PartitionLog) -> None:
    before, size = bases(log), log.size_bytes
    start = Offset(before[3] + 1)

    await log.delete_before(start)

    assert bases(log) == before[3:]
    assert {int(name.split(".")[0]) for name in names(log) if name[0] == "0"} == set(before[3:])
    assert log.log_start_offset == start
    assert log.size_bytes == sum(path.stat().st_size for path in log_files(log.directory)) < size
    assert log.durable_end == BATCHES, "a log never ends below its start, whatever is lost with the page cache"
    with pytest.raises(OffsetOutOfRangeError):
        await log.read(Offset(start - 1), max_bytes=1, up_to=END)
    (buffer,) = await log.read(start, max_bytes=1, up_to=END)
    assert BatchHeader.unpack(buffer).base_offset == start
    assert await log.find_timestamp(0, END) == (start, NOW_MS + 10 * start)


async def test_should_never_remove_the_segment_that_is_written_to(log: PartitionLog, threads: StorageThreads) -> None:
    await log.delete_before(Offset(BATCHES))
    assert len(bases(log)) == 1
    assert (log.log_start_offset, log.log_end_offset) == (BATCHES, BATCHES)
    assert await log.read(Offset(BATCHES), max_bytes=1, up_to=END) == []
    assert await log.find_timestamp(0, END) is None
    log.append([raw_batch()], EPOCH, NOW_MS)
    (buffer,) = await log.read(Offset(BATCHES), max_bytes=1, up_to=END)
    assert BatchHeader.unpack(buffer).base_offset == BATCHES
    again = open_log(log.directory, threads, SMALL)
    assert (again.log_start_offset, again.log_end_offset) == (BATCHES, BATCHES + 1)


async def test_should_start_within_a_batch_when_told_so(tmp_path: Path, threads: StorageThreads) -> None:
    log = open_log(new_log_directory(tmp_path), threads)
    log.append([raw_batch(3, timestamps_ms=[1, 2, 3])], EPOCH, NOW_MS)
    await log.delete_before(Offset(1))
    assert await log.find_timestamp(0, END) == (1, 2)
    assert len(await log.read(Offset(1), max_bytes=1, up_to=END)) == 1


async def test_should_finish_a_deletion_that_a_crash_interrupted(log: PartitionLog, threads: StorageThreads) -> None:
    await log.sync()
    before = bases(log)
    PartitionFiles(log.directory).write_log_start(Offset(before[4]))
    (log.directory / f"{before[0]:020d}.index").unlink()

    again = open_log(log.directory, threads, SMALL)

    assert bases(again) == before[4:]
    assert (again.log_start_offset, again.log_end_offset) == (before[4], BATCHES)
    assert again.recovery.cut_bytes == 0


async def test_should_show_too_much_rather_than_lose_anything_when_the_checkpoint_is_damaged(
    log: PartitionLog, threads: StorageThreads
) -> None:
    await log.delete_before(Offset(50))
    first = bases(log)[0]
    (log.directory / "log-start-checkpoint").write_bytes(b"50")
    again = open_log(log.directory, threads, SMALL)
    assert again.log_start_offset == first < 50
    assert again.recovery.checkpoints_whole
    assert "log-start-checkpoint" in again.recovery.damaged_files[0]


async def test_should_show_what_is_new_when_the_log_was_cut_below_its_start(
    log: PartitionLog, threads: StorageThreads
) -> None:
    await log.delete_before(Offset(BATCHES - 1))
    (active,) = log_files(log.directory)
    active.write_bytes(b"")
    for _ in range(2):
        again = open_log(log.directory, threads, SMALL)
        assert again.log_start_offset == again.log_end_offset < BATCHES - 1
    for _ in range(BATCHES):
        again.append([raw_batch()], EPOCH, NOW_MS)
    end = Offset(int(active.stem))
    assert open_log(log.directory, threads, SMALL).log_start_offset == end


def test_should_let_readers_finish_that_are_under_way(log: PartitionLog) -> None:
    segments = log._segments

    def read(file: FileHandle, position: int, length: int) -> Buffer:
        """As the thread of a reader, which has the segment while it goes."""
        segments.delete(segments.drop_below(Offset(BATCHES)))
        return read_blocking(file, position, length)

    (buffer,), _ = log._reader._read(read, Offset(0), 1, END)
    assert BatchHeader.unpack(buffer).base_offset == 0
    assert bases(log)[0] > 0
    assert set(segments._closed) <= set(bases(log)), "nothing that is deleted is kept open"


async def test_should_say_that_a_segment_went_between_two_looks(log: PartitionLog) -> None:
    segments = log._segments
    await log.delete_before(Offset(100))
    with pytest.raises(SegmentGoneError):
        segments.view(Offset(0), lambda *_: b"")
    with pytest.raises(SegmentGoneError):
        segments.rebuild_indexes(Offset(0))
    with pytest.raises(OffsetOutOfRangeError, match="was deleted just now"):
        await log._reader.read(Offset(99), 1, END)


async def test_should_go_on_when_files_cannot_be_removed(
    log: PartitionLog, caplog: pytest.LogCaptureFixture, threads: StorageThreads
) -> None:
    first = log_files(log.directory)[0].with_suffix(".index")
    first.unlink()
    first.mkdir()
    await log.delete_before(Offset(100))
    assert "are not removed" in caplog.text
    assert log.log_start_offset == 100
    first.rmdir()
    assert bases(open_log(log.directory, threads, SMALL))[0] >= 80


async def test_should_make_room_on_a_full_disk(log: PartitionLog, threads: StorageThreads) -> None:
    await log.sync()
    before = bases(log)
    with file_size_limit(10):
        for _ in range(2):
            with pytest.raises(DiskFullError):
                await log.delete_before(Offset(before[4] + 1))
    assert bases(log) == before[4:]
    assert log.log_start_offset == before[4]
    assert open_log(log.directory, threads, SMALL).log_start_offset == before[4]
    await log.delete_before(Offset(before[4] + 1))
    assert log.log_start_offset == before[4] + 1


async def test_should_delete_nothing_when_the_disk_refuses(log: PartitionLog, threads: StorageThreads) -> None:
    with failing_sync(log_files(log.directory)[-1]), pytest.raises(StorageFailedError):
        await log.delete_before(Offset(100))
    assert log.log_start_offset == 0
    assert not (log.directory / "log-start-checkpoint").exists()


async def test_should_keep_its_offsets_when_a_sync_fails_behind_everything_that_was_deleted(
    log: PartitionLog, threads: StorageThreads
) -> None:
    segments = len(bases(log))
    while len(bases(log)) == segments:  # a sync that covers all of a segment, then the append that closes it
        durable = await log.sync()
        log.append([raw_batch(1, 1000)], EPOCH, NOW_MS)
    await log.delete_before(durable)
    assert bases(log) == [durable]
    with failing_sync(log_files(log.directory)[0]), pytest.raises(StorageFailedError):
        await log.sync()

    again = open_log(log.directory, threads, SMALL)

    assert (again.log_start_offset, again.log_end_offset) == (durable, durable)
