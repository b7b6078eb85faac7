"""S31 and S21: compaction, retention, deletion and cuts, with values that are not committed and readers under way."""

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.log.compaction import CompactionRules, Later
from headrace.core.log.retention import Retention
from headrace.core.records.columns import decode_batches
from headrace.core.records.record import Record
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.compaction_job import Cleaned
from headrace_broker.storage.compactor import compact
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.compaction import append, keyed, rows_from
from tests.support.logs import END, NOW_MS, SMALL, open_log

RULES = CompactionRules(min_lag_ms=0, delete_retention_ms=1_000, segment_bytes=60_000)
KEYS = 5


def write(log: PartitionLog, count: int, *, epoch: int = 1, keys: int = KEYS) -> None:
    for number in range(log.log_end_offset, log.log_end_offset + count):
        append(log, keyed((f"key-{number % keys}", f"{number}." * 300), time_ms=NOW_MS), epoch=LeaderEpoch(epoch))


def latest(rows: list[tuple[int, Record]], below: int) -> dict[bytes | None, bytes | None]:
    return {row.key: row.value for offset, row in rows if offset < below}


async def compacted(log: PartitionLog, high_watermark: int, meanwhile: Callable[[], Awaitable[object]]) -> int:
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
    write(log, committed)
    write(log, 60, epoch=2)
    await log.sync()
    await log.checkpoint_high_watermark(Offset(committed))
    before = latest(await rows_from(log), committed)
    assert len(before) == KEYS

    async def nothing() -> None:
        pass

    swapped = await compacted(log, committed, nothing)
    assert swapped or committed < 50
    assert await log.truncate(Offset(committed)) == committed
    if crash:
        log = open_log(directory, threads, SMALL)

    assert latest(await rows_from(log), committed) == before
    write(log, 30, epoch=3)
    assert latest(await rows_from(log), committed) == before


@pytest.mark.parametrize("end", [57, 80, 95])
async def test_should_have_the_last_value_when_the_log_is_cut_during_a_pass(log: PartitionLog, end: int) -> None:
    """As after an unclean election: below what was committed, so that the pass knows of values that are gone."""
    write(log, 100)
    await log.sync()
    before = latest(await rows_from(log), end)

    async def cut() -> None:
        assert await log.truncate(Offset(end)) == end
        write(log, 60, epoch=2, keys=1)

    swapped = await compacted(log, 100, cut)
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


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("seed", range(4))
async def test_should_show_readers_only_what_was_written_whatever_is_deleted_cut_and_compacted(
    log: PartitionLog, seed: int
) -> None:
    """S21. Where a reader goes on, what it finds is what was there at that offset at some time, and nothing is torn."""
    chance, written, is_over = random.Random(seed), dict[int, set[bytes]](), False
    epoch = 1

    def note(count: int) -> None:
        first = log.log_end_offset
        write(log, count, epoch=epoch)
        for number in range(first, first + count):
            written.setdefault(number, set()).add(f"{number}.".encode() * 300)

    async def reader(number: int) -> int:
        mine, found = random.Random(seed * 100 + number), 0
        while not is_over:
            offset = mine.randint(log.log_start_offset, log.log_end_offset)
            try:
                buffers = await log.read(Offset(offset), max_bytes=mine.choice([1, 5_000, 40_000]), up_to=END)
                await log.find_timestamp(NOW_MS, END)
            except OffsetOutOfRangeError:
                await asyncio.sleep(0)
                continue
            for buffer in buffers:
                for batch in decode_batches(buffer):
                    for at, record in batch.rows():
                        assert record.value in written[at]
                        found += 1
            await asyncio.sleep(0)
        return found

    async def change() -> None:
        nonlocal epoch
        end, start = log.log_end_offset, log.log_start_offset
        match chance.choice(["write", "write", "write", "cut", "delete", "expire", "compact", "anew"]):
            case "write":
                note(chance.randint(1, 40))
                if chance.random() < 1 / 2:
                    await log.sync()
            case "cut":
                epoch += 1
                await log.truncate(Offset(chance.randint(start, end)), allow_below_high_watermark=True)
            case "delete":
                await log.delete_before(Offset(chance.randint(start, min(end, start + 30))))
            case "expire":
                expired = await log.expired(Retention(None, 40_000), log.log_end_offset, NOW_MS)
                if expired:
                    await log.delete_before(expired[-1].segment.next_offset)
            case "compact":
                await compacted(log, log.durable_end, lambda: asyncio.sleep(0))
            case _:
                if chance.random() < 1 / 4:
                    await log.start_at(Offset(end + chance.randint(0, 50)))

    readers = [asyncio.create_task(reader(number)) for number in range(4)]
    note(60)
    for _ in range(60):
        await change()
        await asyncio.sleep(0)
    is_over = True
    assert sum(await asyncio.gather(*readers)) > 100
