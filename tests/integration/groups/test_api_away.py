"""Groups and the API server: commits cost it nothing, and while it is away everything goes on."""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.core.groups.publishing import GROUP_LAG_STATUS_INTERVAL_MS
from tests.support.cluster import Cluster, running_cluster
from tests.support.group_calls import GroupCalls, PlainMember, settle
from tests.support.group_metrics import scrape
from tests.support.kube_groups import KubeGroups
from tests.support.relay import relaying
from tests.support.waiting import wait_for

_REQUEST = re.compile(rb"^([A-Z]+) (/\S*) HTTP/1\.1\r$", re.MULTILINE)


@dataclass
class Requests:
    """That a broker has sent to the API server: heads of requests in what it has written."""

    heads: list[str] = field(default_factory=list)

    def see(self, chunk: bytes) -> None:
        self.heads += [b" ".join(found).decode() for found in _REQUEST.findall(chunk)]

    @property
    def of_groups(self) -> list[str]:
        """But for watches, which the API server ends now and then."""
        return [head for head in self.heads if "/consumergroups" in head and "watch=true" not in head]


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[Cluster, Requests]]:
    """A cluster whose broker talks to the API server where each request is seen."""
    cluster, requests = Cluster(tmp_path), Requests()
    try:
        api = cluster.start_api()
        with relaying(int(cluster.api_url.rpartition(":")[2]), requests.see) as relay:
            there = tmp_path / "counted"
            there.write_text(cluster.kubeconfig.read_text().replace(cluster.api_url, relay.url))
            cluster.start_operator()
            cluster.start_broker(0, "--kubeconfig", str(there))
            assert api.is_running
            yield cluster, requests
    finally:
        cluster.close()


def test_should_cost_the_api_server_nothing_to_commit(counted: tuple[Cluster, Requests]) -> None:
    cluster, requests = counted
    cluster.create_topic(partitions=2)
    cluster.produce(400)
    calls, groups = GroupCalls([cluster.url()]), KubeGroups(cluster)
    member = PlainMember(calls, "a")
    assert member.join().status == 200
    settle([member], 2)
    wait_for(lambda: groups.get()["status"]["lag"] == "400", "the lag is shown")
    wait_for(lambda: groups.get()["metadata"].get("finalizers"), "the operator holds it")
    wait_for(lambda: groups.condition("Ready").get("reason") == "Stable", "nothing more is to be written")
    before = len(requests.of_groups)
    assert before > 0, "the requests of this broker are seen"
    commit_on(member, [0] * 300)
    assert requests.of_groups[before:] == [], "where nothing but commits happens, nothing is written"
    started = time.monotonic()
    commit_on(member, range(300))
    allowed = 1 + (time.monotonic() - started) * 1000 / GROUP_LAG_STATUS_INTERVAL_MS
    assert len(requests.of_groups[before:]) <= allowed, "their lag alone, now and then"
    wait_for(lambda: groups.get()["status"]["lag"] == "101", "and what is shown last is true")
    assert scrape(cluster.url()).get("headrace_group_commits_total", namespace="default", group="billing") == 600


def commit_on(member: PlainMember, offsets: Iterable[int]) -> None:
    """One after the other, by a member that is heard of however long that takes."""
    for number, offset in enumerate(offsets):
        if number % 50 == 0:
            assert member.heartbeat(wait_ms=0).status == 200
        assert member.calls.commit({0: offset}, member.credentials).status == 200


def test_should_show_what_is_true_when_the_api_server_comes_back_and_nothing_of_before(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic(partitions=4)
        calls, groups = GroupCalls([cluster.url()]), KubeGroups(cluster)
        members = [PlainMember(calls, name) for name in ("a", "b", "c")]
        assert members[0].join().status == 200
        settle(members[:1], 4)
        wait_for(lambda: groups.get()["status"]["state"] == "Stable", "it is shown")
        cluster.programs["api"].kill()
        before = landed(calls.urls[0])
        for _ in range(3):
            for member in members[1:]:
                assert member.join().status == 200
            settle(members, 4)
            assert members[1].leave().status == 200
            assert members[2].leave().status == 200
            settle(members[:1], 4)
        assert members[1].join().status == 200
        settle(members[:2], 4)
        assert calls.commit({members[0].partitions[0]: 0}, members[0].credentials).status == 200
        assert landed(calls.urls[0]) == before
        cluster.start_api()
        wait_for(lambda: groups.get()["status"]["memberCount"] == 2, "what is true is shown")
        assert landed(calls.urls[0]) - before <= 2, "and not how it came to that"
        status = groups.get()["status"]
        assert status["groupEpoch"] == calls.get()["groupEpoch"]
        assert [each["memberId"] for each in status["members"]] == ["a", "b"]
        assert members[1].leave().status == 200
        settle(members[:1], 4)
        wait_for(lambda: groups.get()["status"]["memberCount"] == 1, "it goes on as before")


def landed(url: str) -> float:
    value = scrape(url).get("headrace_broker_group_writes_total", outcome="landed")
    assert value is not None
    return value
