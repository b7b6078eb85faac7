"""Compaction of a log that is open: what is planned, and readers that notice nothing when segments are swapped."""

import asyncio
import random
import threading
from pathlib import Path

import pytest

from headrace.core.errors import StorageFailedError
from headrace.core.log.compaction import CleanPoint, CompactionRules, Later
from headrace.core.types import Offset
from headrace_broker.storage.compaction_files import Cleaned, Job, PassDone
from headrace_broker.storage.compaction_worker import compact
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.compaction import Rows, append, keyed, last_of_each_key, next_offset, rows_from
from tests.support.logs import NOW_MS, SMALL, log_files, open_log
from tests.support.patience import patient

RULES = CompactionRules(min_lag_ms=0, delete_retention_ms=1_000, segment_bytes=60_000)


def write(log: PartitionLog, batches: int = 100, keys: int = 9) -> None:
    for number in range(batches):
        append(log, keyed((f"key-{number % keys}", f"{number}" * 200), time_ms=NOW_MS + number))


async def plan(log: PartitionLog, rules: CompactionRules = RULES, now_ms: int = NOW_MS) -> Job | Later:
    return await log.compaction.plan(log.log_end_offset, rules, now_ms)


async def run(log: PartitionLog, job: Job) -> list[bool]:
    """Every step of a pass; whether each segment was swapped in."""
    swapped = []
    for made in compact(job, lambda size: None):
        if isinstance(made, Cleaned):
            swapped.append(await log.compaction.swap_in(made))
        else:
            await log.compaction.finish(made)
    return swapped


async def compacted(log: PartitionLog) -> list[bool]:
    job = await plan(log)
    assert isinstance(job, Job)
    return await run(log, job)


async def test_should_compact_while_the_log_is_written_to(log: PartitionLog, directory: Path) -> None:
    write(log)
    before, segments = await rows_from(log), len(log_files(directory))
    active = log.active_segment

    job = await plan(log)
    assert isinstance(job, Job)
    write(log, 60)
    swapped = await run(log, job)

    assert swapped.count(True) == len(swapped) > 0
    expected = last_of_each_key(before, active)
    assert (await rows_from(log))[: len(expected)] == expected
    assert log.size_bytes == sum(path.stat().st_size for path in log_files(directory))
    assert len(log_files(directory)) < segments + 60 * 200 // 20_000 + 3


async def test_should_remember_how_far_it_came(log: PartitionLog, directory: Path, threads: StorageThreads) -> None:
    write(log)
    await compacted(log)
    assert await plan(log) == Later(None)
    await log.sync()
    log.close()
    log = open_log(directory, threads, SMALL)
    assert await plan(log) == Later(None)
    (directory / "compaction-checkpoint").write_bytes(b"nonsense")
    log.close()
    assert isinstance(await plan(open_log(directory, threads, SMALL)), Job), "done again where that is lost"


