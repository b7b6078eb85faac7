"""A flipped bit in a log: found by reading it through, then cut away where others have it whole."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.errors import CorruptLogError, StorageFailedError
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.segments import segment_name
from headrace.core.types import Incarnation, Offset, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.disk import Buffer, FileHandle, read_blocking, shown
from headrace_broker.storage.log_verification import SegmentCheck
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.partition_store import PartitionDescription
from headrace_broker.storage.threads import StorageThreads
from tests.support.logs import END, NOW_MS, SMALL, fill, flip_bit, log_files, open_log, values_from
from tests.support.replicas import replicate

KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(3))
DESCRIPTION = PartitionDescription(TopicName("default", "flights"), KEY, {"partitions": 6})


async def no_pace(_: int) -> None:
    pass


async def test_should_find_nothing_in_what_was_written(log: PartitionLog) -> None:
    read: list[int] = []

    async def pace(size: int) -> None:
        read.append(size)

    assert await log.verification.verify(pace) is None
    fill(log, 100)
    assert await log.verification.verify(pace) is None
    assert sum(read) == log.size_bytes


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("byte", [0, 20, 40, 63, 64, 700])
@pytest.mark.parametrize("segment", [0, 2, -1])
async def test_should_find_a_flipped_bit_wherever_it_is(
    log: PartitionLog, directory: Path, segment: int, batch: int, byte: int
) -> None:
    fill(log, 100)
    file = log_files(directory)[segment]
    base = int(file.stem)
    batch_bytes = log.size_bytes // 100
    flip_bit(file, 8 * (batch * batch_bytes + byte) + 3)

    found = await log.verification.verify(no_pace)

    assert found is not None
    assert found.point[:3] == (base + batch, base, batch * batch_bytes)
    assert f"{shown(file)}, position {batch * batch_bytes}, offset {base + batch}: " in found.reason


async def test_should_find_what_is_missing(log: PartitionLog, directory: Path, threads: StorageThreads) -> None:
    fill(log, 100)
    log.close()
    first = log_files(directory)[0]
    size, batch_bytes = first.stat().st_size, log.size_bytes // 100
    os.truncate(first, size - batch_bytes)
    found = await log.verification.verify(no_pace)
    assert found is not None
    assert "ends 1" in found.reason

    found = await open_log(directory, threads, SMALL).verification.verify(no_pace)
    assert found is not None
    assert "the next begins at" in found.reason
    assert found.point.position == size - batch_bytes


async def test_should_find_a_sector_that_cannot_be_read(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    fill(log, 100)
    bad = log_files(directory)[1]

    def read(file: FileHandle, position: int, length: int) -> Buffer:
        if file.path == bad:
            raise StorageFailedError("reading failed: Input/output error")
        return read_blocking(file, position, length)

    monkeypatch.setattr("headrace_broker.storage.log_verification.read_once", read)
    found = await log.verification.verify(no_pace)
    assert found is not None
    assert found.point.segment == int(bad.stem)
    assert "Input/output error" in found.reason


async def test_should_read_batches_that_are_larger_than_a_piece(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_broker.storage.log_verification.VERIFY_CHUNK_BYTES", 100)
    fill(log, 100)
    assert await log.verification.verify(no_pace) is None


@pytest.mark.parametrize("change", ["cut", "close"])
async def test_should_look_again_when_the_active_segment_has_changed(
    log: PartitionLog, directory: Path, change: str
) -> None:
    fill(log, 10)
    flip_bit(log_files(directory)[0], 8 * (8 * log.size_bytes // 10 + 700))

    async def meanwhile(_: int) -> None:
        if change == "cut":
            await log.truncate(Offset(5))
        elif len(log_files(directory)) == 1:
            fill(log, 10)

    assert await log.verification.verify(meanwhile) is None
    assert log.verification.is_suspect, "whoever looks again can tell"
    assert (await log.verification.verify(no_pace) is None) is (change == "cut")


@pytest.mark.parametrize("end", [5, 30])
async def test_should_not_speak_of_what_is_gone_meanwhile(log: PartitionLog, directory: Path, end: int) -> None:
    """Cut and filled again, or deleted, while it is being read."""
    fill(log, 100)
    flip_bit(log_files(directory)[0], 8 * (8 * log.size_bytes // 100 + 700))

    async def cut(_: int) -> None:
        if log.log_end_offset == 100:
            await log.truncate(Offset(end))
            replicate(log, range(end, 90), 7)

    found = await log.verification.verify(cut)
    assert found is None if end == 5 else found is not None
    await log.delete_before(Offset(60))
    assert await log.verification.verify(no_pace) is None


async def test_should_tell_a_follower_from_a_reader_that_checks_by_itself(log: PartitionLog, directory: Path) -> None:
    fill(log, 100)
    flip_bit(log_files(directory)[0], 8 * 700)
    assert await log.read(Offset(0), max_bytes=3_000, up_to=END)
    suspects = [log.verification.is_suspect]
    with pytest.raises(CorruptLogError, match="crc32c"):
        await log.read_checked(Offset(0), max_bytes=3_000, up_to=END)
    suspects.append(log.verification.is_suspect)
    assert await log.read_checked(Offset(3), max_bytes=3_000, up_to=END)
    await log.verification.verify(no_pace)
    assert [*suspects, log.verification.is_suspect] == [False, True, False]


@pytest.mark.parametrize("look", ["read", "cached"])
async def test_should_be_suspect_when_a_reader_comes_upon_damage(log: PartitionLog, directory: Path, look: str) -> None:
    fill(log, 100)
    flip_bit(log_files(directory)[0], 8 * (5 * log.size_bytes // 100))

    async def read() -> object:
        if look == "read":
            return await log.read(Offset(5), max_bytes=3_000, up_to=Offset(7))
        return log.read_cached(Offset(5), max_bytes=3_000, up_to=Offset(7))

    with pytest.raises(CorruptLogError):
        await read()
    assert log.verification.is_suspect


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], DataDirectory]:
    return lambda: DataDirectory.open(tmp_path)


async def test_should_be_cut_by_the_next_start_which_renews_no_seat(opened: Callable[[], DataDirectory]) -> None:
    data = opened()
    data.write_incarnation(Incarnation(4), Incarnation(0))
    log = data.open_log(DESCRIPTION, SMALL, NOW_MS)
    fill(log, 100)
    await log.sync()
    await log.checkpoint_high_watermark(Offset(100))
    flip_bit(log_files(log.directory)[1], 8 * 700)
    found = await log.verification.verify(no_pace)
    assert found is not None
    log.close()
    data.store.cut_at_next_start(KEY, found.point, Incarnation(5))
    data.close(clean=True)

    data = opened()
    log = data.open_log(DESCRIPTION, SMALL, NOW_MS)

    assert log.log_end_offset == found.point.offset
    assert log.recovery.cut_below_recovery_point
    assert log.recovery.cut_below_high_watermark
    assert "the last life has it cut" in log.recovery.cut_reason
    assert data.store.void_before(KEY) == 5
    replicate(log, range(found.point.offset, 120), 5)
    assert await values_from(log, 0) == list(range(120))
    assert await log.verification.verify(no_pace) is None
    log.close()
    data.close(clean=True)


def test_should_void_the_seats_before_anything_else(opened: Callable[[], DataDirectory], tmp_path: Path) -> None:
    data = opened()
    directory = data.store.prepare(DESCRIPTION, NOW_MS)
    (directory / "cut-at.new").mkdir()
    with pytest.raises(StorageFailedError, match="having the log"):
        data.store.cut_at_next_start(KEY, LogPoint(Offset(3), Offset(0), 0, 0), Incarnation(9))
    assert data.store.void_before(KEY) == 9
    data.close(clean=True)


async def test_should_end_where_the_file_does(log: PartitionLog) -> None:
    fill(log, 30)
    segment = log._segments.glimpse(Offset(0))
    check = SegmentCheck(segment, segment.size, Offset(int(log_files(log.directory)[1].stem)))
    while not check.is_done:
        assert check.step() > 0
    assert check.damage is None
    assert segment.log.path.stem == segment_name(Offset(0))
