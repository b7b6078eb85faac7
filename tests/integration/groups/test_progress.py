"""Groups that show how far a Spark query is: what is reported to them is kept and seen, and is nobody's beginning."""

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace.client.groups.progress import ProgressReporter
from headrace.core.types import PartitionId, PartitionKey, TopicUid
from tests.support.cluster import Cluster, http, produce, running_cluster
from tests.support.group_calls import OFFSETS_TOPIC, GroupCalls, PlainMember
from tests.support.kube_groups import KubeGroups
from tests.support.waiting import wait_for

RECORDS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, and RECORDS records in each of two partitions; its first group brings the offsets topic."""
    with running_cluster(tmp_path_factory.mktemp("progress"), brokers=2) as cluster:
        cluster.create_topic(partitions=2, replicas=2)
        for partition in range(2):
            produce(cluster.records_url("flights", partition), *["v"] * RECORDS)
        yield cluster


@pytest.fixture
def groups(cluster: Cluster) -> KubeGroups:
    return KubeGroups(cluster)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a group of the test's own."""
    test: str = request.node.name
    return test.removeprefix("test_should_").partition("[")[0].replace("_", "-")[:63].strip("-")


@pytest.fixture
def calls(cluster: Cluster, name: str) -> GroupCalls:
    return GroupCalls([cluster.url(0), cluster.url(1)], name)


@pytest.fixture
def uid(cluster: Cluster) -> TopicUid:
    found: dict[str, Any] = http("GET", f"{cluster.url()}/v1/namespaces/default/topics/flights").json
    return TopicUid(found["uid"])


@pytest.fixture
def progress(cluster: Cluster, name: str) -> Iterator[ProgressReporter]:
    with ProgressReporter(name, cluster.url(1)) as progress:
        yield progress


def places(uid: TopicUid, *offsets: int) -> dict[PartitionKey, int]:
    return {PartitionKey(uid, PartitionId(number)): offset for number, offset in enumerate(offsets)}


def report(progress: ProgressReporter, uid: TopicUid, *offsets: int) -> None:
    """Until brokers have it."""
    wait_for(lambda: progress.report(places(uid, *offsets), {uid: "flights"}), f"{offsets} are reported")


def is_shown(groups: KubeGroups, name: str, **status: object) -> bool:
    known = [each["metadata"]["name"] for each in groups.all()]
    found = groups.get(name)["status"] if name in known else {}
    return all(found.get(field) == value for field, value in status.items())


def reported(offsets: int, **query: str) -> tuple[str, dict[str, Any]]:
    """A commit, as somebody with curl writes it."""
    path = f"/offsets?{'&'.join(f'{key}={value}' for key, value in query.items())}" if query else "/offsets"
    return path, {"offsets": [{"topic": "flights", "partition": 0, "offset": offsets}]}


def test_should_show_what_a_query_reports_when_nobody_has_made_a_group(
    groups: KubeGroups, calls: GroupCalls, progress: ProgressReporter, uid: TopicUid, name: str
) -> None:
    report(progress, uid, 4, 10)
    wait_for(lambda: is_shown(groups, name, topicNames="flights", lag="6", state="Empty", memberCount=0), "6 are left")
    found = groups.get(name)
    assert (found["spec"]["type"], found["metadata"]["labels"]["headrace.io/auto-created"]) == ("Spark", "true")
    assert "checkpoint" in groups.wait_condition("Ready", "ProgressOnly", name)["message"]
    report(progress, uid, 10, 10)
    wait_for(lambda: is_shown(groups, name, lag="0"), "nothing is left")
    assert calls.offsets() == {("flights", 0): 10, ("flights", 1): 10}
    described = calls.get()
    assert (described["type"], described["state"], described["members"]) == ("Spark", "Empty", [])
    (listed,) = [
        each
        for each in http("GET", f"{calls.urls[0]}/v1/namespaces/default/groups").json["groups"]
        if each["group"] == name
    ]
    assert (listed["type"], listed["members"]) == ("Spark", 0)


