"""What people do with manifests of ConsumerGroups: reset, delete, pause; real brokers hold the offsets."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.core.groups.group import GROUP_EXPIRY_INTERVAL_MS
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.group_calls import GroupCalls, PlainMember, settle
from tests.support.kube_groups import KubeGroups
from tests.support.waiting import wait_for
from tests.support.world import NDJSON_BODY

RECORDS = 10
MIDDLE_MS = 1_795_000_000_000
MIDDLE = "2026-11-18T11:06:40Z"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Topics flights and orders; partition 0 of each has RECORDS records, a millisecond apart around MIDDLE."""
    with running_cluster(tmp_path_factory.mktemp("groups")) as cluster:
        for topic in ("flights", "orders"):
            cluster.create_topic(topic, partitions=2)
            times = range(MIDDLE_MS - RECORDS // 2, MIDDLE_MS + RECORDS // 2)
            lines = "".join(json.dumps({"value": "v", "timestamp": each}) + "\n" for each in times)
            headers = NDJSON_BODY
            assert http("POST", cluster.records_url(topic), lines.encode(), headers).status == 200
        yield cluster


@pytest.fixture
def groups(real: Cluster) -> KubeGroups:
    return KubeGroups(real)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a group of the test's own."""
    test: str = request.node.name
    return test.removeprefix("test_should_").partition("[")[0].replace("_", "-")[:63].strip("-")


@pytest.fixture
def calls(real: Cluster, groups: KubeGroups, name: str) -> GroupCalls:
    """About that group, whose manifest is there."""
    groups.create(name)
    return GroupCalls([real.url()], name)


def wait_offsets(calls: GroupCalls, *offsets: int, topic: str = "flights") -> None:
    wanted = {(topic, partition): offset for partition, offset in enumerate(offsets)}

    def are_so() -> bool:
        found = calls.offsets()
        return {place: offset for place, offset in found.items() if place[0] == topic} == wanted

    wait_for(are_so, f"{topic} is at {offsets}")


def test_should_reset_to_where_the_manifest_says(groups: KubeGroups, calls: GroupCalls, name: str) -> None:
    assert calls.commit({0: 3, 1: 0}).status == 200
    assert calls.commit({0: 2}, topic="orders").status == 200
    groups.reset("a", "Latest", name=name)
    wait_offsets(calls, RECORDS, 0)
    wait_offsets(calls, RECORDS, 0, topic="orders")
    groups.reset("b", "Timestamp", name=name, timestamp=MIDDLE, topics=["flights"])
    wait_offsets(calls, RECORDS // 2, 0)
    wait_offsets(calls, RECORDS, 0, topic="orders")
    groups.reset("c", "Offsets", name=name, offsets=[{"topic": "flights", "partition": 0, "offset": 7}])
    wait_offsets(calls, 7, 0)
    groups.reset("d", "Earliest", name=name)
    wait_offsets(calls, 0, 0)
    wait_offsets(calls, 0, 0, topic="orders")
    applied = groups.wait_condition("OffsetsReset", "Applied", name)
    assert (applied["status"], applied["message"]) == ("True", "d: Applied")
    assert groups.get(name)["status"]["lastReset"]["id"] == "d"
    wait_for(lambda: "OffsetsReset" in groups.events(name), "people hear of it")


def test_should_reset_once_also_when_the_operator_starts_again(
    real: Cluster, groups: KubeGroups, calls: GroupCalls, name: str
) -> None:
    groups.reset("a", "Latest", name=name, topics=["flights"])
    wait_offsets(calls, RECORDS, 0)
    real.programs["operator"].kill()
    assert calls.commit({0: 1}).status == 200
    real.start_operator()
    groups.configure(name, sessionTimeout="30s")
    groups.wait_condition("OffsetsReset", "Applied", name)
    assert calls.offsets()["flights", 0] == 1


def test_should_wait_with_a_reset_until_everybody_has_left(groups: KubeGroups, calls: GroupCalls, name: str) -> None:
    member = PlainMember(calls, "m1")
    assert member.join().status == 200
    settle([member], 2)
    assert calls.commit({0: 3}, member.credentials).status == 200
    groups.reset("a", "Latest", name=name)
    assert "stop " in groups.wait_condition("OffsetsReset", "GroupNotEmpty", name)["message"]
    wait_for(lambda: "ResetWaits" in groups.events(name), "people hear of it")
    assert calls.offsets()["flights", 0] == 3
    assert member.leave().status == 200
    wait_offsets(calls, RECORDS, 0)
    assert groups.events(name).count("ResetWaits") == 1


@pytest.mark.parametrize(
    ("reset", "reason"),
    [
        ({"to": "Earliest", "topics": ["flights", "trips"]}, "UnknownTopic"),
        ({"to": "Offsets", "offsets": [{"topic": "flights", "partition": 9, "offset": 0}]}, "UnknownPartition"),
        ({"to": "Offsets", "offsets": [{"topic": "flights", "partition": 0, "offset": 99}]}, "OffsetOutOfRange"),
    ],
)
def test_should_refuse_a_reset_whole(real: Cluster, groups: KubeGroups, reset: dict[str, Any], reason: str) -> None:
    name = f"refused-{reason.lower()}"
    groups.create(name)
    calls = GroupCalls([real.url()], name)
    assert calls.commit({0: 3}).status == 200
    groups.reset("a", name=name, **reset)
    refused = groups.wait_condition("OffsetsReset", reason, name)
    assert (refused["status"], refused["message"].partition(":")[0]) == ("False", "a")
    wait_for(lambda: "ResetRefused" in groups.events(name), "people hear of it")
    assert calls.offsets() == {("flights", 0): 3}


def test_should_delete_a_group_with_its_offsets(groups: KubeGroups, calls: GroupCalls, name: str) -> None:
    assert calls.commit({0: 3}).status == 200
    groups.delete(name)
    groups.wait_gone(name)
    assert calls.offsets() == {}


def test_should_not_delete_a_group_that_somebody_is_in(groups: KubeGroups, calls: GroupCalls, name: str) -> None:
    member = PlainMember(calls, "m1")
    assert member.join().status == 200
    settle([member], 2)
    assert calls.commit({0: 3}, member.credentials).status == 200
    groups.delete(name)
    assert "stop " in groups.wait_condition("Ready", "GroupNotEmpty", name)["message"]
    wait_for(lambda: "GroupNotEmpty" in groups.events(name), "people hear of it")
    assert member.heartbeat().status == 200, "it reads on"
    assert calls.offsets() == {("flights", 0): 3}
    assert member.leave().status == 200
    groups.wait_gone(name)


def test_should_pause_a_group_and_let_it_go_on_by_itself(groups: KubeGroups, calls: GroupCalls, name: str) -> None:
    member = PlainMember(calls, "m1")
    assert member.join().status == 200
    settle([member], 2)
    until = datetime.now(UTC) + timedelta(seconds=5)
    groups.configure(name, pausedUntil=until.strftime("%Y-%m-%dT%H:%M:%SZ"))
    paused = groups.wait_condition("Paused", "PausedUntil", name)
    assert paused["message"].startswith("nobody is given anything to read until 20")

    def gave_up() -> bool:
        assert member.heartbeat().status == 200
        return member.partitions == [] or time.time() > until.timestamp()

    wait_for(gave_up, "it has given up everything")
    groups.wait_condition("Paused", "NotPaused", name)
    settle([member], 2)
    assert groups.events(name).count("Paused") == 1


def test_should_say_that_a_deletion_waits_for_brokers(real: Cluster, groups: KubeGroups, calls: GroupCalls) -> None:
    """The last test of this module: it kills the broker."""
    assert calls.commit({0: 3}).status == 200
    real.broker().kill()
    groups.delete(calls.group)
    waits = groups.wait_condition("Ready", "DeletionWaits", calls.group)
    assert waits["status"] == "False"
    wait_for(lambda: "DeletionWaits" in groups.events(calls.group), "people hear of it")
    real.start_broker()
    groups.wait_gone(calls.group)


def test_should_hold_and_delete_the_progress_of_a_query_as_any_group(
    real: Cluster, groups: KubeGroups, name: str
) -> None:
    groups.create(name, type="Spark")
    calls = GroupCalls([real.url()], name)
    body = {"offsets": [{"topic": "flights", "partition": 0, "offset": 4}]}
    assert calls.call("POST", "/offsets?type=Spark", body).status == 200
    groups.wait_condition("Ready", "ProgressOnly", name)
    groups.reset("a", "Earliest", name=name)
    refused = groups.wait_condition("OffsetsReset", "ProgressOnly", name)
    assert (refused["status"], "another checkpoint" in refused["message"]) == ("False", True)
    wait_for(lambda: "ResetRefused" in groups.events(name), "people hear of it")
    assert calls.offsets() == {("flights", 0): 4}
    groups.delete(name)
    groups.wait_gone(name)
    assert calls.offsets() == {}


def test_should_forget_what_a_query_reported_when_it_has_not_for_long(
    real: Cluster, groups: KubeGroups, name: str
) -> None:
    groups.create(name, type="Spark", offsetsRetention="1s")
    calls = GroupCalls([real.url()], name)
    body = {"offsets": [{"topic": "flights", "partition": 0, "offset": 4}]}
    assert calls.call("POST", "/offsets?type=Spark", body).status == 200
    wait_for(lambda: calls.offsets() == {}, "it is forgotten", 2 * GROUP_EXPIRY_INTERVAL_MS / 1000)
    assert groups.get(name)["spec"]["type"] == "Spark", "somebody made it: it stays"
