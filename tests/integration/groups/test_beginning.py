"""A cluster in which nobody has used a group yet: there is no offsets topic, and who asks is told to come back."""

from pathlib import Path

from tests.support.cluster import http, running_cluster
from tests.support.group_calls import GroupCalls, PlainMember, create_offsets_topic, settle


def test_should_ask_to_come_back_until_there_is_a_coordinator(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic(partitions=2)
        calls = GroupCalls([cluster.url()])
        refused = calls.once("PUT", "/members/m1", {"topics": ["flights"]})
        assert (refused.status, refused.json["code"]) == (503, "CoordinatorLoading")
        assert refused.headers["retry-after"] == "1"
        assert calls.once("GET", "/offsets").json["code"] == "CoordinatorLoading"
        assert http("GET", f"{cluster.url()}/v1/namespaces/default/groups").json == {"groups": [], "unreachable": []}
        create_offsets_topic(cluster)
        member = PlainMember(calls, "m1")
        assert member.join().status == 200
        settle([member], 2)
