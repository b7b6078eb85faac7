"""One broker that compacts what is to be compacted at once; tests make topics of their own."""

from collections.abc import Iterator

import pytest

from headrace_broker.storage.threads import StorageThreads
from tests.support.cluster import Cluster, running_cluster
from tests.support.logs import storage_threads

EAGER = ["--housekeeping-interval", "100ms"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A test that kills broker 0 starts it again."""
    with running_cluster(tmp_path_factory.mktemp("compaction"), options=EAGER) as cluster:
        yield cluster


@pytest.fixture
def threads() -> Iterator[StorageThreads]:
    with storage_threads() as threads:
        yield threads