async def test_should_forget_how_far_it_came_when_a_part_of_that_is_lost(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    write(log)
    await compacted(log)
    await log.sync()
    log.close()
    for path in log_files(directory)[1:]:
        path.unlink()
    log = open_log(directory, threads, SMALL)
    write(log)
    log.close()
    log = open_log(directory, threads, SMALL)  # The log is as long as before: nobody may take it for compacted.
    job = await plan(log)
    assert isinstance(job, Job)
    assert job.dirty_from == 0


async def test_should_remove_what_a_killed_pass_has_left(log: PartitionLog, directory: Path) -> None:
    write(log)
    (directory / f"{59:020d}.log.cleaned").write_bytes(b"half of it")
    assert isinstance(await plan(log), Job)
    assert not list_of(directory, ".cleaned")


async def test_should_leave_alone_what_is_not_committed(log: PartitionLog) -> None:
    write(log)
    assert await log.compaction.plan(Offset(1), RULES, NOW_MS) == Later(None)


async def test_should_wait_for_the_lag_and_for_tombstones(log: PartitionLog, directory: Path) -> None:
    for number in range(60):
        append(log, keyed(("a", "x" * 1_000), (f"gone-{number}", None), time_ms=NOW_MS + number))
    lagging = CompactionRules(min_lag_ms=500, delete_retention_ms=1_000, segment_bytes=60_000)
    first = await plan(log, lagging, NOW_MS + 100)
    assert isinstance(first, Later)
    assert first.at_ms is not None
    assert NOW_MS + 500 < first.at_ms < NOW_MS + 560
    assert isinstance(await plan(log, lagging, first.at_ms), Job)

    await compacted(log)
    assert await plan(log) == Later(NOW_MS + 1_000)
    job = await plan(log, now_ms=NOW_MS + 1_000)
    assert isinstance(job, Job)
    assert job.tombstones_from == job.dirty_from == log.active_segment
    await run(log, job)
    left = [row.key for offset, row in await rows_from(log) if offset < log.active_segment]
    assert left == [b"a"]


async def test_should_let_go_of_a_segment_that_was_deleted_meanwhile(log: PartitionLog, directory: Path) -> None:
    write(log)
    job = await plan(log)
    assert isinstance(job, Job)
    passing = compact(job, lambda size: None)
    made = next(passing)
    assert isinstance(made, Cleaned)
    await log.delete_before(Offset(made.next_offset - 1))
    assert not await log.compaction.swap_in(made)
    assert not list_of(directory, ".cleaned")
    with pytest.raises(FileNotFoundError):
        for _ in compact(job, lambda size: None):
            pass
    await rows_from(log, log.log_start_offset)


async def test_should_go_on_as_it_was_when_the_swap_cannot_begin(log: PartitionLog, directory: Path) -> None:
    write(log)
    before = await rows_from(log)
    job = await plan(log)
    assert isinstance(job, Job)
    made = next(compact(job, lambda size: None))
    assert isinstance(made, Cleaned)
    (directory / f"{0:020d}.timeindex.cleaned").unlink()
    with pytest.raises(StorageFailedError):
        await log.compaction.swap_in(made)
    assert not list_of(directory, ".cleaned")
    assert not list_of(directory, ".swap")
    assert await rows_from(log) == before
    append(log, keyed(("a", "1")))


async def test_should_end_the_log_when_a_swap_stops_in_the_middle(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    write(log)
    active, before = log.active_segment, await rows_from(log)
    job = await plan(log)
    assert isinstance(job, Job)
    made = next(compact(job, lambda size: None))
    assert isinstance(made, Cleaned)
    log_file = directory / f"{0:020d}.log"
    log_file.unlink()
    log_file.mkdir()  # Nothing can be renamed to it.
    with pytest.raises(StorageFailedError):
        await log.compaction.swap_in(made)
    with pytest.raises(StorageFailedError):
        append(log, keyed(("a", "1")))
    async with asyncio.timeout(patient(5)):
        with pytest.raises(StorageFailedError, match="the next start can tell"):
            await log.read(Offset(0), max_bytes=1, up_to=log.log_end_offset)
    log_file.rmdir()

    found = await rows_from(open_log(directory, threads, SMALL))
    assert {row.key: row for _, row in found} == {row.key: row for _, row in before}
    assert [row for row in found if row[0] < made.next_offset] == [
        row for row in last_of_each_key(before, active) if row[0] < made.next_offset
    ]


async def test_should_show_readers_each_key_in_order_whatever_is_swapped_under_them(
    log: PartitionLog, threads: StorageThreads
) -> None:
    stop, seen = threading.Event(), list[Rows]()

    async def read_again_and_again(chance: random.Random) -> None:
        while not stop.is_set():
            seen.append(await read_all(log, chance))

    write(log, 60)
    readers = [asyncio.create_task(read_again_and_again(random.Random(seed))) for seed in range(3)]
    for _ in range(6):
        job = await plan(log)
        if isinstance(job, Job):
            await run(log, job)
        write(log, 60)
        await asyncio.sleep(0)
    stop.set()
    await asyncio.gather(*readers)
    assert len(seen) > 3
    final = {row.key for _, row in await rows_from(log)}
    for rows in seen:
        offsets = [offset for offset, _ in rows]
        assert offsets == sorted(set(offsets))
        assert {row.key for _, row in rows} == final


async def test_should_read_nothing_up_to_an_offset_that_compaction_has_put_within_a_batch(log: PartitionLog) -> None:
    write(log)
    await compacted(log)
    end = next_offset((await log.read(Offset(0), max_bytes=1, up_to=log.log_end_offset))[0])
    assert end > 1
    assert await log.read(Offset(0), max_bytes=1, up_to=Offset(end - 1)) == []
    assert await log.read(Offset(0), max_bytes=1, up_to=Offset(end)) != []


async def read_all(log: PartitionLog, chance: random.Random) -> Rows:
    """To the end that there is now, with reads of all sizes; what was seen before is dropped, as readers must."""
    offset, end, rows = 0, log.log_end_offset, Rows()
    while offset < end:
        buffers = await log.read(Offset(offset), max_bytes=chance.choice([1, 5_000, 100_000]), up_to=end)
        if not buffers:
            end = log.log_end_offset  # Compaction has joined the batches around the old end: it lies within one now.
            continue
        rows += rows_of(buffers, offset)
        offset = next_offset(buffers[-1])
        await asyncio.sleep(0)
    return rows


def rows_of(buffers: list[memoryview], offset: int) -> Rows:
    from headrace.core.records.columns import decode_batches

    found = Rows()
    for buffer in buffers:
        for batch in decode_batches(buffer):
            found += batch.since(offset).rows()
    return found


def list_of(directory: Path, suffix: str) -> list[str]:
    return [path.name for path in directory.iterdir() if path.suffix == suffix]


async def test_should_swap_nothing_in_for_what_has_been_cut_and_written_anew(log: PartitionLog) -> None:
    """Segments of the same names and ends, of another history: an unclean election took away what was committed."""
    write(log)
    job = await plan(log)
    assert isinstance(job, Job)
    made = next(iter(compact(job, lambda size: None)))
    assert isinstance(made, Cleaned)
    ends = [segment.next_offset for segment in job.segments]

    await log.truncate(Offset(1), allow_below_high_watermark=True)
    for number in range(1, 100):
        append(log, keyed(("another", f"{number}" * 200), time_ms=NOW_MS + number))
    before = await rows_from(log)

    assert Offset(made.next_offset) in ends
    assert not await log.compaction.swap_in(made)
    await log.compaction.finish(PassDone((CleanPoint(made.next_offset, NOW_MS, 0),), 1, 1, 0))
    assert await rows_from(log) == before
    job = await plan(log)
    assert isinstance(job, Job)
    assert job.dirty_from == 0
    assert await run(log, job)
