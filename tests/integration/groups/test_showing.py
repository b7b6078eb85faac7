"""`kubectl get consumergroups` tells the truth about a group, and so does its coordinator's /metrics."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.api_server import Kubectl
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.group_calls import GroupCalls, PlainMember, settle
from tests.support.group_metrics import scrape
from tests.support.kube_groups import KubeGroups
from tests.support.tools import require_tool
from tests.support.waiting import wait_for
from tests.support.world import CONSUMER_GROUPS

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_FLIGHTS = {"namespace": "default", "topic": "flights"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of topic flights, with seven records in its two partitions."""
    with running_cluster(tmp_path_factory.mktemp("showing"), brokers=2) as cluster:
        cluster.create_topic(partitions=2)
        cluster.produce(4, partition=0)
        cluster.produce(3, partition=1)
        yield cluster


def calls_of(cluster: Cluster, group: str) -> GroupCalls:
    return GroupCalls([cluster.url(0), cluster.url(1)], group)


def joined(calls: GroupCalls, *names: str) -> list[PlainMember]:
    """Members that share both partitions."""
    members = [PlainMember(calls, name) for name in names]
    for member in members:
        assert member.join().status == 200
    settle(members, 2)
    return members


def printed(cluster: Cluster, group: str) -> dict[str, str]:
    """Return the group's row as kubectl prints it, by the heads of its columns."""
    kubectl = Kubectl(require_tool("kubectl"), cluster.kubeconfig, "default", cluster.home / "cache")
    lines = kubectl.ok("get", "consumergroups").splitlines()
    rows = (dict(zip(lines[0].split(), line.split(), strict=False)) for line in lines[1:])
    return next(row for row in rows if row["NAME"] == group)


def columns(cluster: Cluster, group: str) -> dict[str, str]:
    """Return the row that the API server tells kubectl to print, in the same form; empty where there is none."""
    table = http("GET", cluster.api_url + CONSUMER_GROUPS, headers={"Accept": _TABLE}).json
    # Columns of another priority are for `-o wide`.
    shown = {
        number: each["name"].upper() for number, each in enumerate(table["columnDefinitions"]) if not each["priority"]
    }
    rows = ({head: str(row["cells"][number]) for number, head in shown.items()} for row in table["rows"])
    return next((row for row in rows if row["NAME"] == group), {})


