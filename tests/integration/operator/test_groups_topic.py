"""The internal topic: made by the operator, as large as the cluster lets it be, and put back whatever is done to it."""

from pathlib import Path

from headrace.core.limits import OFFSETS_PARTITIONS
from tests.support.cluster import Cluster, running_cluster
from tests.support.group_calls import OFFSETS_TOPIC, GroupCalls
from tests.support.kube_groups import KubeGroups
from tests.support.waiting import wait_for


def has_replicas(cluster: Cluster, count: int) -> bool:
    """Every partition has so many, in sync."""
    partitions = cluster.partition_set(f"{OFFSETS_TOPIC}-0")["spec"]["partitions"]
    return len(partitions) == OFFSETS_PARTITIONS and all(
        len(each["replicas"]) == len(each["isr"]) == count and "leader" in each and not each.get("adding")
        for each in partitions
    )


def topics(cluster: Cluster) -> dict[str, str]:
    """Their uids by name."""
    items = cluster.kube("GET", "/apis/headrace.io/v1alpha1/topics")["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in items}


def test_should_make_the_topic_with_the_first_group_and_raise_its_replicas_with_the_cluster(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        groups = KubeGroups(cluster)
        cluster.create_topic(partitions=2)
        assert {*topics(cluster)} == {"flights"}
        groups.create()
        spec = groups.topic(OFFSETS_TOPIC)["spec"]
        assert (spec["replicas"], spec["partitions"], spec["cleanupPolicy"]) == (1, OFFSETS_PARTITIONS, "Compact")
        calls = GroupCalls([cluster.url()])
        assert calls.commit({0: 5, 1: 7}).status == 200
        cluster.start_brokers([1, 2])
        wait_for(lambda: has_replicas(cluster, 3), "it has three replicas")
        cluster.broker(0).kill()
        calls.urls = [cluster.url(1), cluster.url(2)]
        assert calls.offsets() == {("flights", 0): 5, ("flights", 1): 7}


def test_should_put_back_what_is_edited_and_serve_what_is_deleted(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        groups = KubeGroups(cluster)
        cluster.create_topic(partitions=1)
        groups.create()
        uid = groups.topic(OFFSETS_TOPIC)["metadata"]["uid"]
        edited = {"cleanupPolicy": "Delete", "deletionPolicy": "Delete", "maxMessageBytes": "1Mi"}
        groups.patch_topic(OFFSETS_TOPIC, {"spec": edited})

        def is_restored() -> bool:
            spec = groups.topic(OFFSETS_TOPIC)["spec"]
            return [spec[name] for name in edited] == ["Compact", "Retain", "8Mi"]

        wait_for(is_restored, "it is as it must be")
        wait_for(lambda: "Restored" in groups.events(OFFSETS_TOPIC), "people hear of it")
        cluster.delete_topic(OFFSETS_TOPIC)
        wait_for(
            lambda: groups.topic_condition("InUse", OFFSETS_TOPIC).get("reason") == "DeletionWaits",
            "it says why it stays",
        )
        calls = GroupCalls([cluster.url()])
        assert calls.commit({0: 5}).status == 200
        assert calls.offsets() == {("flights", 0): 5}
        groups.delete()
        groups.wait_gone()
        wait_for(lambda: OFFSETS_TOPIC not in topics(cluster), "it goes with the last group")
        groups.create("later", wait=False)
        wait_for(lambda: topics(cluster).get(OFFSETS_TOPIC, uid) != uid, "it is made anew")
