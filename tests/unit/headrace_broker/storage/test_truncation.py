"""Cutting off the end of a log: what is left, now and after a crash, and what else has to know."""

import os
from pathlib import Path

import pytest

from headrace.core.errors import CorruptLogError, OffsetOutOfRangeError
from headrace.core.log.compaction import CleanPoint, CleanPoints
from headrace.core.log.epochs import EpochStart
from headrace.core.log.retention import Retention
from headrace.core.records.header import ProducerNumbers
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.failing_disk import before_each
from tests.support.logs import END, EPOCH, NOW_MS, SMALL, fill, log_bytes, log_files, open_log, raw_batch, values_from
from tests.support.replicas import epochs_of, replicate


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
