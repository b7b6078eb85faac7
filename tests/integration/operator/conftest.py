"""The operator, an API server and a cluster for each test.

Each test has a namespace and a cluster name of its own, so that tests, and whatever else uses the server, do not meet.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.kube_api import some_api
from tests.support.operator import Cluster, some_cluster


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with some_api(tmp_path_factory.mktemp("operator")) as path:
        yield path


@pytest.fixture
async def cluster(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with some_cluster(kubeconfig, tmp_path / "operator.log") as cluster:
        yield cluster
