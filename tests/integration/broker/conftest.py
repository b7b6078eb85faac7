"""A cluster of a module's own for the tests that kill."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker, to be killed at will. A test leaves broker 0 running; topics are its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
