"""A pass of compaction on files: what it leaves, that it may stop anywhere, and what it does not touch."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import CorruptBatchError, CorruptLogError, UnreadableBatchError
from headrace.core.log.compaction import CleanPoint
from headrace.core.records.columns import decode_batch
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.compaction_files import Cleaned
from headrace_broker.storage.compaction_worker import compact
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.batches import mislabelled, poisoned
from tests.support.compaction import (
    Rows,
    append,
    closed_segments,
    compact_files,
    job,
    keyed,
    last_of_each_key,
    rows_from,
    swap_in,
)
from tests.support.logs import END, NOW_MS, SMALL, flip_bit, log_bytes, log_files, open_log

Open = Callable[[], PartitionLog]


@pytest.fixture
def reopen(directory: Path, threads: StorageThreads) -> Open:
    return lambda: open_log(directory, threads, SMALL)


def fill_with_keys(log: PartitionLog, batches: int = 120, keys: int = 10, seed: int = 1) -> None:
    chance = random.Random(seed)
    for number in range(batches):
        rows = [(f"key-{chance.randrange(keys)}", f"{number}-{row}" * 20) for row in range(chance.randint(1, 3))]
        append(log, keyed(*rows, time_ms=NOW_MS + number), epoch=LeaderEpoch(1 + number // 50))


def active_from(directory: Path) -> int:
    return closed_segments(directory)[-1].next_offset


async def test_should_leave_the_last_record_of_each_key_below_the_active_segment(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log)
    before = await rows_from(log)
    log.close()
    active = log_files(directory)[-1].read_bytes()
    epochs = (directory / "leader-epoch-checkpoint").read_bytes()

    done = compact_files(job(directory))

    log = reopen()
    expected = last_of_each_key(before, active_from(directory))
    assert await rows_from(log) == expected
    assert (log.log_start_offset, log.log_end_offset) == (0, before[-1][0] + 1)
    assert log.recovery.scanned_bytes == 0
    assert not log.recovery.damaged_files
    assert len(log_files(directory)) == 2, "small segments became one"
    assert log_files(directory)[-1].read_bytes() == active
    assert (directory / "leader-epoch-checkpoint").read_bytes() == epochs
    assert done.points == (CleanPoint(Offset(active_from(directory)), NOW_MS, 0),)
    assert done.records_after == len([offset for offset, _ in expected if offset < active_from(directory)])
    for offset in range(log.log_end_offset):
        assert await rows_from(log, offset) == [row for row in expected if row[0] >= offset], "from within a gap too"


async def test_should_find_by_time_what_is_left(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log)
    log.close()
    compact_files(job(directory))
    log = reopen()
    left = await rows_from(log)
    for time_ms in range(NOW_MS - 1, NOW_MS + 121):
        first = next(((offset, row.timestamp_ms) for offset, row in left if row.timestamp_ms >= time_ms), None)
        assert await log.find_timestamp(time_ms, END) == first


async def test_should_survive_a_recovery_that_scans_all_of_it(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log)
    log.close()
    epochs = (directory / "leader-epoch-checkpoint").read_bytes()
    compact_files(job(directory))
    for name in os.listdir(directory):
        if name.endswith(("index", "recovery-point", "leader-epoch-checkpoint")):
            (directory / name).unlink()
    left = log_bytes(directory)

    log = reopen()

    assert log.recovery.cut_bytes == 0
    assert log_bytes(directory) == left
    await rows_from(log)
    log.close()
    assert (directory / "leader-epoch-checkpoint").read_bytes() == epochs


async def test_should_write_nothing_where_nothing_is_to_be_dropped(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log)
    log.close()
    compact_files(job(directory))
    compact_files(job(directory))  # Batches that came from different segments are joined now.
    names = os.listdir(directory)

    made = list(compact(job(directory, dirty_from=active_from(directory)), lambda size: None))

    assert len(made) == 1, "no segment, only Done"
    assert os.listdir(directory) == names


async def test_should_write_what_comes_before_the_first_record_that_goes(
    directory: Path, threads: StorageThreads
) -> None:
    config = replace(SMALL, segment_bytes=3_000_000)
    log = open_log(directory, threads, config)
    for number in range(12):
        append(log, keyed((f"key-{number}", "x" * 600_000)))  # Too large to be joined, four a segment.
    append(log, keyed(("key-6", "y" * 600_000)), keyed(("end", "z" * 3_000_000)))
    before = await rows_from(log, max_bytes=1 << 20)
    log.close()
    asked = job(directory, segment_bytes=1)
    assert [each.base_offset for each in compact(asked, lambda size: None) if isinstance(each, Cleaned)] == [4]
    compact_files(asked)
    log = open_log(directory, threads, config)
    assert await rows_from(log, max_bytes=1 << 20) == [row for row in before if row[0] != 6]
    for offset in range(13):
        found = await rows_from(log, offset, max_bytes=1)
        assert [each for each, _ in found] == [each for each, _ in before if each >= offset and each != 6]


async def test_should_drop_tombstones_when_they_have_been_kept_for_long_enough(directory: Path, reopen: Open) -> None:
    log = reopen()
    append(log, keyed(("a", "1"), ("b", "1")), keyed(("a", None)), keyed(("filler", "x" * 30_000)))
    append(log, keyed(("end", "1")))
    log.close()
    first = compact_files(job(directory))
    log = reopen()
    assert [(offset, row.key, row.value is None) for offset, row in await rows_from(log)][:2] == [
        (1, b"b", False),
        (2, b"a", True),
    ]
    assert first.points[-1].tombstones == 1
    log.close()

    end = first.points[-1].end
    second = compact_files(job(directory, dirty_from=end, tombstones_from=end, points=first.points))

    assert [row.key for _, row in await rows_from(reopen())] == [b"b", b"filler", b"end"]
    assert second.points[-1].tombstones == 0


async def test_should_need_several_passes_for_more_keys_than_fit(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log, keys=50)
    before = await rows_from(log)
    log.close()
    end, passes, points = 0, 0, tuple[CleanPoint, ...]()
    while end < active_from(directory):
        points = compact_files(job(directory, dirty_from=end, points=points, keys_max=20)).points
        assert points[-1].end > end
        end, passes = points[-1].end, passes + 1
    assert passes > 1
    assert await rows_from(reopen()) == last_of_each_key(before, active_from(directory))


async def test_should_forget_what_is_below_the_start_of_the_log(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log)
    start = closed_segments(directory)[0].next_offset // 2
    await log.delete_before(Offset(start))
    before = await rows_from(log, start)
    log.close()
    compact_files(job(directory, log_start=start))
    log = reopen()
    assert log.log_start_offset == start
    assert await rows_from(log, start) == last_of_each_key(before, active_from(directory))


@pytest.mark.parametrize("bit", [8 * 2_000, 8 * 20], ids=["in a body", "in a header"])
def test_should_change_nothing_where_a_batch_is_damaged(directory: Path, reopen: Open, bit: int) -> None:
    log = reopen()
    fill_with_keys(log)
    log.close()
    flip_bit(log_files(directory)[1], bit)
    content = log_bytes(directory)
    with pytest.raises((CorruptBatchError, CorruptLogError)):
        compact_files(job(directory))
    assert log_bytes(directory) == content
    assert not list(directory.glob("*.cleaned"))


def test_should_keep_the_time_of_the_last_write_because_retention_goes_by_it(directory: Path, reopen: Open) -> None:
    log = reopen()
    fill_with_keys(log)
    log.close()
    for path in log_files(directory):
        os.utime(path, (1_000, 1_000))
    compact_files(job(directory))
    assert log_files(directory)[0].stat().st_mtime == 1_000


def copies_at_every_step(directory: Path, copies: Path) -> list[Path]:
    """What a pass leaves on the disk when it stops between two segments, before and after each is swapped in."""
    asked, found = job(directory, segment_bytes=30_000), list[Path]()

    def copy() -> None:
        found.append(copies / str(len(found)))
        shutil.copytree(directory, found[-1])

    for made in compact(asked, lambda size: None):
        copy()
        if isinstance(made, Cleaned):
            swap_in(asked, made)
            copy()
    return found


async def test_should_go_on_from_wherever_a_pass_has_stopped(
    directory: Path, tmp_path: Path, reopen: Open, threads: StorageThreads
) -> None:
    log = reopen()
    fill_with_keys(log)
    before = await rows_from(log)
    log.close()
    expected = last_of_each_key(before, active_from(directory))
    found = copies_at_every_step(directory, tmp_path / "copies")
    assert len(found) > 4
    for copy in found:
        log = open_log(copy, threads, SMALL)
        seen = await rows_from(log)
        assert {offset for offset, _ in expected} <= {offset for offset, _ in seen}
        assert {row.key: row for _, row in seen} == {row.key: row for _, row in before}
        log.close()
        compact_files(job(copy))
        assert await rows_from(open_log(copy, threads, SMALL)) == expected


def unreadable(batch: RawBatch, spoil: Callable[[bytes], bytes]) -> RawBatch:
    """The batch as one that was appended before brokers looked into bodies."""
    (spoiled,) = split_batches([spoil(b"".join(batch.buffers))], batch_bytes_max=1 << 20, are_committed=True)
    return spoiled


@pytest.mark.parametrize("spoil", [poisoned, mislabelled])
async def test_should_keep_what_nobody_can_decode_and_compact_the_rest(
    directory: Path, reopen: Open, spoil: Callable[[bytes], bytes]
) -> None:
    log = reopen()
    append(log, keyed(("a", "1"), ("b", "1")), keyed(("a", "2")))
    append(log, unreadable(keyed(("a", "?"), ("b", "?")), spoil))
    append(log, keyed(("b", "2")), keyed(("a", "3"), ("b", "3")), keyed(("filler", "x" * 30_000)))
    append(log, unreadable(keyed(("b", "?")), spoil), keyed(("filler", "y" * 30_000)), keyed(("end", "z")))
    log.close()
    before = [bytes(each) for each in batches_in(directory) if is_unreadable(each)]
    rows = readable_rows(directory)

    done = compact_files(job(directory))

    assert (done.unreadable, len(before)) == ((2, 3), 2)
    assert [bytes(each) for each in batches_in(directory) if is_unreadable(each)] == before
    assert done.points[-1].end == active_from(directory), "it need not be looked at again"
    expected = last_of_each_key(rows, active_from(directory))
    assert readable_rows(directory) == expected
    assert len(expected) < len(rows)
    log = reopen()
    assert log.recovery.cut_bytes == 0
    assert b"".join(bytes(each) for each in await log.read(Offset(3), max_bytes=1, up_to=END)) == before[0]


def readable_rows(directory: Path) -> Rows:
    return [row for each in batches_in(directory) if not is_unreadable(each) for row in decode_batch(each).rows()]


def batches_in(directory: Path) -> Iterator[memoryview]:
    """With records, of all segments."""
    for path in log_files(directory):
        content, at = memoryview(path.read_bytes()), 0
        while at < len(content):
            header = BatchHeader.unpack(content, at)
            if not header.is_empty:
                yield content[at : at + header.batch_bytes]
            at += header.batch_bytes


def is_unreadable(batch: memoryview) -> bool:
    try:
        decode_batch(batch)
    except UnreadableBatchError:
        return True
    return False
