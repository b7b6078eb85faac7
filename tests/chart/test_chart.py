"""Every manifest of the chart, for each values file in its `ci` folder, before a real API server; with both Helms."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.__main__ import made
from e2e.lab.api_server import ApiServer, api_server
from e2e.lab.errors import LabError
from e2e.lab.home import lab_home
from tests.support.tools import require_tool

CHART = Path(__file__).parents[2] / "charts" / "headrace"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
HELMS = ("helm", "helm4")
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Its CRDs have the schemas of PodMonitor and PrometheusRule, which no API server has by itself."""
NAMESPACE = "default"
BROKER, OPERATOR, UNINSTALL = "headrace", "headrace-operator", "headrace-uninstall"


def helm(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    tool = require_tool(name, lab_home() / "bin" / name)
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)


def rendered(name: str, *arguments: str | Path) -> str:
    done = helm(name, "template", "headrace", CHART, "--namespace", NAMESPACE, "--kube-version", "1.36.0", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    """A fresh one that knows the kinds of the Prometheus operator."""
    go = require_tool("go")
    done = subprocess.run([go, "mod", "download", "-json", PROMETHEUS_OPERATOR], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    crds = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    with api_server() as server:
        for kind in ("podmonitors", "prometheusrules"):
            server.kubectl("create", "--filename", crds / f"monitoring.coreos.com_{kind}.yaml")
            server.kubectl("wait", "--for=condition=Established", f"crd/{kind}.monitoring.coreos.com", "--timeout=30s")
        yield server


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", HELMS)
def test_should_have_nothing_that_helm_warns_of(name: str, values: Path) -> None:
    done = helm(name, "lint", "--strict", CHART, "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", HELMS)
def test_should_be_taken_by_an_api_server(name: str, values: Path, api: ApiServer, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(rendered(name, "--values", values))
    said = api.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", manifests)
    kinds = [each["kind"] for each in yaml.safe_load_all(manifests.read_text()) if each]
    assert said.count(" serverside-applied (server dry run)") == len(kinds)
    assert {"StatefulSet", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "CustomResourceDefinition"} <= {*kinds}


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_should_mean_the_same_with_both_helms(values: Path) -> None:
    first, second = ([*filter(None, yaml.safe_load_all(rendered(name, "--values", values)))] for name in HELMS)
    assert sorted(first, key=_identity) == sorted(second, key=_identity)


def _identity(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("brokers.replicas=0", "'/brokers/replicas'"),
        ("brokers.replica=5", "'replica' not allowed"),
        ("brokers.diskQuota=5X", "'/brokers/diskQuota'"),
        ("brokers.logLevel=loud", "'debug', 'info', 'warning', 'error'"),
        ("cluster=Headrace", "'/cluster'"),
        ("networkPolicy.clients[0].pods=all", "'pods' not allowed"),
    ],
)
def test_should_refuse_values_of_which_nothing_would_come(setting: str, complaint: str) -> None:
    done = helm("helm", "template", "headrace", CHART, "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_should_keep_the_definitions_when_it_is_uninstalled_and_leave_them_out_when_told() -> None:
    crds = [
        each for each in yaml.safe_load_all(rendered("helm")) if each and each["kind"] == "CustomResourceDefinition"
    ]
    assert len(crds) == 3
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)
    assert "CustomResourceDefinition" not in rendered("helm", "--set", "crds.install=false")


@pytest.fixture(scope="module")
def accounts(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> ApiServer:
    """With all rights of the chart, hooks' included."""
    manifests = tmp_path_factory.mktemp("rbac") / "manifests.yaml"
    rights = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    all_of_them = yaml.safe_load_all(rendered("helm", "--set", "spark.rbac=true,tls.secretName=headrace-tls"))
    manifests.write_text(yaml.safe_dump_all(each for each in all_of_them if each and each["kind"] in rights))
    api.kubectl("apply", "--server-side", "--filename", manifests)
    return api


MAY = [
    (BROKER, "update", "partitionsets.headrace.io", "elsewhere"),
    (BROKER, "create", "consumergroups.headrace.io", "elsewhere"),
    (BROKER, "create", "leases.coordination.k8s.io", NAMESPACE),
    (BROKER, "watch", "secrets/headrace-tls", NAMESPACE),
    (BROKER, "get", "statefulsets.apps/headrace", NAMESPACE),
    (OPERATOR, "create", "partitionsets.headrace.io", "elsewhere"),
    (OPERATOR, "patch", "topics.headrace.io", "elsewhere"),
    (OPERATOR, "patch", "topics.headrace.io/status", "elsewhere"),
    (OPERATOR, "watch", "pods", NAMESPACE),
    (UNINSTALL, "patch", "deployments.apps/headrace-operator", NAMESPACE),
    ("spark", "create", "pods", NAMESPACE),
]
MAY_NOT = [
    (BROKER, "patch", "topics.headrace.io", "elsewhere"),
    (BROKER, "delete", "partitionsets.headrace.io", NAMESPACE),
    (BROKER, "create", "topics.headrace.io", "elsewhere"),
    (BROKER, "create", "leases.coordination.k8s.io", "elsewhere"),
    (BROKER, "get", "secrets/another", NAMESPACE),
    (BROKER, "get", "secrets/headrace-tls", "elsewhere"),
    (BROKER, "list", "pods", NAMESPACE),
    (OPERATOR, "get", "secrets/headrace-tls", NAMESPACE),
    (OPERATOR, "delete", "topics.headrace.io", NAMESPACE),
    (OPERATOR, "delete", "pods", NAMESPACE),
    (OPERATOR, "patch", "statefulsets.apps", NAMESPACE),
    (OPERATOR, "list", "pods", "elsewhere"),
    (UNINSTALL, "patch", "deployments.apps/another", NAMESPACE),
    (UNINSTALL, "delete", "topics.headrace.io", NAMESPACE),
    ("spark", "create", "pods", "elsewhere"),
    ("spark", "delete", "topics.headrace.io", NAMESPACE),
    ("spark", "get", "secrets", NAMESPACE),
]


@pytest.mark.parametrize(("account", "verb", "what", "namespace"), MAY, ids=str)
def test_should_give_the_rights_that_are_needed(
    accounts: ApiServer, account: str, verb: str, what: str, namespace: str
) -> None:
    assert can(accounts, account, verb, what, namespace)


@pytest.mark.parametrize(("account", "verb", "what", "namespace"), MAY_NOT, ids=str)
def test_should_give_no_more(accounts: ApiServer, account: str, verb: str, what: str, namespace: str) -> None:
    assert not can(accounts, account, verb, what, namespace)


def can(api: ApiServer, account: str, verb: str, what: str, namespace: str) -> bool:
    kind, _, rest = what.partition("/")
    named = [f"--subresource={rest}"] if rest == "status" else []
    resource = kind if named or not rest else what
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    try:
        return api.kubectl("auth", "can-i", verb, resource, *named, who, f"--namespace={namespace}").strip() == "yes"
    except LabError:
        return False  # kubectl says no by its exit code.


def test_should_have_made_dashboards_and_page_from_what_there_is() -> None:
    for file, content in made().items():
        assert file.read_text() == content, f"run python -m charts.tools: {file.name} is not as it would be made"


def test_should_lay_out_dashboards_without_overlaps() -> None:
    for file in (CHART / "files" / "dashboards").glob("*.json"):
        panels = json.loads(file.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for place in (panel["gridPos"] for panel in panels):
            assert 0 <= place["x"] < place["x"] + place["w"] <= 24
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken
            taken |= cells
