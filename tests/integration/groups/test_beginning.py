"""A cluster in which nobody has used a group yet: the first who does brings the offsets topic, and waits for it."""

from pathlib import Path

from headrace.core.limits import OFFSETS_PARTITIONS
from tests.support.cluster import http, running_cluster
from tests.support.group_calls import OFFSETS_TOPIC, GroupCalls, PlainMember, settle
from tests.support.world import CONSUMER_GROUPS


def test_should_ask_to_come_back_until_there_is_a_coordinator(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic(partitions=2)
        calls = GroupCalls([cluster.url()])
        # Whoever only looks brings nothing about.
        assert calls.once("GET").json["code"] == "CoordinatorLoading"
        assert calls.once("GET", "/offsets").json["code"] == "CoordinatorLoading"
        assert http("GET", f"{cluster.url()}/v1/namespaces/default/groups").json == {"groups": [], "unreachable": []}
        assert cluster.kube("GET", CONSUMER_GROUPS)["items"] == []
        refused = calls.once("PUT", "/members/m1", {"topics": ["flights"]})
        assert (refused.status, refused.json["code"]) == (503, "CoordinatorLoading")
        assert refused.headers["retry-after"] == "1"
        member = PlainMember(calls, "m1")
        assert member.join().status == 200
        settle([member], 2)
        topic = http("GET", f"{cluster.url()}/v1/namespaces/default/topics/{OFFSETS_TOPIC}").json
        assert len(topic["partitions"]) == OFFSETS_PARTITIONS
