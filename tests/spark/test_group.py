"""A query that names a group: how far it is, as people see it in the ConsumerGroup."""

import pytest

from tests.support.kube_groups import KubeGroups
from tests.support.spark_bench import Batches, SparkBench, waits_for, whole
from tests.support.waiting import wait_for


def wait_shown(bench: SparkBench, group: str, lag: str) -> None:
    def is_shown() -> bool:
        names = [each["metadata"]["name"] for each in groups.all()]
        status = groups.get(group)["status"] if group in names else {}
        return (status.get("topicNames"), status.get("lag")) == (bench.topic, lag)

    groups = KubeGroups(bench.cluster)
    wait_for(is_shown, f"the lag of {group} is {lag}", 60)


@pytest.mark.timeout(240)
def test_should_show_how_far_the_query_is_when_it_names_a_group(bench: SparkBench) -> None:
    bench.create(5, 3)
    group, batches = f"query-of-{bench.topic}", Batches()
    with bench.running(batches, group=group, maxOffsetsPerTrigger=4) as query:
        waits_for(query, batches, whole(5, 3))
        wait_shown(bench, group, "0")
        found = KubeGroups(bench.cluster).get(group)
        assert found["spec"]["type"] == "Spark"
        assert (found["status"]["state"], found["status"]["memberCount"]) == ("Empty", 0)
        assert found["status"]["topicNames"] == bench.topic
        assert KubeGroups(bench.cluster).wait_condition("Ready", "ProgressOnly", group)["status"] == "True"
    bench.write(0, 2)
    wait_shown(bench, group, "2")
    bench.read_available(batches, group=group)
    assert batches.all == whole(5, 5)
    wait_shown(bench, group, "0")


def test_should_read_on_when_its_group_is_of_another_type(bench: SparkBench) -> None:
    bench.create(2)
    group = f"consumers-of-{bench.topic}"
    KubeGroups(bench.cluster).create(group)
    assert bench.read_available(group=group).all == whole(2)
    assert KubeGroups(bench.cluster).get(group)["status"]["topicNames"] == ""
