"""Logs of many segments: which of them stay open, and where a lookup by time begins.

The memory that segments take stays in proportion to their number.
"""

import resource
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.types import Offset
from headrace_broker.storage import disk
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.segment_set import NewestRecords
from headrace_broker.storage.threads import OpenSegments, StorageThreads
from tests.support.examples import examples
from tests.support.logs import (
    END,
    EPOCH,
    NOW_MS,
    SMALL,
    fill,
    log_files,
    new_log_directory,
    open_log,
    raw_batch,
    storage_threads,
    values_from,
)


def _open_logs(log_directory: Path) -> int:
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(link.suffix == ".log" and link.parent == log_directory for link in links)


async def test_should_keep_open_what_was_read_last(tmp_path: Path, threads: StorageThreads) -> None:
    threads.open_segments = OpenSegments(3)
    log = open_log(new_log_directory(tmp_path), threads, SMALL)
    fill(log, 200)
    await log.sync()
    assert len(log_files(log.directory)) > 5
    assert await values_from(log, 0) == list(range(200))
    assert _open_logs(log.directory) == 3 + 1
    (again,) = await log.read(Offset(0), max_bytes=1, up_to=END)
    assert log.read_cached(Offset(0), max_bytes=1, up_to=log.log_end_offset) == [again]
    assert log.read_cached(Offset(60), max_bytes=1, up_to=log.log_end_offset) is None


def test_should_leave_most_descriptors_to_others() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, before[1]))
    try:
        segments = OpenSegments()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    owner = _Owner()
    for base in range(25):
        segments.note(owner, Offset(base % 20))
    assert owner.gone == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


class _Owner:
    def __init__(self) -> None:
        self.gone: list[Offset] = []

    def let_go(self, base: Offset) -> None:
        self.gone.append(base)


async def test_should_read_in_a_thread_what_would_hold_up_the_loop(tmp_path: Path, threads: StorageThreads) -> None:
    log = open_log(new_log_directory(tmp_path), threads)
    log.append([raw_batch(1, 2 << 20)], EPOCH, NOW_MS)
    fill(log, 3)
    assert log.read_cached(Offset(0), max_bytes=8 << 20, up_to=log.log_end_offset) is None
    buffer, *_ = await log.read(Offset(0), max_bytes=8 << 20, up_to=END)
    assert len(buffer) > 2 << 20
    assert log.read_cached(Offset(1), max_bytes=8 << 20, up_to=log.log_end_offset) is not None


async def test_should_always_use_a_thread_where_the_kernel_cannot_say_what_is_cached(
    tmp_path: Path, threads: StorageThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(new_log_directory(tmp_path), threads)
    fill(log, 3)
    monkeypatch.setattr(disk, "_NOWAIT", 0)
    assert log.read_cached(Offset(0), max_bytes=100, up_to=log.log_end_offset) is None
    assert await values_from(log, 0) == [0, 1, 2]


@examples(0.5)
@given(
    times=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    wanted=st.lists(st.integers(0, 42), min_size=1, max_size=5),
    deleted=st.integers(0, 30),
)
async def test_should_find_the_first_record_since_a_time_in_whatever_order_times_come(
    times: Sequence[int], wanted: Sequence[int], deleted: int
) -> None:
    with TemporaryDirectory() as folder, storage_threads() as threads:
        directory = new_log_directory(Path(folder))
        log = open_log(directory, threads, SMALL)
        for time in times:
            log.append([raw_batch(1, 5_000, time)], EPOCH, NOW_MS)
            assert await log.find_timestamp(time, END) is not None
        await _check(log, times, wanted, 0)
        start = min(deleted, len(times))
        await log.delete_before(Offset(start))
        await _check(log, times, wanted, start)
        log.close()
        await _check(open_log(directory, threads, SMALL), times, wanted, start)


async def _check(log: PartitionLog, times: Sequence[int], wanted: Sequence[int], start: int) -> None:
    for time in wanted:
        expected = next(((offset, at) for offset, at in enumerate(times) if offset >= start and at >= time), None)
        assert await log.find_timestamp(time, END) == expected


def _never(base: Offset) -> int:
    raise AssertionError(f"segment {base} is known")


def test_should_forget_segments_that_are_gone() -> None:
    newest = NewestRecords()
    bases = [Offset(0)]
    looked_at = list[Offset]()
    for number in range(1, 1000):
        newest.note(bases, Offset(number), newest_ms=number)
        # As retention does: only the last two are left.
        bases = [*bases[-2:], Offset(number)]
    assert newest.first_since(998, bases, _never) == 0
    assert newest.first_since(999, bases, _never) == 1
    assert newest.first_since(1000, bases, _never) == 2

    def look(base: Offset) -> int:
        looked_at.append(base)
        return 0

    newest.first_since(1000, [Offset(number) for number in range(1000)], look)
    assert len(looked_at) > 990
