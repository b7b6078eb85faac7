"""One Headrace of real processes for the tests that break nothing; each test has topics of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.client_bench import Bench
from tests.support.cluster import Cluster, running_cluster

_numbers = count()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as running:
        yield running


@pytest.fixture
def bench(cluster: Cluster) -> Bench:
    return Bench(cluster, f"topic-{next(_numbers)}")