def test_should_tell_prometheus_of_lag_and_of_no_members(
    cluster: Cluster, progress: ProgressReporter, uid: TopicUid, name: str
) -> None:
    report(progress, uid, 3, 10)

    def scraped() -> list[str]:
        texts = [http("GET", f"{cluster.url(broker)}/metrics").body.decode() for broker in range(2)]
        return [line for text in texts for line in text.splitlines() if f'group="{name}"' in line]

    wanted = f'headrace_group_lag{{group="{name}",namespace="default",partition="0",topic="flights"}} 7.0'
    wait_for(lambda: wanted in scraped(), "its lag is told")
    assert not [line for line in scraped() if line.startswith("headrace_group_members")], "nobody is alarmed"


def test_should_take_nobody_else_s_offsets_when_a_query_has_reported(
    calls: GroupCalls, progress: ProgressReporter, uid: TopicUid
) -> None:
    report(progress, uid, 4, 4)
    refusals = [
        PlainMember(calls, "m1").join(),
        calls.call("POST", *reported(9)),
        calls.call("POST", "/reset", {"id": "replay-1", **reported(9)[1]}),
    ]
    assert [(each.status, each.json["code"]) for each in refusals] == [(409, "WrongGroupType")] * 3
    assert "another checkpoint" in refusals[2].json["detail"]
    assert calls.offsets() == {("flights", 0): 4, ("flights", 1): 4}


def test_should_refuse_a_report_when_the_group_is_of_members(calls: GroupCalls) -> None:
    assert calls.call("POST", *reported(5)).status == 200, "type: Consumer is what a group is by itself"
    refused = calls.call("POST", *reported(9, type="Spark"))
    assert (refused.status, refused.json["code"]) == (409, "WrongGroupType")
    member = PlainMember(calls, "m1")
    assert member.join().status == 200
    assert calls.call("POST", *reported(9, type="Spark")).json["code"] == "WrongGroupType"
    path, body = reported(9, type="Spark")
    assert calls.call("POST", path, {**body, **member.credentials}).json["code"] == "InvalidRequest"
    assert calls.call("POST", *reported(9, type="Flink")).json["code"] == "InvalidRequest"
    assert calls.offsets() == {("flights", 0): 5}
    assert member.leave().status == 200


def test_should_know_what_it_is_when_its_coordinator_is_another(
    cluster: Cluster, calls: GroupCalls, progress: ProgressReporter, uid: TopicUid, name: str
) -> None:
    report(progress, uid, 7, 7)
    first = calls.get("/coordinator")["broker"]
    with ProgressReporter(name, cluster.url(first)) as knows_one:
        report(knows_one, uid, 7, 8)
        cluster.programs[f"broker-{first}"].kill()
        report(knows_one, uid, 8, 8)
    try:
        wait_for(lambda: calls.get("/coordinator")["broker"] != first, "another broker coordinates")
        assert calls.get()["type"] == "Spark"
        assert PlainMember(calls, "m1").join().json["code"] == "WrongGroupType"
        assert calls.offsets() == {("flights", 0): 8, ("flights", 1): 8}
    finally:
        cluster.start_broker(first)
        cluster.wait_led(OFFSETS_TOPIC, 16)


def test_should_cost_the_query_no_more_than_a_moment_when_nobody_answers(
    uid: TopicUid, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, caplog.at_level(logging.WARNING):
        deaf.settimeout(0)
        with ProgressReporter("unheard", f"http://127.0.0.1:{deaf.getsockname()[1]}") as progress:
            assert not progress.report(places(uid, 0), {uid: "flights"})
            assert connections(deaf) > 0
            told = [progress.report(places(uid, offset), {uid: "flights"}) for offset in range(1, 50)]
        assert not any(told)
        assert connections(deaf) == 0, "one report is tried, and then there is a rest"


def connections(deaf: socket.socket) -> int:
    """Count the connections that were made since the last call."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            deaf.accept()[0].close()
            count += 1
    return count


def test_should_say_once_why_nothing_is_shown_when_it_cannot_be(
    cluster: Cluster, groups: KubeGroups, uid: TopicUid, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    groups.create(name)
    with ProgressReporter(name, cluster.url()) as progress, caplog.at_level(logging.WARNING):
        assert not progress.report(places(uid, 1), {uid: "flights"})
        assert not progress.report(places(uid, 2), {uid: "flights"})
        groups.delete(name)
        groups.wait_gone(name)
        report(progress, uid, 3)
    said = [each.getMessage() for each in caplog.records if name in each.getMessage()]
    assert len(said) == 2
    assert "is of type Consumer" in said[0]
    assert said[1].endswith("shows again how far the query is")
