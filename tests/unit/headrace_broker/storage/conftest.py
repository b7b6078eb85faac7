"""Threads for the logs under test."""

from collections.abc import Iterator

import pytest

from headrace_broker.storage.threads import StorageThreads
from tests.support.logs import storage_threads


@pytest.fixture
def threads() -> Iterator[StorageThreads]:
    with storage_threads() as threads:
        yield threads
