"""Records by the kubeconfig alone: the brokers are found by their Leases and reached by the API server's proxy."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.dev.supervisor.workload import CreatePod, pod_object, service_object
from tests.support.cluster import Cluster
from tests.support.command import Headrace

_CORE = "/api/v1/namespaces/default"
_READY = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture
def by_kubeconfig(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing names a broker, and no `headrace dev` runs."""
    monkeypatch.delenv("HEADRACE_SERVER")


@pytest.fixture(scope="module")
def pods(shared: Cluster) -> Iterator[None]:
    """A Pod for each broker, as the supervisor would make it, and no Service yet."""
    for broker in range(2):
        port = int(shared.url(broker).rpartition(":")[2])
        pod = pod_object(CreatePod(broker, port, "set-uid", "1", "a test"), "here")
        del pod["metadata"]["ownerReferences"]  # There is no StatefulSet here, and without its owner a Pod goes.
        made = shared.kube("POST", f"{_CORE}/pods", pod)
        made["status"] = _READY
        shared.kube("PUT", f"{_CORE}/pods/headrace-{broker}/status", made)
    yield
    for broker in range(2):
        shared.kube("DELETE", f"{_CORE}/pods/headrace-{broker}?gracePeriodSeconds=0")


@pytest.fixture
def service(shared: Cluster, pods: None) -> Iterator[None]:
    shared.kube("POST", f"{_CORE}/services", service_object())
    yield
    shared.kube("DELETE", f"{_CORE}/services/headrace-bootstrap")


@pytest.mark.usefixtures("by_kubeconfig", "service")
def test_should_write_and_read_by_the_current_kubeconfig(shared: Cluster, headrace: Headrace, topic: str) -> None:
    shared.create_topic(topic, partitions=4)
    lines = [f"line {number}" for number in range(500)]
    done = headrace("produce", topic, stdin="".join(f"{line}\n" for line in lines))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    read = headrace("consume", topic, "-o", "value")
    assert read.returncode == 0, read.stderr
    assert sorted(read.stdout.splitlines()) == sorted(lines)
    status = headrace("cluster", "status", "-o", "json")
    assert [broker["state"] for broker in json.loads(status.stdout)["brokers"]] == ["Ready", "Ready"]


@pytest.mark.usefixtures("by_kubeconfig", "pods")
def test_should_say_what_is_missing_where_no_service_leads_to_the_brokers(headrace: Headrace) -> None:
    done = headrace("consume", "flights")
    assert (done.returncode, done.stdout) == (1, "")
    assert "brokers are in namespace default of http" in done.stderr
    assert "no Service headrace-bootstrap leads to them: create it" in done.stderr


@pytest.mark.parametrize(
    ("cluster_members", "why"),
    [
        ({"server": "http://127.0.0.1:1"}, "and the current kubeconfig's API server cannot be asked for brokers"),
        ({"server": "https://127.0.0.1:1", "proxy-url": "http://127.0.0.1:2"}, "by proxy-url http://127.0.0.1:2"),
        (
            {"server": "https://127.0.0.1:1", "certificate-authority-data": base64.b64encode(b"x").decode()},
            "the certificates of the kubeconfig cannot be used",
        ),
    ],
)
@pytest.mark.usefixtures("by_kubeconfig")
def test_should_say_in_one_sentence_why_a_kubeconfig_leads_nowhere(
    headrace: Headrace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster_members: dict[str, str],
    why: str,
) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster_members}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "broken").write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    done = headrace("consume", "flights")
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("by_kubeconfig")
def test_should_name_every_way_to_the_brokers_where_there_is_none(
    headrace: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    done = headrace("consume", "flights")
    assert done.returncode == 1
    assert done.stderr == (
        "headrace: no server is given and no `headrace dev` is running: start `headrace dev`, or name a broker with"
        " --server or HEADRACE_SERVER, for example http://127.0.0.1:9701, or a cluster with --kubeconfig\n"
    )
