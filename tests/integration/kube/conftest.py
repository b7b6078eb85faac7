"""A client of some API server, and a namespace of its own for each test."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.kube.client import KubeClient
from tests.support.kube_api import namespace, some_api


@dataclass(frozen=True, slots=True)
class Space:
    client: KubeClient
    name: str


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with some_api(tmp_path_factory.mktemp("kube")) as path:
        yield path


@pytest.fixture
async def space(kubeconfig: Path) -> AsyncIterator[Space]:
    async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client, namespace(client, "kube") as name:
        yield Space(client, name)
