"""Every manifest of the chart, for each values file in its `ci` folder, before a real API server; with both Helms."""

import json
import re
import shutil
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
from headrace.core.units import BYTES, parse_quantity_bytes
from headrace_broker.main import DISK_QUOTA_BYTES_MIN, REPLICATION_CATCH_UP_RATE_MIN
from tests.support.tools import require_tool

CHART = Path(__file__).parents[2] / "charts" / "headrace"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
HELMS = ("helm", "helm4")
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Its CRDs have the schemas of PodMonitor and PrometheusRule, which no API server has by itself."""
HELM_TIMEOUT_S = 300
"""For a hook, by default."""
NAMESPACE, JOBS = "default", "spark"
"""Of the release, and of Spark's jobs."""
BROKER, OPERATOR, UNINSTALL, SPARK = "headrace", "headrace-operator", "headrace-uninstall", "spark"


def helm(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    tool = require_tool(name, lab_home() / "bin" / name)
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)


def rendered(name: str, *arguments: str | Path) -> str:
    done = helm(name, "template", "headrace", CHART, "--namespace", NAMESPACE, "--kube-version", "1.36.0", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    """A fresh one that knows the kinds of the Prometheus operator, and has a namespace for Spark's jobs."""
    go = require_tool("go")
    done = subprocess.run([go, "mod", "download", "-json", PROMETHEUS_OPERATOR], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    crds = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    with api_server() as server:
        server.kubectl("create", "namespace", JOBS)
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
        ("brokers.storage.size=0Gi", "'/brokers/storage/size'"),
        ("brokers.storage.size=1Zi", "'/brokers/storage/size'"),
        ("brokers.diskQuota=3Mi", "'/brokers/diskQuota'"),
        ("brokers.diskQuota=1.5Gi", "'/brokers/diskQuota'"),
        ("brokers.diskReserve=01Gi", "'/brokers/diskReserve'"),
        ("brokers.catchUpRate=63Ki", "'/brokers/catchUpRate'"),
        ("brokers.catchUpRate=65k", "'/brokers/catchUpRate'"),
        ("brokers.maxUnavailable=0", "'/brokers/maxUnavailable'"),
        ("brokers.maxUnavailable=0%", "'/brokers/maxUnavailable'"),
        ("brokers.terminationGracePeriodSeconds=59", "'/brokers/terminationGracePeriodSeconds'"),
        ("runAsUser=0", "'/runAsUser'"),
        ("spark.namespace=My_Jobs", "'/spark/namespace'"),
    ],
)
def test_should_refuse_values_of_which_nothing_would_come(setting: str, complaint: str) -> None:
    done = helm("helm", "template", "headrace", CHART, "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.parametrize(
    "setting",
    [
        "brokers.storage.size=1.5Ti",
        "brokers.storage.size=0.5Ti",
        "brokers.storage.size=1Pi",
        "brokers.storage.size=500M",
        "brokers.diskQuota=4Mi",
        "brokers.diskQuota=2T",
        "brokers.diskQuota=",
        "brokers.diskReserve=0M",
        "brokers.catchUpRate=64Ki",
        "brokers.catchUpRate=66k",
        "brokers.catchUpRate=1M",
        "brokers.maxUnavailable=2",
        "brokers.maxUnavailable=100%",
        "runAsUser=null",
        "brokers.priorityClassName=important",
    ],
)
def test_should_take_values_that_are_good(setting: str) -> None:
    assert "kind: StatefulSet" in rendered("helm", "--set", setting)


LEAST = {"diskQuota": DISK_QUOTA_BYTES_MIN, "diskReserve": 0, "catchUpRate": REPLICATION_CATCH_UP_RATE_MIN}


