"""Compaction of a log that is open: what is planned, and readers that notice nothing when segments are swapped.

S31 and S21: compaction, retention, deletion and cuts, with values that are not committed and readers under way.
"""

import asyncio
import errno
import os
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.core.errors import OffsetOutOfRangeError, StorageFailedError
from headrace.core.log.compaction import CleanPoint, CompactionRules, Later
from headrace.core.log.retention import Retention
from headrace.core.records.columns import decode_batches
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from headrace_broker.storage.compaction_files import Cleaned, Job, PassDone
from headrace_broker.storage.compaction_worker import compact
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.compaction import Rows, append, keyed, last_of_each_key, next_offset, rows_from
from tests.support.logs import END, NOW_MS, SMALL, log_files, open_log
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


KEYS = 5


def write_batches(log: PartitionLog, count: int, *, epoch: int = 1, keys: int = KEYS) -> None:
    for number in range(log.log_end_offset, log.log_end_offset + count):
        append(log, keyed((f"key-{number % keys}", f"{number}." * 300), time_ms=NOW_MS), epoch=LeaderEpoch(epoch))


def latest(rows: list[tuple[int, RecordContent]], below: int) -> dict[bytes | None, bytes | None]:
    return {row.key: row.value for offset, row in rows if offset < below}


async def compacted_meanwhile(
    log: PartitionLog, high_watermark: int, meanwhile: Callable[[], Awaitable[object]]
) -> int:
    """A pass, during which something else happens; how many segments it has replaced."""
    planned = await log.compaction.plan(Offset(high_watermark), RULES, NOW_MS)
    if isinstance(planned, Later):
        await meanwhile()
        return 0
    assert all(segment.next_offset <= high_watermark for segment in planned.segments)
    swapped = 0
    story = compact(planned, lambda size: None)
    made = next(story)
    await meanwhile()
    while isinstance(made, Cleaned):
        swapped += await log.compaction.swap_in(made)
        made = next(story)
    await log.compaction.finish(made)
    return swapped


@pytest.mark.parametrize("committed", [10, 31, 57, 80, 100])
@pytest.mark.parametrize("crash", [False, True])
async def test_should_have_the_last_committed_value_when_a_later_one_is_cut_off(
    log: PartitionLog, directory: Path, threads: StorageThreads, committed: int, crash: bool
) -> None:
    """S31. Each key has later values above the high watermark, in closed segments too."""
    write_batches(log, committed)
    write_batches(log, 60, epoch=2)
    await log.sync()
    await log.checkpoint_high_watermark(Offset(committed))
    before = latest(await rows_from(log), committed)
    assert len(before) == KEYS

    async def nothing() -> None:
        pass

    swapped = await compacted_meanwhile(log, committed, nothing)
    assert swapped or committed < 50
    assert await log.truncate(Offset(committed)) == committed
    if crash:
        log = open_log(directory, threads, SMALL)

    assert latest(await rows_from(log), committed) == before
    write_batches(log, 30, epoch=3)
    assert latest(await rows_from(log), committed) == before


@pytest.mark.parametrize("end", [57, 80, 95])
async def test_should_have_the_last_value_when_the_log_is_cut_during_a_pass(log: PartitionLog, end: int) -> None:
    """As after an unclean election: below what was committed, so that the pass knows of values that are gone."""
    write_batches(log, 100)
    await log.sync()
    before = latest(await rows_from(log), end)

    async def cut() -> None:
        assert await log.truncate(Offset(end)) == end
        write_batches(log, 60, epoch=2, keys=1)

    swapped = await compacted_meanwhile(log, 100, cut)
    assert not swapped or end == 95, "only that cut is above all that is compacted"
    rows = await rows_from(log)
    assert latest(rows, end) == before
    assert [offset for offset, _ in rows if offset >= end] == list(range(end, end + 60))


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third read has to wait for the disk."""
    chance, preadv = random.Random(7), os.preadv

    def read(fd: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        if chance.random() < 1 / 3:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        return preadv(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", read)


class Racing:
    """A log that is changed in every way, and readers beside; `written` is what was at each offset at any time."""

    def __init__(self, log: PartitionLog, seed: int) -> None:
        self.log = log
        self.chance = random.Random(seed)
        self.written: dict[int, set[bytes]] = {}
        self.epoch = 1
        self.is_over = False

    def write(self, count: int) -> None:
        first = self.log.log_end_offset
        write_batches(self.log, count, epoch=self.epoch)
        for number in range(first, first + count):
            self.written.setdefault(number, set()).add(f"{number}.".encode() * 300)

    async def change(self) -> None:
        log, chance = self.log, self.chance
        end, start = log.log_end_offset, log.log_start_offset
        match chance.choice(["write", "write", "write", "sync", "cut", "delete", "expire", "compact", "anew"]):
            case "write":
                self.write(chance.randint(1, 40))
            case "sync":
                await log.sync()
            case "cut":
                self.epoch += 1
                await log.truncate(Offset(chance.randint(start, end)), allow_below_high_watermark=True)
            case "delete":
                await log.delete_before(Offset(chance.randint(start, min(end, start + 30))))
            case "expire":
                expired = await log.expired(Retention(None, 40_000), end, NOW_MS)
                await log.delete_before(expired[-1].segment.next_offset if expired else start)
            case "compact":
                await compacted_meanwhile(log, log.durable_end, lambda: asyncio.sleep(0))
            case _:
                await log.start_at(Offset(end + chance.randint(0, 50)))

    async def read(self, seed: int) -> int:
        chance, found = random.Random(seed), 0
        while not self.is_over:
            offset = Offset(chance.randint(self.log.log_start_offset, self.log.log_end_offset))
            with suppress(OffsetOutOfRangeError):
                await self.log.find_timestamp(NOW_MS, END)
                buffers = await self.log.read(offset, max_bytes=chance.choice([1, 5_000, 40_000]), up_to=END)
                found += sum(map(self.check, buffers))
            await asyncio.sleep(0)
        return found

    def check(self, buffer: memoryview) -> int:
        rows = [row for batch in decode_batches(buffer) for row in batch.rows()]
        assert all(record.value in self.written[offset] for offset, record in rows)
        return len(rows)


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("seed", range(4))
async def test_should_show_readers_only_what_was_written(log: PartitionLog, seed: int) -> None:
    """S21. Whatever is deleted, cut and compacted: what a reader finds was there at that offset at some time."""
    racing = Racing(log, seed)
    racing.write(60)
    readers = [asyncio.create_task(racing.read(4 * seed + number)) for number in range(4)]
    for _ in range(60):
        await racing.change()
        await asyncio.sleep(0)
    racing.is_over = True
    assert sum(await asyncio.gather(*readers)) > 100
