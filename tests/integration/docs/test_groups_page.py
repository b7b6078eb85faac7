"""docs/groups.md: its commands, run in order, its manifests, and the limits that it names."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from headrace.core.groups.sessions import STATIC_SILENT_HEARTBEATS
from headrace.core.limits import GROUP_HEARTBEAT_MS_MAX, OFFSETS_PARTITIONS
from headrace.core.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec
from headrace_broker.coordinators.group_lag import GROUP_LAG_INTERVAL_MS, SeenLag
from headrace_broker.coordinators.group_metrics import GroupMetrics
from tests.support.coordinated import Coordinated
from tests.support.group_world import part
from tests.support.pages import follow

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "groups.md").read_text()


@pytest.mark.timeout(400)
def test_should_work_when_the_page_is_followed(tmp_path: Path) -> None:
    done = follow(PAGE, tmp_path, tmp_path / "home", timeout_s=380)
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said

    shared = re.search(r"^ *(\d+) first.txt\n *(\d+) second.txt$", done.stdout, re.MULTILINE)
    assert shared is not None, said
    assert min(map(int, shared.groups())) > 0, "each has some"
    owned = [len(row.split()) for row in re.findall(r"^orders +\d.*$", done.stdout, re.MULTILINE)]
    assert owned[:6] == [7] * 6, said
    counts = [line.strip() for line in done.stdout.splitlines() if line.strip().isdecimal()]
    assert counts == ["2000", "0", "0", "2000", "2000"], said
    assert "2000 orders shipped" in done.stdout
    assert done.stdout.count('{"order": "late"}') == 1, "nothing while it was paused, and one after it"
    for expected in (
        "group default/billing is reset\n",
        "group default/audit is deleted\n",
        'consumergroup.headrace.io "billing" deleted',
    ):
        assert expected in done.stdout, said


def test_should_show_a_group_with_its_defaults() -> None:
    (manifest,) = [yaml.safe_load(block.partition("```")[0]) for block in PAGE.split("```yaml\n")[1:]]
    for shown in (manifest, yaml.safe_load((ROOT / "examples" / "orders" / "group.yaml").read_text())):
        shown["metadata"] |= {"namespace": "default", "uid": "1"}
        assert ConsumerGroup.parse(shown).spec == ConsumerGroupSpec()


def test_should_name_the_limits_that_hold() -> None:
    assert f"({OFFSETS_PARTITIONS} partitions, up to three replicas)" in PAGE
    assert f"looks every {GROUP_LAG_INTERVAL_MS // 1000} s how far" in PAGE
    assert f"after two missed heartbeats, {STATIC_SILENT_HEARTBEATS * GROUP_HEARTBEAT_MS_MAX // 1000} s" in PAGE


def test_should_query_metrics_that_there_are_by_labels_that_they_have() -> None:
    groups, partition = Coordinated(), part("flights", 0)
    groups.join("a")
    lag = SeenLag({partition.uid: 1}, {partition: 1}, {partition.uid: "flights"})
    metrics = GroupMetrics(CollectorRegistry(), groups, lambda _: lag)
    labels = {each.name: {*each.labels} for family in metrics.collect() for each in family.samples}
    queries = re.findall(
        r"by \(([a-z, ]+)\) \((?:increase\()?(headrace_[a-z_]+)", PAGE.split("```promql\n")[1].partition("```")[0]
    )
    assert {name for _, name in queries} >= {"headrace_group_lag", "headrace_group_lag_known"}
    for by, name in queries:
        assert labels[name] >= set(by.split(", ")), name
