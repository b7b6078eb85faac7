"""What a log knows of its idempotent producers outlives stops, crashes, retention, and damage to its snapshot."""

from pathlib import Path

import pytest

from headrace.core.log.checkpoints import RECOVERY_POINT_FILE
from headrace.core.log.compaction import CompactionRules
from headrace.core.records.header import ProducerNumbers
from headrace.core.replication.producers import PRODUCERS_FILE, ProducerState
from headrace.core.types import Offset
from headrace_broker.storage import recovery
from headrace_broker.storage.compaction_files import Job
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.logs import EPOCH, NOW_MS, SMALL, fill, flip_bit, log_files, open_log, raw_batch

BATCHES = 40


def write(log: PartitionLog, producer: int, sequence: int) -> None:
    log.append([raw_batch(1, 1000, NOW_MS, ProducerNumbers(producer, 0, sequence))], EPOCH, NOW_MS)


def known(log: PartitionLog) -> dict[int, ProducerState]:
    return log.producers.states()


@pytest.fixture
def filled(log: PartitionLog) -> PartitionLog:
    """Producer 1 wrote once and long ago, producer 2 all along."""
    write(log, 1, 0)
    for sequence in range(BATCHES):
        write(log, 2, sequence)
    return log


def test_should_write_no_snapshot_when_nobody_is_idempotent(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    fill(log, BATCHES)
    log.close()
    assert not (directory / PRODUCERS_FILE).exists()
    again = open_log(directory, threads, SMALL)
    assert known(again) == {}
    assert again.recovery.damaged_files == ()


def test_should_know_its_producers_after_a_clean_stop(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    filled.close()
    again = open_log(directory, threads, SMALL)
    assert again.recovery.scanned_bytes == 0
    assert known(again) == known(filled)


async def test_should_know_its_producers_after_a_crash(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    await filled.sync()
    write(filled, 2, BATCHES)
    again = open_log(directory, threads, SMALL)
    assert again.recovery.scanned_bytes > 0
    assert known(again) == known(filled)


async def test_should_know_producers_whose_records_are_deleted(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    await filled.delete_before(filled.log_end_offset)
    fill(filled, 1)
    again = open_log(directory, threads, SMALL)
    assert known(again) == known(filled)


async def test_should_tell_compaction_whose_last_batches_must_stay(filled: PartitionLog) -> None:
    rules = CompactionRules(min_lag_ms=0, delete_retention_ms=0, segment_bytes=SMALL.segment_bytes)
    planned = await filled.compaction.plan(filled.log_end_offset, rules, NOW_MS)
    assert isinstance(planned, Job)
    assert planned.producers == (1, 2)


def test_should_not_believe_more_than_the_log_holds(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    """Records below the recovery point are lost, others take their offsets: they are not those of the producer."""
    filled.close()
    log_files(directory)[-1].write_bytes(b"")
    lost = open_log(directory, threads, SMALL)
    assert lost.recovery.cut_below_recovery_point
    assert known(lost)[2].next_sequence < BATCHES
    fill(lost, BATCHES)
    lost.close()

    again = open_log(directory, threads, SMALL)
    assert known(again) == known(lost)


def test_should_look_at_the_batches_when_the_snapshot_is_damaged(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    filled.close()
    flip_bit(directory / PRODUCERS_FILE, 400)
    again = open_log(directory, threads, SMALL)
    assert again.recovery.damaged_files[0].startswith(f"{PRODUCERS_FILE}: its first line is")
    assert again.recovery.checkpoints_whole, "nothing that this replica voted for is in doubt"
    assert known(again) == known(filled)
    assert open_log(directory, threads, SMALL).recovery.damaged_files == ()


@pytest.mark.parametrize("has_index", [True, False])
def test_should_look_at_the_newest_batches_only_when_there_are_many(
    filled: PartitionLog, directory: Path, threads: StorageThreads, monkeypatch: pytest.MonkeyPatch, has_index: bool
) -> None:
    monkeypatch.setattr(recovery, "PRODUCERS_REBUILD_BYTES", 30_000)
    filled.close()
    flip_bit(directory / PRODUCERS_FILE, 400)
    if not has_index:
        for index in directory.glob("*.index"):
            index.unlink()
    again = open_log(directory, threads, SMALL)
    assert known(again)[2] == known(filled)[2]
    assert 1 not in known(again)


def test_should_look_at_all_that_can_be_read_when_a_segment_is_damaged_too(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    filled.close()
    (directory / PRODUCERS_FILE).write_bytes(b"")
    flip_bit(log_files(directory)[0], 8 * 4)
    again = open_log(directory, threads, SMALL)
    assert known(again) == {2: known(filled)[2]}


def test_should_find_all_producers_again_when_the_recovery_point_is_lost(
    filled: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    filled.close()
    (directory / RECOVERY_POINT_FILE).unlink()
    again = open_log(directory, threads, SMALL)
    assert known(again) == known(filled)
    assert again.log_end_offset == Offset(BATCHES + 1)
