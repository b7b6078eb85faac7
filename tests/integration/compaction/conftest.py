"""One broker that compacts what is to be compacted at once; tests make topics of their own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.cluster import Cluster, running_cluster

_NUMBERS = count()
EAGER = ["--housekeeping-interval", "100ms"]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A test that kills broker 0 starts it again."""
    with running_cluster(tmp_path_factory.mktemp("compaction"), options=EAGER) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"
