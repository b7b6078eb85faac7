"""One cluster of two brokers for the tests that only talk; one of a module's own for those that kill."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.cluster import Cluster, running_cluster

_NUMBERS = count()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Tests make topics of their own in it and kill nothing."""
    with running_cluster(tmp_path_factory.mktemp("shared"), brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker, to be killed at will. A test leaves broker 0 running; topics are its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"
