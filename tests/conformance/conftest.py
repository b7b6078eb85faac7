"""Two real brokers, one in the clear and one over TLS, for other people's judges of HTTP/2."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.certificates import Authority, Mount
from tests.support.cluster import Cluster, running_cluster


@dataclass(frozen=True, slots=True)
class Served:
    cluster: Cluster

    @property
    def url(self) -> str:
        return self.cluster.url()

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    @property
    def is_tls(self) -> bool:
        return self.url.startswith("https:")


@pytest.fixture(scope="package", params=["h2c", "tls"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that has told of no trouble when all is over."""
    authority = Authority()
    home = tmp_path_factory.mktemp("conformance")
    secure = request.param == "tls"
    options = Mount(home / "tls", authority.secret()).options if secure else []
    with running_cluster(home, options=options, tls=authority.trust if secure else None) as cluster:
        yield Served(cluster)
        log = cluster.broker().log
        assert "Traceback" not in log, log
