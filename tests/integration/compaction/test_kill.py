"""kill -9 before each step that a compaction takes on the disk: the log is the old one or the new one, and whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace_broker.storage.threads import StorageThreads
from tests.support.compaction import Rows, append, compact_files, job, keyed, rows_from
from tests.support.logs import SMALL, new_log_directory, open_log
from tests.support.patience import patient


@pytest.fixture
def directory(tmp_path: Path, threads: StorageThreads) -> Path:
    """Three closed segments, which fit one, and the active one."""
    directory = new_log_directory(tmp_path)
    log = open_log(directory, threads, SMALL)
    for number in range(40):
        append(log, keyed((f"key-{number % 7}", f"{number}" * 600)))
    log.close()
    return directory


def killed_at_every_step(directory: Path, copies: Path) -> list[Path]:
    """Copies of the log; the last one was compacted to the end."""
    command = [sys.executable, "-m", "tests.support.compaction_victim", str(directory), str(copies)]
    subprocess.run(command, check=True, timeout=patient(60))
    return sorted(copies.iterdir(), key=lambda path: int(path.name))


async def test_should_leave_a_whole_log_when_killed_before_any_step(
    directory: Path, tmp_path: Path, threads: StorageThreads
) -> None:
    before = await rows_of(directory, threads)
    copies = killed_at_every_step(directory, tmp_path / "copies")
    compact_files(job(directory))
    after = await rows_of(directory, threads)
    assert len(after) < len(before)

    outcomes = []
    for copy in copies:
        found = await rows_of(copy, threads)
        assert found in (before, after)
        outcomes.append(found == after)
        assert not [path.name for path in copy.iterdir() if path.suffix in (".cleaned", ".swap")]
        compact_files(job(copy))
        assert await rows_of(copy, threads) == after

    assert outcomes == sorted(outcomes), "once decided it is never taken back"
    assert outcomes.count(True) > 5
    assert outcomes.count(False) > 5


async def rows_of(directory: Path, threads: StorageThreads) -> Rows:
    log = open_log(directory, threads, SMALL)
    found = await rows_from(log)
    assert not log.recovery.damaged_files
    log.close()
    return found
