"""Requests about groups to real brokers, any of them: joining, sharing, committing, looking, and every refusal."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core.groups.identity import GroupName, coordinator_partition
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.group_calls import OFFSETS_TOPIC, GroupCalls, PlainMember, create_offsets_topic, settle
from tests.support.world import JSON_BODY


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers; each coordinates the groups of two partitions."""
    with running_cluster(tmp_path_factory.mktemp("groups"), brokers=2) as cluster:
        cluster.create_topic(partitions=4)
        create_offsets_topic(cluster)
        leaders = {cluster.leader_url(OFFSETS_TOPIC, partition) for partition in range(4)}
        assert len(leaders) == 2, "each broker coordinates"
        yield cluster


@pytest.fixture
def calls(cluster: Cluster, request: pytest.FixtureRequest) -> GroupCalls:
    """About a group of the test's own."""
    name = request.node.name.removeprefix("test_should_").partition("[")[0].replace("_", "-")
    return GroupCalls([cluster.url(0), cluster.url(1)], name[:63].strip("-"))


def coordinator(calls: GroupCalls) -> str:
    url: str = calls.get("/coordinator")["url"]
    return url


def elsewhere(cluster: Cluster, calls: GroupCalls) -> GroupCalls:
    """By way of the broker that does not coordinate the group."""
    return GroupCalls([url for url in (cluster.url(0), cluster.url(1)) if url != coordinator(calls)], calls.group)


def test_should_share_partitions_and_take_commits_of_who_has_them(calls: GroupCalls) -> None:
    one, two = PlainMember(calls, "one"), PlainMember(calls, "two")
    assert one.join().status == 200
    settle([one], 4)
    assert two.join().status == 200
    settle([one, two], 4)
    assert len(one.partitions) == len(two.partitions) == 2
    assert calls.commit(dict.fromkeys(one.partitions, 5), one.credentials).status == 200
    refused = calls.commit(dict.fromkeys(two.partitions, 7), one.credentials)
    assert (refused.status, refused.json["code"]) == (412, "FencedMember")
    assert calls.offsets() == {("flights", number): 5 for number in one.partitions}
    assert two.leave().status == 200
    settle([one], 4)


def test_should_pass_everything_on_to_the_coordinator(cluster: Cluster, calls: GroupCalls) -> None:
    there = elsewhere(cluster, calls)
    member = PlainMember(there, "m1")
    assert member.join().status == 200
    settle([member], 4)
    assert there.commit({0: 3}, member.credentials).status == 200
    assert there.offsets() == calls.offsets() == {("flights", 0): 3}
    described = there.get()
    assert (described["group"], described["state"]) == (calls.group, "Stable")
    (listed,) = described["members"]
    assert (listed["memberId"], listed["clientAddress"], listed["topics"]) == ("m1", "127.0.0.1", ["flights"])
    assert listed["assignment"] == listed["owned"] == member.owned
    assert member.leave().status == 200
    assert there.call("DELETE").status == 200
    assert there.call("GET").json["code"] == "UnknownGroup"


def test_should_say_who_coordinates_where_a_request_was_passed_on_already(cluster: Cluster, calls: GroupCalls) -> None:
    there = elsewhere(cluster, calls)
    url = f"{there.urls[0]}/v1/namespaces/default/groups/{there.group}"
    refused = http("GET", url, headers={"Headrace-Proxied": "10.0.0.1"})
    assert (refused.status, refused.json["code"]) == (421, "NotCoordinator")
    assert refused.json["url"] == coordinator(calls)


def test_should_show_where_a_member_is_and_not_where_it_says_to_be(calls: GroupCalls) -> None:
    url = f"{coordinator(calls)}/v1/namespaces/default/groups/{calls.group}/members/m1"
    body = json.dumps({"topics": ["flights"]}).encode()
    joined = http("PUT", url, body, {"Content-Type": "application/json", "Headrace-Proxied": "10.9.8.7"})
    assert joined.status == 200, joined.body
    (listed,) = calls.get()["members"]
    assert listed["clientAddress"] == "127.0.0.1"


def test_should_name_the_coordinator(cluster: Cluster, calls: GroupCalls) -> None:
    partition = coordinator_partition(GroupName("default", calls.group), 4)
    found = calls.get("/coordinator")
    assert found["partition"] == partition
    assert found["url"] == cluster.leader_url(OFFSETS_TOPIC, partition) == cluster.url(found["broker"])


def test_should_list_the_groups_of_all_brokers(cluster: Cluster, calls: GroupCalls) -> None:
    names = {f"listed-{number}" for number in range(8)}
    urls = set()
    for name in names:
        each = GroupCalls([*calls.urls], name)
        assert each.commit({0: 1}).status == 200
        urls.add(coordinator(each))
    assert len(urls) == 2, "both brokers coordinate some of them"
    for url in urls:
        answer = http("GET", f"{url}/v1/namespaces/default/groups").json
        assert names <= {each["group"] for each in answer["groups"]}
        assert answer["unreachable"] == []
    assert http("GET", f"{cluster.url()}/v1/namespaces/nowhere/groups").json["groups"] == []


def test_should_take_commits_without_a_member_while_there_is_none(calls: GroupCalls) -> None:
    assert calls.commit({1: 11}).status == 200
    member = PlainMember(calls, "m1")
    assert member.join().status == 200
    refused = calls.commit({1: 12})
    assert (refused.status, refused.json["code"], refused.json["members"]) == (409, "GroupNotEmpty", 1)
    assert calls.call("DELETE").json["code"] == "GroupNotEmpty"
    assert calls.offsets() == {("flights", 1): 11}
    member.leave()


