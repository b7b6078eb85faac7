"""Opening a log after every kind of damage: what is kept, and what the report admits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.log.recovery import RecoveryReport
from headrace.core.records.header import BatchHeader
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.threads import StorageThreads
from tests.support.logs import (
    CONFIG,
    END,
    EPOCH,
    NOW_MS,
    SMALL,
    file_size_limit,
    fill,
    flip_bit,
    log_bytes,
    log_files,
    new_log_directory,
    open_log,
    raw_batch,
)

BATCHES = 40


@pytest.fixture
def stopped(tmp_path: Path, threads: StorageThreads) -> Path:
    """40 batches of one record in several segments, epochs 1 and 3, high watermark 30, stopped cleanly."""
    directory = new_log_directory(tmp_path)
    log = open_log(directory, threads, SMALL)
    fill(log, BATCHES // 2)
    for i in range(BATCHES // 2):
        log.append([raw_batch(1, 1000, NOW_MS + i)], LeaderEpoch(3), NOW_MS)
    log.close()
    PartitionFiles(directory).write_high_watermark(Offset(30))
    return directory


def recovered(directory: Path, threads: StorageThreads) -> tuple[RecoveryReport, int]:
    """The report, and where the log ends. Until the next sync every start admits the same."""
    log = open_log(directory, threads, SMALL)
    again = open_log(directory, threads, SMALL)
    assert again.log_end_offset == log.log_end_offset == log.durable_end
    assert again.recovery.cut_bytes == 0
    assert again.recovery.cut_below_recovery_point == log.recovery.cut_below_recovery_point
    assert again.recovery.cut_below_high_watermark == log.recovery.cut_below_high_watermark
    assert again.recovery.checkpoints_whole == log.recovery.checkpoints_whole
    again.close()
    assert not open_log(directory, threads, SMALL).recovery.cut_below_recovery_point
    return log.recovery, log.log_end_offset


def last_batch(path: Path) -> int:
    """Position of the last batch in a segment."""
    content, position = path.read_bytes(), 0
    while position + (size := BatchHeader.unpack(content, position).batch_bytes) < len(content):
        position += size
    return position


def test_should_not_scan_when_it_was_stopped_cleanly(stopped: Path, threads: StorageThreads) -> None:
    before = {path: path.stat().st_mtime_ns for path in stopped.iterdir()}
    report, end = recovered(stopped, threads)
    assert end == BATCHES
    assert (report.scanned_bytes, report.cut_bytes, report.cut_reason, report.damaged_files) == (0, 0, "", ())
    assert report.checkpoints_whole
    assert not report.cut_below_recovery_point
    assert not report.cut_below_high_watermark
    assert {path: path.stat().st_mtime_ns for path in stopped.iterdir()} == before


def test_should_scan_only_above_the_recovery_point_when_it_was_killed(stopped: Path, threads: StorageThreads) -> None:
    log = open_log(stopped, threads, CONFIG)
    log.append([raw_batch(2, 500)], LeaderEpoch(4), NOW_MS)

    report, end = recovered(stopped, threads)

    assert end == BATCHES + 2
    assert report.scanned_bytes == raw_batch(2, 500).nbytes


def test_should_notice_a_damaged_end_below_the_recovery_point(stopped: Path, threads: StorageThreads) -> None:
    last = log_files(stopped)[-1]
    flip_bit(last, 8 * (last_batch(last) + 5))
    report, end = recovered(stopped, threads)
    assert end == BATCHES - 1
    assert report.cut_below_recovery_point
    assert not report.cut_below_high_watermark


def test_should_notice_when_the_last_segment_is_shorter_than_the_recovery_point(
    stopped: Path, threads: StorageThreads
) -> None:
    last = log_files(stopped)[-1]
    with last.open("r+b") as file:
        file.truncate(last_batch(last) + 100)
    report, end = recovered(stopped, threads)
    assert end == BATCHES - 1
    assert report.cut_below_recovery_point
    assert report.cut_bytes == 100
    assert "torn write" in report.cut_reason


def test_should_notice_when_the_last_segments_are_gone(stopped: Path, threads: StorageThreads) -> None:
    for path in log_files(stopped)[-2:]:
        path.unlink()
    report, end = recovered(stopped, threads)
    assert end == int(log_files(stopped)[-1].stem) + 12
    assert report.cut_below_recovery_point
    assert report.cut_below_high_watermark


def test_should_begin_again_and_admit_it_when_all_segments_are_gone(stopped: Path, threads: StorageThreads) -> None:
    for path in log_files(stopped):
        path.unlink()
    report, end = recovered(stopped, threads)
    assert end == 0
    assert report.cut_below_recovery_point


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: flip_bit(path, 300),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
    ],
)
@pytest.mark.parametrize("name", ["recovery-point", "high-watermark-checkpoint", "leader-epoch-checkpoint"])
def test_should_keep_the_log_and_admit_it_when_a_checkpoint_is_damaged(
    stopped: Path, threads: StorageThreads, name: str, damage: Callable[[Path], object]
) -> None:
    epochs = (stopped / "leader-epoch-checkpoint").read_bytes()
    damage(stopped / name)

    log = open_log(stopped, threads, SMALL)

    assert log.log_end_offset == BATCHES
    assert log.recovery.cut_bytes == 0
    assert name in log.recovery.damaged_files[0]
    assert log.recovery.checkpoints_whole == (name == "leader-epoch-checkpoint")
    assert log.recovery.scanned_bytes == (0 if name.startswith("high") else len(log_bytes(stopped)))
    assert log.high_watermark_checkpoint == (0 if name.startswith("high") else 30)
    again = open_log(stopped, threads, SMALL).recovery
    assert again.checkpoints_whole == log.recovery.checkpoints_whole, "nobody has acted on the report yet"
    log.close()
    assert (stopped / "leader-epoch-checkpoint").read_bytes() == epochs


def test_should_admit_that_committed_records_are_gone_when_damage_is_below_the_high_watermark(
    tmp_path: Path, threads: StorageThreads
) -> None:
    directory = new_log_directory(tmp_path)
    log = open_log(directory, threads, CONFIG)
    fill(log, 20)
    log._syncer.sync()
    log._syncer.write_high_watermark(Offset(15))
    (path,) = log_files(directory)
    size = path.stat().st_size // 20
    flip_bit(path, 8 * (14 * size + 300))

    report = open_log(directory, threads, CONFIG).recovery

    assert report.cut_bytes == 6 * size
    assert report.cut_below_high_watermark
    assert not report.cut_below_recovery_point


def test_should_cut_and_forget_epochs_when_the_epoch_falls(stopped: Path, threads: StorageThreads) -> None:
    log = open_log(stopped, threads, CONFIG)
    log.append([raw_batch()], LeaderEpoch(7), NOW_MS)
    # A batch of an older epoch at the right offset, as a replica that was cut off might have left it.
    stray = raw_batch().stamp(log.log_end_offset, LeaderEpoch(5))
    with log_files(stopped)[-1].open("ab") as file:
        file.write(b"".join(stray.buffers))

    log = open_log(stopped, threads, SMALL)

    assert log.log_end_offset == BATCHES + 1
    assert log.last_epoch == 7
    assert "leader_epoch falls from 7 to 5" in log.recovery.cut_reason


def test_should_drop_later_segments_when_an_earlier_one_is_cut(tmp_path: Path, threads: StorageThreads) -> None:
    directory = new_log_directory(tmp_path)
    log = open_log(directory, threads, SMALL)
    fill(log, BATCHES)
    second = log_files(directory)[1]
    flip_bit(second, 8 * 3000)
    before = len(log_bytes(directory))

    report, end = recovered(directory, threads)

    assert log_files(directory) == log_files(directory)[:2]
    assert end == int(second.stem) + 1
    assert report.cut_bytes == before - len(log_bytes(directory))
    assert sorted(directory.glob("*.index")) == [path.with_suffix(".index") for path in log_files(directory)]


def test_should_drop_a_segment_that_does_not_follow(tmp_path: Path, threads: StorageThreads) -> None:
    directory = new_log_directory(tmp_path)
    fill(open_log(directory, threads, SMALL), BATCHES)
    log_files(directory)[1].unlink()
    report, end = recovered(directory, threads)
    assert end == int(log_files(directory)[0].stem) + 12
    assert "does not follow" in report.cut_reason


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: flip_bit(path, 40),
    ],
)
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
async def test_should_read_and_find_by_time_when_indexes_were_damaged(
    stopped: Path, threads: StorageThreads, suffix: str, damage: Callable[[Path], object]
) -> None:
    for path in log_files(stopped):
        damage(path.with_suffix(f".{suffix}"))

    log = open_log(stopped, threads, SMALL)

    assert log.recovery.cut_bytes == 0
    for offset in range(BATCHES - 1, -1, -1):
        (buffer,) = await log.read(Offset(offset), max_bytes=1, up_to=END)
        assert BatchHeader.unpack(buffer).base_offset == offset
    for i in range(BATCHES // 2):
        assert await log.find_timestamp(NOW_MS + 10 * i, Offset(20)) == (i, NOW_MS + 10 * i)


def test_should_forget_entries_above_the_recovery_point_before_it_writes_them_again(
    stopped: Path, threads: StorageThreads
) -> None:
    fill(open_log(stopped, threads, CONFIG), 30, epoch=LeaderEpoch(3))
    last = log_files(stopped)[-1]
    before = [last.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")]
    open_log(stopped, threads, CONFIG)
    assert [last.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")] == before


async def test_should_write_the_same_entries_again_when_an_index_is_built_again(
    stopped: Path, threads: StorageThreads
) -> None:
    indexes = [path.with_suffix(suffix) for path in log_files(stopped) for suffix in (".index", ".timeindex")]
    whole = [path.read_bytes() for path in indexes]
    for path in indexes:
        path.unlink()

    log = open_log(stopped, threads, SMALL)
    for offset in range(BATCHES):
        await log.read(Offset(offset), max_bytes=1, up_to=END)

    assert [path.read_bytes() for path in indexes] == whole


def test_should_cut_at_the_recovery_point_when_the_place_to_cut_is_damaged(
    stopped: Path, threads: StorageThreads
) -> None:
    fill_after = open_log(stopped, threads, CONFIG)
    fill_after.append([raw_batch()], LeaderEpoch(3), NOW_MS)
    (stopped / "cut-at").write_bytes(b"?")

    log = open_log(stopped, threads, SMALL)

    assert log.log_end_offset == BATCHES
    assert "the last life has it cut" in log.recovery.cut_reason
    assert not (stopped / "cut-at").exists()


def test_should_scan_batches_that_lie_across_what_is_read_at_once(tmp_path: Path, threads: StorageThreads) -> None:
    directory = new_log_directory(tmp_path)
    log = open_log(directory, threads, replace(CONFIG, segment_bytes=1 << 30))
    sizes = (3_000_000, 900, 2_000_000, 5_000_000, 10)
    batches = [raw_batch(1, size) for size in sizes]
    log.append(batches, EPOCH, NOW_MS)

    report = open_log(directory, threads).recovery

    assert report.scanned_bytes == sum(batch.nbytes for batch in batches) == len(log_bytes(directory))
    assert report.cut_bytes == 0


def test_should_scan_the_segment_when_the_recovery_point_is_not_where_it_says(
    stopped: Path, threads: StorageThreads
) -> None:
    files = PartitionFiles(stopped)
    point = files.recovery_point()
    assert point is not None
    files.write_recovery_point(point._replace(offset=Offset(point.offset - 1)))
    log = open_log(stopped, threads, SMALL)
    assert log.log_end_offset == BATCHES
    assert log.recovery.scanned_bytes == log_files(stopped)[-1].stat().st_size
    assert f"belongs to {BATCHES}, not to offset {BATCHES - 1}" in log.recovery.damaged_files[0]


async def test_should_notice_missing_entries_when_both_indexes_are_short(
    stopped: Path, threads: StorageThreads
) -> None:
    for path in log_files(stopped):
        path.with_suffix(".index").write_bytes(path.with_suffix(".index").read_bytes()[:12])
        path.with_suffix(".timeindex").write_bytes(path.with_suffix(".timeindex").read_bytes()[:16])
    log = open_log(stopped, threads, SMALL)
    for offset in range(BATCHES - 1, -1, -1):
        (buffer,) = await log.read(Offset(offset), max_bytes=1, up_to=END)
        assert BatchHeader.unpack(buffer).base_offset == offset
    assert log_files(stopped)[0].with_suffix(".index").stat().st_size > 12


def test_should_open_on_a_full_disk_and_write_its_checkpoints_later(stopped: Path, threads: StorageThreads) -> None:
    log = open_log(stopped, threads, CONFIG)
    log.append([raw_batch()], LeaderEpoch(9), NOW_MS)
    with file_size_limit(0):
        log = open_log(stopped, threads, CONFIG)
    assert log.log_end_offset == log.durable_end == BATCHES + 1
    log.close()
    log = open_log(stopped, threads, CONFIG)
    assert (log.recovery.scanned_bytes, log.last_epoch) == (0, 9)


def test_should_remove_what_was_left_half_written(stopped: Path, threads: StorageThreads) -> None:
    (stopped / "recovery-point.new").write_bytes(b"half")
    (stopped / "notes.txt").write_bytes(b"somebody's")
    open_log(stopped, threads, SMALL)
    assert not (stopped / "recovery-point.new").exists()
    assert (stopped / "notes.txt").exists()


def test_should_append_after_a_cut_as_if_nothing_had_been(stopped: Path, threads: StorageThreads) -> None:
    log = open_log(stopped, threads, SMALL)
    log.append([raw_batch(1, 5_000)], LeaderEpoch(3), NOW_MS)
    last = log_files(stopped)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    log = open_log(stopped, threads, SMALL)
    appended = log.append([raw_batch(3, 100)], LeaderEpoch(3), NOW_MS)
    log.close()
    assert appended.first_offset == BATCHES
    assert open_log(stopped, threads, SMALL).log_end_offset == BATCHES + 3
