"""The logs under test, and the threads that they use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.logs import SMALL, new_log_directory, open_log, storage_threads


@pytest.fixture
def threads() -> Iterator[StorageThreads]:
    with storage_threads() as threads:
        yield threads


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return new_log_directory(tmp_path)


@pytest.fixture
def log(directory: Path, threads: StorageThreads) -> PartitionLog:
    """Empty, of small segments."""
    return open_log(directory, threads, SMALL)