@pytest.mark.parametrize("value", LEAST)
def test_should_take_no_quantity_that_a_broker_refuses(value: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    definition = schema["properties"]["brokers"]["properties"][value]["$ref"].rpartition("/")[2]
    pattern = re.compile(schema["definitions"][definition]["pattern"])
    numbers = [str(number) for power in range(12) for number in (10**power - 1, 10**power, 10**power + 1)]
    numbers += [*map(str, range(100)), "00", "1.5", "4194303", "4194304", "65535", "65536"]
    for text in (f"{number}{unit}" for number in numbers for unit in (*BYTES, "Pi", "m")):
        if pattern.search(text):
            assert parse_quantity_bytes(text) >= LEAST[value]


def test_should_not_replace_pods_for_another_version_of_the_chart(tmp_path: Path) -> None:
    newer = tmp_path / "headrace"
    shutil.copytree(CHART, newer)
    about = newer / "Chart.yaml"
    about.write_text(re.sub("^version: .*$", "version: 99.0.0", about.read_text(), flags=re.MULTILINE))
    before, after = (templates(chart) for chart in (CHART, newer))
    assert before.keys() == {"StatefulSet", "Deployment", "Job"}
    assert before == after


def templates(chart: Path, *arguments: str) -> dict[str, Any]:
    """Of pods, by kind."""
    done = helm("helm", "template", "headrace", chart, "--kube-version", "1.36.0", *arguments)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {each["kind"]: each["spec"]["template"] for each in found if "template" in each.get("spec", {})}


def test_should_give_the_command_in_a_broker_the_authority_and_no_key() -> None:
    pod = templates(CHART, "--set", "tls.secretName=headrace-tls")["StatefulSet"]["spec"]
    (broker,) = pod["containers"]
    named = {each["name"]: each.get("value") for each in broker["env"]}
    mounted = {each["name"]: each["mountPath"] for each in broker["volumeMounts"]}
    assert named["HEADRACE_CA_FILE"] == f"{mounted['tls']}/ca.crt"
    (secret,) = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert secret["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_should_run_the_hook_where_the_operator_ran_and_leave_no_rights_behind() -> None:
    hook = [
        each
        for each in yaml.safe_load_all(rendered("helm", "--set", "operator.nodeSelector.disk=ssd"))
        if each and each["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-delete"
    ]
    kept = {each["kind"]: each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for each in hook}
    (job,) = [each for each in hook if each["kind"] == "Job"]
    assert "hook-failed" not in kept.pop("Job"), "its log says why"
    assert kept.keys() == {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert all("hook-failed" in policy for policy in kept.values())
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert job["spec"]["activeDeadlineSeconds"] < HELM_TIMEOUT_S


def policies(*arguments: str) -> dict[str, Any]:
    """The one rule of each NetworkPolicy, by its name."""
    found = [each for each in yaml.safe_load_all(rendered("helm", *arguments)) if each]
    return {each["metadata"]["name"]: each["spec"]["ingress"][0] for each in found if each["kind"] == "NetworkPolicy"}


def test_should_let_everybody_in_unless_peers_are_named() -> None:
    assert policies() == {BROKER: {"ports": [{"port": "http"}]}, OPERATOR: {"ports": [{"port": "http"}]}}
    label = "namespaceSelector.matchLabels.team=data"
    named = policies("--set", f"networkPolicy.clients[0].{label}")
    data = {"namespaceSelector": {"matchLabels": {"team": "data"}}}
    assert named[BROKER]["from"][1:] == [data]
    assert "from" not in named[OPERATOR]
    named = policies("--set", f"networkPolicy.monitoring[0].{label}")
    assert "from" not in named[BROKER]
    assert named[OPERATOR]["from"] == [data]


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
    spark = f"spark.rbac=true,spark.namespace={JOBS}"
    all_of_them = yaml.safe_load_all(rendered("helm", "--set", f"{spark},tls.secretName=headrace-tls"))
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
    (SPARK, "create", "pods", JOBS),
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
    (SPARK, "create", "pods", "elsewhere"),
    (SPARK, "delete", "pods", NAMESPACE),
    (SPARK, "delete", "persistentvolumeclaims", NAMESPACE),
    (SPARK, "delete", "topics.headrace.io", JOBS),
    (SPARK, "get", "secrets", JOBS),
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
    who = f"--as=system:serviceaccount:{JOBS if account == SPARK else NAMESPACE}:{account}"
    try:
        return api.kubectl("auth", "can-i", verb, resource, *named, who, f"--namespace={namespace}").strip() == "yes"
    except LabError:
        return False  # kubectl says no by its exit code.


def installed(name: str, api: ApiServer, release: str, cluster: str, namespace: str, *more: str) -> str:
    """What Helm said; nothing is waited for, since nobody carries anything out."""
    where = ("--kubeconfig", api.kubeconfig, "--namespace", namespace, "--create-namespace")
    done = helm(name, "install", release, CHART, *where, "--set", f"cluster={cluster},crds.install=false", *more)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", HELMS)
def test_should_refuse_what_would_meet_another_release(name: str, api: ApiServer) -> None:
    assert "STATUS: deployed" in installed(name, api, "one", f"{name}-one", f"{name}-first")
    said = installed(name, api, "one", f"{name}-one", f"{name}-second")
    assert f'ClusterRole "headrace:{name}-one:broker"' in said, "the same Topics"
    assert "STATUS: deployed" not in said
    said = installed(name, api, "two", f"{name}-two", f"{name}-first")
    assert 'Role "headrace-broker" in namespace' in said, "the same Leases"
    assert "STATUS: deployed" not in said
    assert "STATUS: deployed" in installed(name, api, "two", f"{name}-two", f"{name}-third")


def test_should_refuse_a_secret_without_an_authority(api: ApiServer) -> None:
    api.kubectl(
        "create", "secret", "generic", "bare", "--from-literal=tls.crt=certificate", "--from-literal=tls.key=key"
    )
    said = installed("helm", api, "bare", "bare", NAMESPACE, "--set", "tls.secretName=bare")
    assert f"Secret {NAMESPACE}/bare has no ca.crt" in said
    assert "STATUS: deployed" not in said


def test_should_warn_of_what_is_open_or_shut(api: ApiServer) -> None:
    dry = ("--dry-run=client", "--set")
    said = installed("helm", api, "notes", "notes", "notes", *dry, "spark.rbac=true")
    assert "SPARK JOBS MAY DELETE THE BROKERS" in said
    assert "by default everybody" in said
    clients = "networkPolicy.clients[0].ipBlock.cidr=10.0.0.0/8"
    said = installed(
        "helm", api, "notes", "notes", "notes", *dry, f"spark.rbac=true,spark.namespace=elsewhere,{clients}"
    )
    assert "SPARK JOBS" not in said
    assert "PROMETHEUS CANNOT SCRAPE THE BROKERS" in said


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


def _queries(dashboard: str) -> dict[str, list[str]]:
    """By the titles of their panels."""
    panels = json.loads((CHART / "files" / "dashboards" / f"{dashboard}.json").read_text())["panels"]
    return {panel["title"]: [each["expr"] for each in panel.get("targets", ())] for panel in panels}


@pytest.mark.parametrize("dashboard", ["groups", "spark"])
def test_should_count_a_group_once_while_its_old_and_its_new_coordinator_tell_of_it(dashboard: str) -> None:
    for title, queries in _queries(dashboard).items():
        for query in queries:
            assert not re.search(r"sum(?: by \([^)]*\))? ?\(headrace_group_(?:members|lag)\b", query), title
            if "headrace_group_state" in query:
                assert "/ on (namespace, group) group_left () sum by (namespace, group) (headrace_group_state" in query


def test_should_show_requests_that_wait_apart_from_those_that_do_not() -> None:
    queries = _queries("cluster")
    assert all(
        "WATCH" not in each.replace('method!="WATCH"', "") for each in queries["Requests, 99th percentile by route"]
    )
    assert any("/v1/sessions" in each for each in queries["Requests that wait, 99th percentile by route"])
