"""One broker that looks for what is too old all the time; tests make topics of their own and kill nothing."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("retention"), options=["--housekeeping-interval", "300ms"]) as cluster:
        yield cluster