def test_should_reset_a_group_once(calls: GroupCalls) -> None:
    def reset(offset: int, number: str) -> int:
        offsets = [{"topic": "flights", "partition": 0, "offset": offset}]
        return calls.call("POST", "/reset", {"id": number, "offsets": offsets}).status

    assert [reset(9, "replay-1"), reset(8, "replay-1")] == [200, 200]
    assert calls.offsets() == {("flights", 0): 9}
    assert calls.get()["lastReset"] == "replay-1"
    assert reset(0, "replay-2") == 200
    assert calls.offsets() == {("flights", 0): 0}


def test_should_tell_a_member_that_waits_of_news_at_once(calls: GroupCalls) -> None:
    one, two = PlainMember(calls, "one"), PlainMember(calls, "two")
    one.join()
    settle([one], 4)
    two.join()
    before = one.seen
    # It would wait for three seconds; that two came in is news, which ends the wait.
    assert one.heartbeat(wait_ms=3_000).status == 200
    while one.seen == before:
        one.heartbeat(wait_ms=3_000)
    settle([one, two], 4)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PUT", "/members/m1", {}, 400, "InvalidRequest"),
        ("PUT", "/members/m1", {"topics": "flights"}, 400, "InvalidRequest"),
        ("PUT", "/members/m1", {"topics": ["Flights!"]}, 400, "InvalidRequest"),
        ("PUT", "/members/m1", {"topicPattern": "(a"}, 400, "InvalidRequest"),
        ("PUT", "/members/m%20", {"topics": ["flights"]}, 400, "InvalidRequest"),
        ("PUT", f"/members/{'m' * 65}", {"topics": ["flights"]}, 400, "InvalidRequest"),
        ("PUT", "/members/m1?wait=1", {"topics": ["flights"]}, 400, "InvalidRequest"),
        ("POST", "/members/m1/heartbeat", {"memberEpoch": 1, "revision": 0, "owned": []}, 404, "UnknownMember"),
        ("POST", "/members/m1/heartbeat", {"memberEpoch": 1, "revision": 0}, 400, "InvalidRequest"),
        ("DELETE", "/members/m1?away=perhaps", None, 400, "InvalidRequest"),
        ("POST", "/offsets", {"offsets": [{"topic": "nope", "partition": 0, "offset": 1}]}, 404, "UnknownTopic"),
        ("POST", "/offsets", {"offsets": [{"topic": "flights", "partition": 9, "offset": 1}]}, 404, "UnknownPartition"),
        ("POST", "/offsets", {"offsets": [{"topic": "flights", "partition": 0}]}, 400, "InvalidRequest"),
        ("POST", "/offsets", {"memberId": "m1", "offsets": []}, 404, "UnknownMember"),
        ("GET", "/offsets?topic=flights&limit=1", None, 400, "InvalidRequest"),
        ("GET", "/offsets?topic=nope", None, 404, "UnknownTopic"),
        ("POST", "/reset", {"offsets": []}, 400, "InvalidRequest"),
        ("GET", "", None, 404, "UnknownGroup"),
        ("PATCH", "", None, 405, "MethodNotAllowed"),
    ],
)
def test_should_refuse(calls: GroupCalls, method: str, path: str, body: Any, status: int, code: str) -> None:
    answer = calls.call(method, path, body)
    assert (answer.status, answer.json["code"]) == (status, code), answer.body


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b'"' + b"x" * 100_000])
def test_should_refuse_bodies_that_are_no_json_objects(calls: GroupCalls, body: bytes) -> None:
    answer = http("PUT", f"{calls.urls[0]}/v1/namespaces/default/groups/{calls.group}/members/m1", body)
    assert (answer.status, answer.json["code"]) == (400, "InvalidRequest")


def test_should_refuse_a_name_that_no_consumer_group_can_have(calls: GroupCalls) -> None:
    calls.group = "My_Group"
    answer = calls.call("GET", "/offsets")
    assert (answer.status, answer.json["field"]) == (400, "group")
    assert "my-group" in answer.json["detail"]


def test_should_write_to_the_internal_topic_through_groups_alone(cluster: Cluster, calls: GroupCalls) -> None:
    assert calls.commit({0: 1}).status == 200
    topic = f"{cluster.url()}/v1/namespaces/default/topics/{OFFSETS_TOPIC}"
    body = json.dumps({"records": [{"key": "a", "value": "b"}]}).encode()
    as_json = JSON_BODY
    for answer in (
        http("POST", f"{topic}/records", body, as_json),
        http("POST", f"{topic}/partitions/0/records", body, as_json),
        http("DELETE", f"{topic}/partitions/0/records?beforeOffset=latest"),
    ):
        assert (answer.status, answer.json["code"]) == (403, "InternalTopic")
    partition = coordinator_partition(GroupName("default", calls.group), 4)
    read = f"{topic}/partitions/{partition}/records?maxRecords=1000&valueFormat=json"
    assert http("GET", read).json["code"] == "InternalTopic"
    records = http("GET", read, headers={"Headrace-Peer-Key": cluster.peer_key()}).json["records"]
    assert calls.group in {json.loads(each["key"])[3] for each in records}
