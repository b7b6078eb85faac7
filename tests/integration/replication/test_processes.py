"""Three broker processes that replicate, without the operator: what is acknowledged is on all of them, in one form."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.replication.events import Acks
from tests.support.replicated_brokers import ReplicatedBrokers, replicated_brokers
from tests.support.waiting import wait_for


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ReplicatedBrokers]:
    with replicated_brokers(tmp_path) as running:
        yield running


def test_should_keep_equal_logs_on_all_three(three: ReplicatedBrokers) -> None:
    three.create(partitions=2)
    for number in range(50):
        assert three.produce(0, b"%d" % number, partition=number % 2).status == 200
    for partition in (0, 1):
        three.wait_equal_logs(partition)


def test_should_go_on_without_a_killed_follower_and_take_it_back(three: ReplicatedBrokers) -> None:
    three.create()
    assert three.produce(0, b"a").status == 200
    three.cluster.broker(2).kill()
    wait_for(lambda: three.produce(0, b"b").status == 200, "it goes on without the dead one", 60)
    three.cluster.start_broker(2)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


def test_should_go_on_without_a_stopped_follower_and_take_it_back(three: ReplicatedBrokers) -> None:
    three.create()
    assert three.produce(0, b"a").status == 200
    stopped = three.cluster.broker(2).process
    stopped.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: three.metric(0, "headrace_broker_replication_streams") == 1, "its stream is cut off", 10)
        wait_for(lambda: three.produce(0, b"b").status == 200, "it goes on", 60)
    finally:
        stopped.send_signal(signal.SIGCONT)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


def test_should_cut_off_what_another_leader_does_not_have(three: ReplicatedBrokers) -> None:
    three.create()
    assert three.produce(0, b"a").status == 200
    followers = [three.cluster.broker(broker).process for broker in (1, 2)]
    for follower in followers:
        follower.send_signal(signal.SIGSTOP)
    try:
        for _ in range(5):
            assert three.produce(0, b"only here", acks=Acks.LEADER).status == 200
        three.cluster.broker(0).kill()
    finally:
        for follower in followers:
            follower.send_signal(signal.SIGCONT)
    three.elect(1, isr=(1, 2))
    assert three.produce(1, b"b").status == 200
    three.cluster.start_broker(0)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()
    assert b"only here" not in three.log_bytes(0)
