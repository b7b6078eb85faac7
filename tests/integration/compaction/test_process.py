"""The process that compacts: one for many jobs, replaced when it dies, gone when there is nothing to do."""

import os
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from headrace_broker.partition.compaction import CompactionProcess
from headrace_broker.storage.compaction_files import Cleaned, CompactorMessage, FailureCause, Job, PassDone, PassFailed
from headrace_broker.storage.threads import StorageThreads
from tests.support.compaction import append, job, keyed, rows_from, swap_in
from tests.support.descriptors import descriptors_left
from tests.support.dev import command_of
from tests.support.logs import SMALL, flip_bit, log_files, new_log_directory, open_log
from tests.support.waiting import eventually


def filled(directory: Path, threads: StorageThreads) -> Path:
    directory.mkdir()
    log_directory = new_log_directory(directory)
    log = open_log(log_directory, threads, SMALL)
    for number in range(60):
        append(log, keyed((f"key-{number % 5}", f"{number}" * 600)))
    log.close()
    return log_directory


async def story(
    process: CompactionProcess, asked: Job, between: Callable[[Job, Cleaned], None]
) -> list[CompactorMessage]:
    told = []
    async with aclosing(process.run(asked)) as steps:
        async for each in steps:
            told.append(each)
            if isinstance(each, Cleaned):
                between(asked, each)
            else:
                break  # as a broker does, which has heard all that it wants to know
    return told


def compactors() -> set[int]:
    """Of this process's children, those that compact."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(child) for child in children if b"compaction_worker" in command_of(int(child))}


async def test_should_do_one_job_after_the_other(tmp_path: Path, threads: StorageThreads) -> None:
    process, seen = CompactionProcess(), set[int]()
    for name in "ab":
        directory = filled(tmp_path / name, threads)
        *cleaned, done = await story(process, job(directory), swap_in)
        assert len(cleaned) == 1
        assert isinstance(done, PassDone)
        assert done.records_after == 5
        seen |= compactors()
        assert len(await rows_from(open_log(directory, threads, SMALL))) < 60
    assert len(seen) == 1
    await process.close()


async def test_should_end_when_there_is_nothing_to_do(tmp_path: Path, threads: StorageThreads) -> None:
    process = CompactionProcess(idle_ms=100)
    await story(process, job(filled(tmp_path / "log", threads)), swap_in)
    await eventually(lambda: not compactors(), "it ends by itself")
    await process.close()


async def test_should_tell_what_went_wrong_and_go_on_with_the_next_job(tmp_path: Path, threads: StorageThreads) -> None:
    damaged, gone, whole = (filled(tmp_path / name, threads) for name in ("damaged", "gone", "whole"))
    flip_bit(log_files(damaged)[0], 8 * 700)
    asked = job(gone)
    log_files(gone)[0].unlink()
    process = CompactionProcess()

    def kill(asked: Job, made: Cleaned) -> None:
        (pid,) = compactors()
        os.kill(pid, signal.SIGKILL)

    found = [
        *await story(process, job(damaged), kill),
        *await story(process, asked, kill),
        (await story(process, job(whole), kill))[-1],
    ]

    assert [each.why for each in found if isinstance(each, PassFailed)] == [
        FailureCause.DAMAGED,
        FailureCause.CHANGED,
        FailureCause.ENDED,
    ]
    done = (await story(process, job(whole), swap_in))[-1]
    assert isinstance(done, PassDone)
    await process.close()
    assert not compactors()


async def test_should_fail_the_job_when_the_process_cannot_be_started(tmp_path: Path, threads: StorageThreads) -> None:
    asked, process = job(filled(tmp_path / "log", threads)), CompactionProcess()
    with descriptors_left(0):
        (failed,) = await story(process, asked, swap_in)
    assert isinstance(failed, PassFailed)
    assert failed.why is FailureCause.ENDED
    assert "Too many open files" in failed.message
