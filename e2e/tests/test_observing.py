"""What Prometheus has of real brokers and operators: each panel of each dashboard, and alerts when they should fire."""

import json
import math
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from charts.tools.panels import resolved
from e2e.lab.cluster import Lab
from e2e.load.harness import Load, under_load
from e2e.release import CHART, Release
from e2e.tests.pictures import History, drawn
from e2e.tests.prometheus import RULES, Prometheus, prometheus, targets
from e2e.waiting import wait_for

DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
_PICTURES = Path(__file__).parents[2] / "build" / "dashboards"
"""As they are in docs/pictures."""
_PODS = 5
_REPORT = """
import json, sys, urllib.request
body = {"offsets": [{"topic": "observed", "partition": 0, "offset": 1, "leaderEpoch": 0, "metadata": ""}]}
url = sys.argv[1] + "/v1/namespaces/default/groups/query/offsets?type=Spark"
request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
urllib.request.urlopen(request, timeout=10).read()
"""
"""What a Spark query with the option `group` does at each trigger."""


@pytest.fixture(scope="module")
def observed(lab: Lab, release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    wait_for(lambda: len(targets(release)) == _PODS, "all pods run, and no others", 60)
    began = time.time()
    with prometheus(release, tmp_path_factory.mktemp("prometheus")) as running:
        wait_for(lambda: running.up() == _PODS, "all pods are scraped", 30)
        yield running
        _PICTURES.mkdir(parents=True, exist_ok=True)
        history = History(running.url, time.time(), time.time() - began)
        for file in DASHBOARDS:
            drawn(json.loads(file.read_text()), history).savefig(_PICTURES / f"{file.stem}.png", dpi=80)


@pytest.fixture(scope="module")
def load(release: Release, observed: Prometheus) -> Iterator[Load]:
    with under_load(release, "observed") as load:
        release.headrace("consume", load.topic, "--group", "readers", "--max-records", "10", "--quiet")
        release.execute(release.pod(0), "python", "-c", _REPORT, release.bootstrap)
        yield load


def test_should_be_silent_when_all_is_well(observed: Prometheus) -> None:
    # Ten looks at a second each: longer than an alert waits here.
    wait_for(lambda: observed.query("min(count_over_time(up[1m])) >= 10"), "Prometheus has looked around")
    assert observed.firing() == set()


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_should_have_data_for_each_panel(load: Load, observed: Prometheus, file: Path) -> None:
    dashboard = json.loads(file.read_text())
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expr = resolved(target["expr"], variables)
            wait_for(partial(has_data, observed, expr), f"{file.stem}, {panel['title']}: {expr}", 60)


def has_data(observed: Prometheus, expr: str) -> bool:
    """A number; of a quantile also what stands for none, where nothing of the kind has happened just now."""
    values = [float(sample["value"][1]) for sample in observed.query(expr)]
    return any(map(math.isfinite, values)) or (bool(values) and expr.startswith("histogram_quantile"))


def test_should_name_metrics_that_there_are(load: Load, observed: Prometheus) -> None:
    """Also where nothing has happened yet, and an expression falls back to 0 or an alert stays silent."""
    texts = [RULES.read_text(), *(file.read_text() for file in DASHBOARDS)]
    named = {name for text in texts for name in re.findall(r"\bheadrace_[a-z0-9_]+", text)}
    assert len(named) > 50
    # Only brokers with TLS tell of certificates.
    assert sorted(name for name in named if "_tls_" not in name and not observed.knows(name)) == []


def test_should_fire_when_a_broker_is_cut_off(lab: Lab, release: Release, load: Load, observed: Prometheus) -> None:
    release.create_topic("alone", partitions=3, replicas=1)
    expected = {"HeadracePartitionsOffline", "HeadraceBrokerLost", "HeadraceUnderReplicated"}
    wait_for(lambda: not expected & observed.firing(), "all is well")
    lab.cut(release.pod(1), release.namespace)
    try:
        wait_for(lambda: expected <= observed.firing(), "Prometheus tells of the broker that is cut off", 90)
    finally:
        lab.heal(release.pod(1), release.namespace)
    wait_for(lambda: not expected & observed.firing(), "all is well again", 90)
    release.users("delete", "topic/alone", "--timeout=60s")
