"""Brokers that come back: what their logs still hold decides about their seats, and epochs never go back."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from headrace.core.log.checkpoints import seal
from headrace.core.resources.lease import BrokerLease
from tests.support.cluster import http
from tests.support.patience import patient
from tests.support.replicated_brokers import ReplicatedBrokers
from tests.support.waiting import wait_for
from tests.support.world import LEASES

_EVENTS = "/api/v1/namespaces/default/events"


def regressed(three: ReplicatedBrokers, broker: int) -> bool:
    lease = BrokerLease.parse(three.cluster.kube("GET", f"{LEASES}/headrace-broker-{broker}"))
    return three.sets().topic_uid in lease.regressed


def stop_all(three: ReplicatedBrokers) -> None:
    for broker in three.brokers:
        three.cluster.broker(broker).kill()


def start_all(three: ReplicatedBrokers) -> None:
    three.cluster.start_brokers(three.brokers)


def told_of(three: ReplicatedBrokers, reason: str) -> int:
    """Events of the topic, by all brokers."""
    events = three.cluster.kube("GET", _EVENTS)["items"]
    return sum(e["reason"] == reason and e["involvedObject"]["name"] == three.topic for e in events)


def recover(three: ReplicatedBrokers) -> str:
    environment = {
        **os.environ,
        "HEADRACE_HOME": str(three.cluster.home),
        "HEADRACE_SERVER": three.cluster.url(0),
        "KUBECONFIG": str(three.cluster.kubeconfig),
    }
    program = "from headrace.cli.main import main; main()"
    command = [sys.executable, "-c", program, "cluster", "recover", three.topic, "--yes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patient(90), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_should_renew_intact_seats_after_all_were_killed_and_wait_to_be_elected(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=2)
    assert three.produce(0, b"kept").status == 200
    stop_all(three)
    start_all(three)
    three.wait_in_sync(0, 1, 2)
    state = three.state()
    assert state.leader not in state.isr, "leadership is never renewed"
    assert state.leader_epoch == 1
    three.elect(1)
    assert three.produce(1, b"more").status == 200
    three.wait_equal_logs()


def test_should_give_up_the_seat_of_a_disk_that_is_empty_and_copy_all_again(three: ReplicatedBrokers) -> None:
    three.create(minInsyncReplicas=2)
    assert three.produce(0, b"kept").status == 200
    three.cluster.broker(2).kill()
    (three.cluster.home / "broker-2").rename(three.cluster.home / "lost")
    three.cluster.start_broker(2)
    said = "2@1 is given up: its directory is not on this disk"
    wait_for(lambda: said in three.cluster.broker(2).log, "its seat is given up")
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


@pytest.mark.parametrize("durability", ["Fsync", "Replicated"])
def test_should_stay_in_sync_after_a_power_failure_only_where_all_was_on_disk(
    three: ReplicatedBrokers, durability: str
) -> None:
    three.create(minInsyncReplicas=2, durability=durability)
    assert three.produce(0, b"kept").status == 200
    three.cluster.broker(2).kill()
    boot_id = three.cluster.home / "broker-2" / "boot-id"
    boot_id.write_bytes(seal("boot-id", ["of another boot of the kernel"]))
    three.cluster.start_broker(2)
    what = "renewed: its log is intact" if durability == "Fsync" else "given up: the machine went down"
    wait_for(lambda: f"2@1 is {what}" in three.cluster.broker(2).log, f"its seat is {what}")
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


def test_should_follow_no_older_epochs_after_a_restart_and_be_mended(three: ReplicatedBrokers) -> None:
    """S29: the API server's data is that of an older time, when all brokers were started anew."""
    three.create(minInsyncReplicas=2)
    before = three.state()
    three.elect(1)
    three.elect(2)
    assert three.produce(2, b"kept").status == 200
    stop_all(three)
    three.change(lambda _: before)
    start_all(three)
    wait_for(lambda: all(regressed(three, broker) for broker in three.brokers), "everybody says so")
    wait_for(
        lambda: told_of(three, "MetadataRegressed") == 3, "the owner of the topic is told, by each broker once", 60
    )
    assert http("GET", three.records_url(0)).status == 503
    assert three.state() == before, "nothing is written upon it"

    said = recover(three)
    assert "the API says leader epoch 1, but brokers have seen 3" in said
    state = three.state()
    assert state.leader_epoch == 4
    assert state.leader is not None
    three.wait_in_sync(0, 1, 2)
    wait_for(lambda: not any(regressed(three, broker) for broker in three.brokers), "nothing is regressed any more", 60)
    assert three.produce(state.leader.broker, b"more").status == 200
    three.wait_equal_logs()
    assert b"kept" in three.log_bytes(0)


def test_should_go_on_in_later_epochs_when_the_api_goes_back_under_it_and_be_mended(three: ReplicatedBrokers) -> None:
    """Of the ISR alone: the leader knows better, and says so before anybody is elected upon it."""
    three.create(minInsyncReplicas=2)
    before = three.state()
    three.cluster.broker(2).stop()
    wait_for(lambda: three.in_sync() == {0, 1}, "broker 2 is not in sync", 60)
    assert three.produce(0, b"without 2").status == 200
    three.change(lambda state: replace(state, isr=before.isr, partition_epoch=before.partition_epoch))
    wait_for(lambda: regressed(three, 0), "the leader says so", 60)
    assert three.produce(0, b"still without 2").status == 200, "nothing is believed of it"
    three.cluster.start_broker(2)

    assert "brokers have seen" in recover(three)
    three.wait_in_sync(0, 1, 2)
    wait_for(lambda: not regressed(three, 0), "nothing is regressed any more", 60)
    assert three.produce(0, b"more").status == 200
    three.wait_equal_logs()
