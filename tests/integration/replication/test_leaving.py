"""Brokers that stop, go for good, or have no room: others take over first, as far as anybody can."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.replication.leader_stream import REPLICATION_BEHIND_BYTES_MAX
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, BrokerId, PartitionEpoch
from tests.support.cluster import http
from tests.support.patience import patient
from tests.support.replicated_brokers import ReplicatedBrokers, replicated_brokers
from tests.support.waiting import wait_for
from tests.support.world import LEASES

_STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
VALUE = os.urandom(64 << 10)


def lease(three: ReplicatedBrokers, broker: int) -> BrokerLease:
    return BrokerLease.parse(three.cluster.kube("GET", f"{LEASES}/headrace-broker-{broker}"))


def ask_to_stop(three: ReplicatedBrokers, broker: int) -> None:
    three.cluster.broker(broker).process.send_signal(signal.SIGTERM)


def test_should_stop_once_others_lead_and_are_enough_without_it(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=2)
    leader = three.cluster.broker(0)
    ask_to_stop(three, 0)
    wait_for(lambda: lease(three, 0).draining, "the Lease says so")
    assert three.produce(0, b"while it waits").status == 200
    assert leader.is_running
    three.elect(1)
    assert leader.wait(60) == 0
    wait_for(lambda: three.in_sync() == {1, 2}, "whoever leads need not wait for it")
    assert three.produce(1, b"without it").status == 200
    three.cluster.start_broker(0)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


def test_should_wait_for_nobody_when_all_stop_or_when_it_is_told_twice(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=2)
    ask_to_stop(three, 0)
    wait_for(lambda: "to hand over" in three.cluster.broker(0).log, "it waits for the others")
    ask_to_stop(three, 0)
    assert three.cluster.broker(0).wait(60) == 0
    assert three.in_sync() == {0, 1, 2}, "it had no time to step down"
    for broker in (1, 2):
        ask_to_stop(three, broker)
    assert [three.cluster.broker(broker).wait(60) for broker in (1, 2)] == [0, 0]
    assert not any("no other broker has taken them" in three.cluster.broker(broker).log for broker in range(3))
    three.cluster.start_brokers(range(3))
    three.wait_in_sync(0, 1, 2)


@contextmanager
def one_behind(home: Path) -> Iterator[ReplicatedBrokers]:
    """Broker 2 of three is behind, live, and catches up for 15 s once it has begun; for longer where all takes longer.

    The rate is kept from where a follower counts as far behind; what lies before that comes at once.
    """
    with replicated_brokers(home, "--catch-up-rate", "64Ki") as three:
        three.create(minInsyncReplicas=2)
        three.cluster.broker(2).kill()
        three.elect(0, isr=(0, 1))
        for batch in [[VALUE] * 16] * (REPLICATION_BEHIND_BYTES_MAX >> 20) + [[VALUE]] * round(patient(7.5)):
            assert three.produce(0, *batch).status == 200
        three.cluster.start_broker(2)
        assert three.in_sync() == {0, 1}
        yield three


def waits(three: ReplicatedBrokers, broker: int) -> bool:
    return "in sync until other replicas have caught up: default/flights/0" in three.cluster.broker(broker).log


def test_should_stay_in_sync_until_another_one_is_where_writes_would_stop(tmp_path: Path) -> None:
    with one_behind(tmp_path) as three:
        ask_to_stop(three, 1)
        wait_for(lambda: waits(three, 1), "it says for what it waits")
        assert three.produce(0, b"while it waits").status == 200
        assert three.in_sync() == {0, 1}
        assert three.cluster.broker(1).wait(60) == 0
        wait_for(lambda: three.in_sync() == {0, 2}, "writes go on without it")
        assert "too few" not in three.cluster.broker(1).log
        assert three.produce(0, b"without it").status == 200


def test_should_stay_in_sync_for_nobody_who_stops_too(tmp_path: Path) -> None:
    with one_behind(tmp_path) as three:
        ask_to_stop(three, 1)
        wait_for(lambda: waits(three, 1), "it waits for broker 2")
        ask_to_stop(three, 2)
        assert three.cluster.broker(1).wait(60) == 0
        assert three.in_sync() == {0, 1}


def scale(three: ReplicatedBrokers, brokers: int) -> None:
    manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "headrace"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "broker", "image": "x"}]}}
    spec = {"serviceName": "x", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    three.cluster.kube("POST", _STATEFUL_SETS, {**manifest, "spec": {**spec, "replicas": brokers}})


def test_should_wait_for_those_who_need_it_until_it_is_to_stay(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=3)
    scale(three, 2)
    leaving = three.cluster.broker(2)
    ask_to_stop(three, 2)
    wait_for(lambda: "1 replicas wait: acks=all would be refused without them" in leaving.log, "it says why it waits")
    assert three.produce(0, b"while it waits").status == 200
    three.cluster.kube("PATCH", f"{_STATEFUL_SETS}/headrace", {"spec": {"replicas": 3}})
    assert leaving.wait(60) == 0, "it is to return: it waits for nobody"


def test_should_go_with_what_nobody_can_take_nor_needs(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=2)
    scale(three, 2)
    leaving = three.cluster.broker(2)
    ask_to_stop(three, 2)
    assert leaving.wait(60) == 0
    assert "1 replicas go with this broker" in leaving.log
    assert list((three.cluster.home / "broker-2" / "partitions").iterdir()), "they are there when it returns"
    assert three.produce(0, b"without it").status == 200


def test_should_wait_for_no_leader_of_a_topic_that_is_paused(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=2)
    paused = {"metadata": {"annotations": {"headrace.io/paused": "true"}}}
    three.cluster.kube("PATCH", f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{three.topic}", paused)
    leader = three.cluster.broker(0)
    ask_to_stop(three, 0)
    assert leader.wait(60) == 0
    assert "no other broker has taken them" not in leader.log


def test_should_go_for_good_once_nothing_is_placed_on_it(three: ReplicatedBrokers) -> None:
    three.create()
    scale(three, 2)
    data = three.cluster.home / "broker-2" / "partitions"
    wait_for(lambda: list(data.iterdir()) or None, "it is here")

    three.change(lambda state: raised(state, removing=(BrokerId(2),)))
    wait_for((three.cluster.home / "broker-2" / "giving-away").exists, "it has seen that")
    ask_to_stop(three, 2)
    wait_for(lambda: "1 replicas to give away" in three.cluster.broker(2).log, "it waits")
    assert three.produce(0, b"while it waits").status == 200
    three.change(lambda state: without(state, 2))

    assert three.cluster.broker(2).wait(60) == 0
    assert not list(data.iterdir()), "others hold it now"
    assert three.produce(0, b"without it").status == 200


def test_should_set_aside_what_has_moved_to_others_while_it_was_away(three: ReplicatedBrokers) -> None:
    three.create()
    home = three.cluster.home / "broker-2"
    wait_for(lambda: list((home / "partitions").iterdir()) or None, "it is here")
    three.change(lambda state: raised(state, removing=(BrokerId(2),)))
    wait_for((home / "giving-away").exists, "it knows that it is to give it away")
    three.cluster.broker(2).kill()
    assert list((home / "partitions").iterdir())
    three.change(lambda state: without(state, 2))
    three.cluster.start_broker(2)
    wait_for(lambda: list((home / "orphaned").iterdir()) or None, "others hold it now, or here is the only copy")
    assert not list((home / "partitions").iterdir())


def raised(state: PartitionState, **changes: object) -> PartitionState:
    return replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1), **changes)  # type: ignore[arg-type]


def without(state: PartitionState, broker: int) -> PartitionState:
    isr = tuple(seat for seat in state.isr if seat.broker != broker)
    return raised(state, replicas=tuple(b for b in state.replicas if b != broker), isr=isr, removing=())


@pytest.mark.parametrize("full", [0, 2], ids=["the leader", "a follower"])
def test_should_step_down_while_its_disk_is_full(tmp_path: Path, full: int) -> None:
    options = ["--disk-quota", "8Mi", "--housekeeping-interval", "1s"]
    with replicated_brokers(tmp_path, brokers=0) as three:
        three.brokers = tuple(map(BrokerId, range(3)))
        started = [three.cluster.start_broker(b, *(options if b == full else ()), ready=False) for b in range(3)]
        for program in started:
            three.cluster.wait_ready(program)
        three.create(minInsyncReplicas=2, segment={"bytes": "1Mi"})
        wait_for(lambda: is_full(three, full), f"broker {full} is full", 60)
        wait_for(lambda: full not in three.in_sync(), "it is waited for no more")
        wait_for(lambda: lease(three, full).full, "its Lease says so")
        assert three.in_sync() == {0, 1, 2} - {full}
        leader = 0
        if full == 0:
            wait_for(lambda: three.state().leader is None, "it leads no more")
            leader = 1
            three.elect(leader)
        assert three.produce(leader, VALUE).status == 200

        url = three.records_url(leader)
        end = http("GET", f"{url.removesuffix('records')}offsets?timestamp=latest").json["offset"]
        assert http("DELETE", f"{url}?beforeOffset={end}").status == 200
        three.wait_in_sync(0, 1, 2)
        wait_for(lambda: not lease(three, full).full, "its Lease says so")


def is_full(three: ReplicatedBrokers, broker: int) -> bool:
    """It is written to until then."""
    three.produce(0, VALUE, acks=Acks.LEADER)
    return three.metric(broker, "headrace_broker_disk_full") == 1
