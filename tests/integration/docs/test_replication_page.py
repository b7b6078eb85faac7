"""docs/replication.md: its commands, run in order, its manifest, and the metrics and limits that it names."""

import re
from pathlib import Path

import pytest
import yaml

import headrace_broker
from headrace.core.control.actions import REASSIGNMENTS_MAX
from headrace.core.control.observed import LEADER_RETURN_DELAY_MS
from headrace.core.limits import DECOMMISSION_TIMEOUT_MS, HANDOVER_TIMEOUT_MS, LEASE_DURATION_MS
from headrace.core.log.group_commit import REPLICATED_SYNC_BYTES
from headrace.core.replication.isr import REPLICA_LAG_MS_MAX
from headrace.core.resources.topic import Topic
from headrace_broker.main import main as broker
from headrace_broker.metrics import Metrics as BrokerMetrics
from headrace_operator.metrics import OperatorMetrics
from tests.support.pages import follow

PATH = Path(__file__).parents[3] / "docs" / "replication.md"
PAGE = PATH.read_text()


@pytest.mark.timeout(400)
def test_should_work_when_the_page_is_followed(tmp_path: Path) -> None:
    done = follow(PAGE, tmp_path, tmp_path / "home", timeout_s=380)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for expected in (
        "topic default/payments is ready\n",
        "under-replicated: 0, offline: 0",
        "LeaderElected",
        "topic.headrace.io/payments patched",
    ):
        assert expected in done.stdout, f"{expected!r} is not in:\n{done.stdout}\n{done.stderr}"
    assert re.search(r"^3 .* Stopped +1 +0 +0$", done.stdout, re.MULTILINE), "the broker that left had given all away"
    *_, described = done.stdout.rpartition("PARTITION")
    rows = [line.split() for line in described.splitlines()[1:7]]
    assert [len(row[3].split(",")) for row in rows] == [3] * 6, described


def test_should_show_a_topic_that_there_can_be_with_its_defaults() -> None:
    (manifest,) = [yaml.safe_load(block.partition("```")[0]) for block in PAGE.split("```yaml\n")[1:]]
    manifest["metadata"] |= {"namespace": "default", "uid": "1"}
    shown = Topic.parse(manifest)
    manifest["spec"] = {"partitions": 6}
    assert shown.spec == Topic.parse(manifest).spec


def test_should_name_options_and_metrics_that_there_are() -> None:
    options = {name for parameter in broker.params for name in parameter.opts}
    assert set(re.findall(r"`(--catch[a-z-]+)", PAGE)) <= options
    known = set(re.findall(r"^# TYPE (\S+)", OperatorMetrics().exposition().decode(), re.MULTILINE))
    metrics = BrokerMetrics()
    metrics.watch_partitions(tuple)
    known |= {family.name for family in metrics.registry.collect()}
    # The others of brokers from their source: some are made by what only a broker that runs has.
    for file in Path(headrace_broker.__file__).parent.rglob("*.py"):
        known |= set(re.findall(r'"(headrace_[a-z_]+)"', file.read_text()))
    named = set(re.findall(r"headrace_[a-z]+_[a-z_]+", PAGE))
    assert {name for name in named if name not in known and name.removesuffix("_total") not in known} == set()
    assert len(named) >= 12


def test_should_name_the_limits_that_hold() -> None:
    assert f"for the time of its Lease ({LEASE_DURATION_MS // 1000} s)" in PAGE
    assert f"have not been caught up for {REPLICA_LAG_MS_MAX // 1000} s" in PAGE
    assert f"leadership returns to it after {LEADER_RETURN_DELAY_MS // 1000} s" in PAGE.replace("\n", " ")
    assert f"for which it waits {HANDOVER_TIMEOUT_MS // 1000} s at most" in PAGE
    assert (REASSIGNMENTS_MAX, DECOMMISSION_TIMEOUT_MS, REPLICATED_SYNC_BYTES) == (10, 600_000, 64 << 20)
