"""The operator goes on when the authority of the brokers' certificates changes, as it is mounted."""

from pathlib import Path

import pytest

from tests.support.certificates import Authority, Mount
from tests.support.operator import Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.contract


async def test_should_take_a_new_authority_without_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    mount = Mount(tmp_path / "tls", {"ca.crt": Authority().pem})
    await cluster.operator.start("--tls-ca-file", str(mount.path("ca.crt")))

    def says(sentence: str) -> bool:
        return sentence in cluster.operator.log.read_text()

    await eventually(lambda: says("serving cluster"), "it runs")
    mount.put({"ca.crt": b"no certificate"})
    await eventually(lambda: says("the authority in use stays"), "it refuses what is broken")
    mount.put({"ca.crt": Authority().pem})
    await eventually(lambda: says("are checked against what CA file"), "it takes the new one")
