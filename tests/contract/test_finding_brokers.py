"""Finding a cluster's brokers by a kubeconfig, and reaching them by the API server's proxy."""

import asyncio
from pathlib import Path

import pytest
import yaml

from headrace.cli.servers import Found, find
from headrace.core.errors import LocalError
from headrace.core.resources.kubernetes_objects import bootstrap_service
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.exchange import Response
from tests.support.api_objects import lease
from tests.support.api_server import ApiServer, Space
from tests.support.behind_proxy import address_of, echoing, run_web


@pytest.fixture
def kubeconfig(api_server: ApiServer, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose context is in the test's own namespace."""
    monkeypatch.delenv("HEADRACE_SERVER", raising=False)
    document = yaml.safe_load(api_server.kubeconfig.read_text())
    for each in document["contexts"]:
        each["context"]["namespace"] = space.name
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def _find(kubeconfig: str, namespace: str | None = None) -> Found:
    return await asyncio.to_thread(find, None, None, kubeconfig, None, namespace)


def _ask(found: Found) -> Response:
    with BlockingTransport(found.server.ssl_context) as transport:
        return transport.request("GET", f"{found.server.urls[0]}/v1/cluster", headers=found.server.headers)


async def test_should_find_the_brokers_by_their_lease_and_reach_them_by_their_service(
    api_server: ApiServer, space: Space, kubeconfig: str
) -> None:
    labelled = lease(holderIdentity="1")
    labelled["metadata"]["labels"] = {CLUSTER_LABEL: "logs"}
    await space.create("leases", labelled)
    with pytest.raises(LocalError, match=f"no Service logs-bootstrap leads to them: .* -n {space.name}"):
        await _find(kubeconfig)

    host = address_of(api_server)
    with echoing(host) as port:
        await run_web(space, api_server, host, port, bootstrap_service("logs"))
        found = await _find(kubeconfig)
        assert (found.namespace, found.server.reaches_leaders) == (space.name, False)
        answer = await asyncio.to_thread(_ask, found)
        assert answer.status == 418
        assert b'"path": "/v1/cluster"' in answer.body
        assert (await _find(kubeconfig, "data")).namespace == "data"