def wait_shown(cluster: Cluster, group: str, *members: PlainMember, **wanted: str) -> None:
    """While the members live on, however long that takes."""
    seen: list[dict[str, str]] = []

    def is_shown() -> bool:
        heard(*members)
        row = {name: value for name, value in columns(cluster, group).items() if name in wanted}
        if row not in seen[-1:]:
            seen.append(row)
        return row == wanted

    try:
        wait_for(is_shown, f"{group} is shown with {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None


def heard(*members: PlainMember) -> None:
    for member in members:
        assert member.heartbeat(wait_ms=0).status == 200


def test_should_show_in_kubectl_what_happens_to_a_group(cluster: Cluster) -> None:
    calls = calls_of(cluster, "billing")
    members = joined(calls, "a", "b")
    wait_shown(cluster, "billing", *members, STATE="Stable", MEMBERS="2", LAG="7", TOPICS="flights")
    wait_for(lambda: printed(cluster, "billing") == columns(cluster, "billing"), "kubectl prints what it is told")
    assert columns(cluster, "billing")["AGE"]
    for member in members:
        offsets = dict.fromkeys(member.partitions, 3)
        assert calls.commit(offsets, member.credentials).status == 200
    wait_shown(cluster, "billing", *members, LAG="1")
    cluster.produce(2, partition=1)
    wait_shown(cluster, "billing", *members, LAG="3")
    assert members[1].leave().status == 200
    settle(members[:1], 2)
    wait_shown(cluster, "billing", members[0], STATE="Stable", MEMBERS="1", LAG="3")
    assert members[0].leave().status == 200
    wait_shown(cluster, "billing", STATE="Empty", MEMBERS="0", LAG="3", TOPICS="flights")
    assert calls.call("DELETE").status == 200
    wait_for(lambda: columns(cluster, "billing") == {}, "its ConsumerGroup goes with the group")


def test_should_show_in_kubectl_who_died_and_what_was_reset(cluster: Cluster) -> None:
    groups, calls = KubeGroups(cluster), calls_of(cluster, "dying")
    groups.create("dying", sessionTimeout="15s")
    (member,) = joined(calls, "a")
    ends = {partition: end_of(cluster, partition) for partition in (0, 1)}
    assert calls.commit(ends, member.credentials).status == 200
    wait_shown(cluster, "dying", member, STATE="Stable", MEMBERS="1")
    # It is heard of no more.
    wait_shown(cluster, "dying", STATE="Empty", MEMBERS="0", LAG="0")
    groups.configure("dying", resetOffsets={"id": "replay-1", "to": "Earliest"})
    wait_shown(cluster, "dying", STATE="Empty", MEMBERS="0", LAG=str(sum(ends.values())), TOPICS="flights")
    groups.delete("dying")
    wait_for(lambda: columns(cluster, "dying") == {}, "it goes, as nobody is in it")


def test_should_tell_prometheus_of_a_group_where_it_is_coordinated_and_nowhere_else(cluster: Cluster) -> None:
    calls = calls_of(cluster, "audit")
    (member,) = joined(calls, "a")
    here = calls.get("/coordinator")["broker"]
    assert calls.commit({0: 3, 1: 1}, member.credentials).status == 200
    assert calls.commit({0: 3}, member.credentials).status == 200
    group = {"namespace": "default", "group": "audit"}

    def lag_of(partition: int) -> float | None:
        scraped, labels = scrape(cluster.url(here)), {**group, **_FLIGHTS, "partition": str(partition)}
        assert scraped.get("headrace_group_lag_known", **labels) in (None, 1)
        return scraped.get("headrace_group_lag", **labels)

    wait_for(lambda: (lag_of(0), lag_of(1)) == (1, end_of(cluster, 1) - 1), "the lag is known")
    scraped = scrape(cluster.url(here))
    assert scraped.get("headrace_group_members", **group) == 1
    assert scraped.get("headrace_group_state", **group, state="Stable") == 1
    assert scraped.get("headrace_group_state", **group, state="Empty") == 0
    assert scraped.get("headrace_group_rebalances_total", **group) == 1
    assert scraped.get("headrace_group_commits_total", **group) == 2
    assert scraped.get("headrace_group_offsets_committed_total", **group) == 3
    assert scraped.get("headrace_coordinator_loading_seconds_count") == sum(loaded(cluster.broker(here).log)), (
        "each time that it began to coordinate a partition's groups"
    )
    assert scrape(cluster.url(1 - here)).of_group("audit") == {}
    assert member.leave().status == 200
    wait_for(lambda: scrape(cluster.url(here)).get("headrace_group_members", **group) == 0, "it left")
    assert scrape(cluster.url(here)).get("headrace_group_rebalances_total", **group) == 2
    assert calls.call("DELETE").status == 200
    wait_for(lambda: scrape(cluster.url(here)).of_group("audit") == {}, "its series go with the group")


def end_of(cluster: Cluster, partition: int) -> int:
    answer = http("GET", cluster.records_url(partition=partition).replace("/records", "/offsets?timestamp=latest"))
    offset: int = answer.json["offset"]
    return offset


def loaded(log: str) -> list[bool]:
    return [": coordinates " in line for line in log.splitlines()]


def test_should_show_a_group_that_somebody_made_as_empty_and_keep_it(cluster: Cluster) -> None:
    groups, calls = KubeGroups(cluster), calls_of(cluster, "made")
    groups.create("made")
    wait_shown(cluster, "made", STATE="Empty", MEMBERS="0", LAG="0")
    (member,) = joined(calls, "a")
    wait_shown(cluster, "made", member, STATE="Stable", MEMBERS="1", TOPICS="flights")
    assert member.leave().status == 200
    assert calls.call("DELETE").status == 200
    wait_shown(cluster, "made", STATE="Empty", MEMBERS="0", LAG="0")
    status = groups.get("made")["status"]
    assert (status["groupEpoch"], status["topics"]) == (0, [])


def test_should_pause_and_go_on_as_the_resource_says(cluster: Cluster) -> None:
    groups, calls = KubeGroups(cluster), calls_of(cluster, "paused")
    (member,) = joined(calls, "a")
    wait_shown(cluster, "paused", member, STATE="Stable", MEMBERS="1")
    groups.configure("paused", pausedUntil=f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}")
    settle([member], 0)
    groups.configure("paused", pausedUntil=None)
    settle([member], 2)
    groups.delete("paused")
    assert member.leave().status == 200
    wait_for(lambda: columns(cluster, "paused") == {}, "it goes when the last member left")


def test_should_say_that_a_lag_is_not_known_rather_than_a_wrong_one(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=2) as cluster:
        cluster.create_topic(partitions=2)
        cluster.produce(4, partition=0)
        cluster.produce(3, partition=1)
        calls, groups = calls_of(cluster, "billing"), KubeGroups(cluster)
        groups.create(type="Consumer")
        here = calls.get("/coordinator")["broker"]
        calls.urls = [cluster.url(here)]
        assert calls.commit({0: 1, 1: 1}).status == 200
        wait_for(lambda: groups.get()["status"]["lag"] == "5", "the lag is known")
        lost = next(number for number in (0, 1) if cluster.leader_url(partition=number) != cluster.url(here))
        cluster.broker(1 - here).kill()
        wait_for(lambda: groups.get()["status"]["lag"] == "unknown", "the lag is not known any more")
        (topic,) = groups.get()["status"]["topics"]
        assert topic["lagKnown"] is False
        assert "lag" not in topic
        scraped, labels = scrape(cluster.url(here)), {**_FLIGHTS, "group": "billing"}
        assert [
            scraped.get("headrace_group_lag_known", **labels, partition=str(each)) for each in (lost, 1 - lost)
        ] == [
            0,
            1,
        ]
        assert scraped.get("headrace_group_lag", **labels, partition=str(lost)) is None
        assert scraped.get("headrace_group_lag", **labels, partition=str(1 - lost)) == (2 if lost == 0 else 3)
        cluster.start_broker(1 - here)
        wait_for(lambda: groups.get()["status"]["lag"] == "5", "the lag is known again")


@pytest.mark.timeout(240)
def test_should_be_shown_by_whoever_coordinates_it_next(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=3) as cluster:
        cluster.create_topic(partitions=2, replicas=3)
        cluster.produce(4, partition=0)
        calls, groups = GroupCalls([cluster.url(each) for each in range(3)]), KubeGroups(cluster)
        members = joined(calls, "a", "b")
        wait_for(lambda: groups.get()["status"]["lag"] == "4", "the lag is known")
        before = groups.get()["status"]
        assert before["coordinator"] == calls.get("/coordinator")["broker"]
        cluster.broker(before["coordinator"]).kill()
        settle(members, 2)
        wait_for(lambda: groups.get()["status"]["coordinator"] != before["coordinator"], "another one shows it")
        assert groups.get()["status"]["coordinator"] == calls.get("/coordinator")["broker"]
        assert groups.get()["status"]["memberCount"] == 2
        assert members[1].leave().status == 200
        settle(members[:1], 2)
        wait_for(lambda: groups.get()["status"]["memberCount"] == 1, "and keeps it true")
        wait_for(lambda: groups.get()["status"]["lag"] == "4", "with its lag")
