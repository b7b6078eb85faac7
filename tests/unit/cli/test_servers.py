"""Which cluster a command's records go to, from the Leases of its brokers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.servers import BrokerService, find, only_cluster
from headrace.core.errors import LocalError
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Incarnation
from headrace.kube.errors import KubeConfigError


def _lease(broker: int = 0, namespace: str = "data", cluster: str = "headrace", url: str = "") -> BrokerLease:
    metadata = Metadata(f"headrace-broker-{broker}", namespace, labels={CLUSTER_LABEL: cluster})
    return BrokerLease(metadata, BrokerId(broker), Incarnation(1), url or f"http://{broker}:9701")


def test_should_take_the_one_cluster_that_is_there() -> None:
    assert only_cluster([_lease(0), _lease(1)], "https://api") == BrokerService("data", "headrace", "http")
    assert only_cluster([_lease(url="https://b:9701")], "https://api").scheme == "https"


def test_should_ask_the_proxy_for_the_port_by_name_and_for_tls_by_scheme() -> None:
    proxied = "https://api:6443/api/v1/namespaces/data/services"
    assert (
        BrokerService("data", "logs", "http").proxy_url("https://api:6443/") == f"{proxied}/logs-bootstrap:http/proxy"
    )
    assert BrokerService("data", "logs", "https").proxy_url("https://api:6443") == (
        f"{proxied}/https:logs-bootstrap:http/proxy"
    )


def test_should_say_what_helps_where_no_broker_is() -> None:
    with pytest.raises(
        LocalError, match=r"no Headrace runs in the cluster of https://api: .* name a broker with --server"
    ):
        only_cluster([], "https://api")


def test_should_not_choose_between_two_clusters() -> None:
    leases = [_lease(namespace="b"), _lease(namespace="a", cluster="logs")]
    with pytest.raises(LocalError, match=r"\(logs in namespace a, headrace in namespace b\): choose a context"):
        only_cluster(leases, "https://api")


def test_should_do_without_kubernetes_where_it_is_not_installed(tmp_path: Path) -> None:
    program = "import sys; sys.modules['aiohttp'] = None; from headrace.cli.main import run; run(['consume', 'x'])"
    # With the latter, Python says on stderr what took longer than 0.1 s.
    unwanted = ("HEADRACE_SERVER", "PYTHONASYNCIODEBUG")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment["HEADRACE_HOME"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("headrace: no server is given and no `headrace dev` is running: start `headrace dev`")


def test_should_take_a_named_server_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_SERVER", raising=False)
    found = find("http://b:9701", None, None, None, None)
    assert (found.server.urls, found.server.reaches_leaders, found.namespace) == (("http://b:9701",), True, "default")
    monkeypatch.setenv("HEADRACE_SERVER", "http://env:9701")
    found = find(None, None, None, None, "data")
    assert (found.server.urls, found.namespace) == (("http://env:9701",), "data")


def test_should_take_an_option_before_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVER", "http://env:9701")
    with pytest.raises(KubeConfigError, match="/nowhere"):
        find(None, None, "/nowhere", None, None)


def test_should_take_the_namespace_of_the_running_devs_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_SERVER", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    broker = {"id": 0, "pid": os.getpid(), "url": "http://127.0.0.1:9701", "data": "/d"}
    kubeconfig = tmp_path / "kubeconfig"
    state = {"kubeconfig": str(kubeconfig), "api": {"url": "http://127.0.0.1:9700", "pid": os.getpid()}}
    (tmp_path / "dev.json").write_text(json.dumps({**state, "brokers": [broker]}))
    assert find(None, None, None, None, None).namespace == "default"
    kubeconfig.write_bytes(b"\xff\xfe\xff")
    assert find(None, None, None, None, None).namespace == "default"
    kubeconfig.write_text("current-context: a\ncontexts: [{name: a, context: {namespace: teamx}}]\n")
    assert find(None, None, None, None, None).namespace == "teamx"
    assert find(None, None, None, None, "other").namespace == "other"
