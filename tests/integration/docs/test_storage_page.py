"""docs/storage.md: its manifest, and the options and metrics that it names."""

import re
from pathlib import Path
from unittest.mock import create_autospec

import yaml

from headrace.core.log.compaction import CompactionRules
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.retention import Retention
from headrace.core.resources.topic import Topic
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.main import main as broker
from headrace_broker.metrics import Metrics
from headrace_broker.partition.compaction import CompactionMetrics
from headrace_broker.partition.holdings import Holdings
from headrace_broker.partition.housekeeping import KnownCluster, Verification
from headrace_broker.replication.open_streams import StreamMetrics
from tests.support.partition_sets import seat

PAGE = (Path(__file__).parents[3] / "docs" / "storage.md").read_text()


def test_should_show_a_topic_that_there_can_be() -> None:
    manifests = [yaml.safe_load(block.partition("```")[0]) for block in PAGE.split("```yaml\n")[1:]]
    for manifest in manifests:
        manifest["metadata"] |= {"namespace": "default", "uid": "1"}
    deleted, compacted = (Topic.parse(manifest).spec for manifest in manifests)
    assert Retention.of_topic(deleted) == Retention(7 * 86_400_000, 50 << 30)
    assert Retention.of_topic(compacted) == Retention(None, None)
    assert CompactionRules.of_topic(compacted) == CompactionRules(3_600_000, 86_400_000, 64 << 20)


def test_should_name_options_and_metrics_that_there_are(tmp_path: Path) -> None:
    options = {name for parameter in broker.params for name in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options
    metrics = Metrics()
    CompactionMetrics(metrics.registry)
    streams = StreamMetrics(metrics.registry)
    streams.watch_followed(lambda lane: 0)
    streams.watch_served(lambda: (), dict)
    BrokerDisk(tmp_path, DiskLimits(1, 1), metrics, lambda reason: None)
    Verification(
        seat(0), create_autospec(Holdings), create_autospec(KnownCluster), lambda *told: None, metrics.registry
    )
    known = {family.name for family in metrics.registry.collect()}
    named = {name.removesuffix("_total") for name in re.findall(r"headrace_broker_[a-z_]+", PAGE)}
    assert named <= known
    assert len(named) >= 5
