"""S31 and S21: compaction, retention, deletion and cuts, with values that are not committed and readers under way."""

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.log.compaction import CompactionRules, Later
from headrace.core.log.retention import Retention
from headrace.core.records.columns import decode_batches
from headrace.core.types import LeaderEpoch, Offset, Record
from headrace_broker.storage.compaction_files import Cleaned
from headrace_broker.storage.compaction_worker import compact
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
        write(self.log, count, epoch=self.epoch)
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
                await compacted(log, log.durable_end, lambda: asyncio.sleep(0))
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
