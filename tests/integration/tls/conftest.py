"""One Headrace whose two brokers speak TLS with the same certificate, mounted as a Secret is."""

from collections.abc import Iterator

import pytest

from tests.support.certificates import Authority, Mount
from tests.support.cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Mount:
    """A test that changes it leaves a certificate that can be used."""
    return Mount(tmp_path_factory.mktemp("mount") / "tls", authority.secret())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, authority: Authority, mount: Mount) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("secure")
    with running_cluster(home, brokers=2, options=mount.options, tls=authority.trust) as running:
        yield running
