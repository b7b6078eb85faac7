"""Real members, a real coordinator and the operator: who reads what, as kubectl shows it, with and without operator."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.cluster import Cluster, running_cluster
from tests.support.group_calls import GroupCalls, PlainMember, settle
from tests.support.kube_groups import KubeGroups
from tests.support.waiting import wait_for

PARTITIONS = 6


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("groups")) as cluster:
        cluster.create_topic(partitions=PARTITIONS)
        yield cluster


def joined(calls: GroupCalls, *names: str) -> list[PlainMember]:
    members = [PlainMember(calls, name) for name in names]
    for member in members:
        assert member.join().status == 200
    return members


def shows(status: dict[str, Any], members: Sequence[PlainMember]) -> bool:
    """Whether it is just what the members have."""
    listed = {each["memberId"]: each for each in status["members"]}
    return (
        status["assignmentEpoch"] == status["groupEpoch"]
        and listed.keys() == {member.id for member in members}
        and all(
            listed[member.id][what] == [{"topic": "flights", "partitions": member.partitions}]
            for member in members
            for what in ("assignment", "owned")
        )
    )


def wait_shown(groups: KubeGroups, members: Sequence[PlainMember], name: str) -> None:
    """While the members live on."""

    def is_shown() -> bool:
        for member in members:
            assert member.heartbeat().status == 200
        found = groups.get(name)["status"]
        ready = groups.condition("Ready", name)
        ends = f"{PARTITIONS} partitions of flights; epoch {found['groupEpoch']}"
        return shows(found, members) and ready["reason"] == "Stable" and ready["message"].endswith(ends)

    wait_for(is_shown, f"{name} is shown as it is")


def test_should_show_who_reads_what_and_when_nobody_does(real: Cluster) -> None:
    groups, calls = KubeGroups(real), GroupCalls([real.url()], "shown")
    groups.create("shown")
    members = joined(calls, "m1", "m2")
    settle(members, PARTITIONS)
    wait_shown(groups, members, "shown")
    assert groups.condition("Ready", "shown")["message"].startswith("2 members")
    wait_for(lambda: "Rebalanced" in groups.events("shown"), "people hear of it")
    for member in members:
        assert member.leave().status == 200
    assert groups.wait_condition("Ready", "Empty", "shown")["status"] == "True"
    assert groups.get("shown")["status"]["members"] == []


def test_should_not_be_needed_for_members_and_move_nothing_when_it_is_back(real: Cluster) -> None:
    groups, calls = KubeGroups(real), GroupCalls([real.url()], "alone")
    groups.create("alone")
    members = joined(calls, "m1")
    settle(members, PARTITIONS)
    real.programs["operator"].kill()
    members += joined(calls, "m2")
    settle(members, PARTITIONS)
    before = [member.partitions for member in members]
    assert [len(partitions) for partitions in before] == [3, 3]
    epoch = calls.get()["groupEpoch"]
    real.start_operator()
    wait_shown(groups, members, "alone")
    assert [member.partitions for member in members] == before
    assert calls.get()["groupEpoch"] == epoch


def test_should_hold_a_group_that_came_by_itself_and_delete_it_with_its_offsets(real: Cluster) -> None:
    groups, calls = KubeGroups(real), GroupCalls([real.url()], "by-itself")
    (member,) = joined(calls, "m1")
    settle([member], PARTITIONS)
    assert calls.commit({0: 0}, member.credentials).status == 200
    wait_shown(groups, [member], "by-itself")
    assert groups.get("by-itself")["metadata"]["labels"]["headrace.io/auto-created"] == "true"
    assert groups.get("by-itself")["metadata"]["finalizers"] == ["headrace.io/group"]
    assert member.leave().status == 200
    groups.delete("by-itself")
    groups.wait_gone("by-itself")
    assert calls.offsets() == {}


def test_should_leave_what_is_to_be_done_to_the_next_operator(real: Cluster) -> None:
    groups, calls = KubeGroups(real), GroupCalls([real.url()], "handed-over")
    groups.create("handed-over")
    assert calls.commit({0: 0}).status == 200
    second = real.start_operator("--identity", "second", name="second")
    wait_for(lambda: "stands by" in second.log, "one acts")
    real.programs["operator"].kill()
    groups.reset("a", "Offsets", name="handed-over", offsets=[{"topic": "flights", "partition": 1, "offset": 0}])
    groups.wait_condition("OffsetsReset", "Applied", "handed-over")
    assert calls.offsets() == {("flights", 0): 0, ("flights", 1): 0}
    assert "this operator acts" in second.log
    groups.delete("handed-over")
    groups.wait_gone("handed-over")
