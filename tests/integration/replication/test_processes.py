"""Three broker processes that replicate, without the operator: what is acknowledged is on all of them, in one form."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, BrokerId, PartitionEpoch
from tests.support.certificates import Authority, Mount
from tests.support.replicated_brokers import ReplicatedBrokers, replicated_brokers
from tests.support.waiting import wait_for

MIB = 1 << 20
BEHIND_BYTES = 400 * MIB


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
        wait_for(lambda: three.metric(0, "headrace_broker_replication_streams") == 1, "its stream is cut off", 60)
        wait_for(lambda: three.produce(0, b"b").status == 200, "it goes on", 60)
    finally:
        stopped.send_signal(signal.SIGCONT)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


def test_should_go_on_answering_while_another_partition_catches_up(three: ReplicatedBrokers) -> None:
    three.create(partitions=2, durability="Replicated")
    three.cluster.broker(2).kill()
    for partition in (0, 1):
        three.change(without(BrokerId(2)), partition)
    for _ in range(BEHIND_BYTES // MIB):
        assert three.produce(0, bytes(MIB), acks=Acks.LEADER).status == 200
    three.cluster.start_broker(2)
    answered = 0
    while 2 not in three.in_sync(0):
        assert three.produce(0, b"a", partition=1).status == 200
        answered += 1
    wait_for(lambda: three.metric(2, "headrace_broker_replication_moves_total") >= 2, "it is moved to the live stream")
    assert answered > 10, "held up by what the other one catches up with, each would take a good part of that time"
    three.wait_equal_logs()


def without(broker: BrokerId) -> Callable[[PartitionState], PartitionState]:
    def removed(state: PartitionState) -> PartitionState:
        isr = tuple(seat for seat in state.isr if seat.broker != broker)
        return replace(state, isr=isr, partition_epoch=PartitionEpoch(state.partition_epoch + 1))

    return removed


def test_should_replicate_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    mount = Mount(tmp_path / "tls", authority.secret())
    with replicated_brokers(tmp_path / "brokers", *mount.options, tls=authority.trust) as three:
        three.create()
        for number in range(5):
            assert three.produce(0, b"%d" % number).status == 200
        three.wait_equal_logs()
        assert three.cluster.broker(1).stop() == 0


def test_should_cut_off_what_another_leader_does_not_have(three: ReplicatedBrokers) -> None:
    three.create()
    assert three.produce(0, b"a").status == 200
    # Killed, not stopped: what lies in their sockets would be theirs.
    for broker in (1, 2):
        three.cluster.broker(broker).kill()
    for _ in range(5):
        assert three.produce(0, b"only here", acks=Acks.LEADER).status == 200
    three.cluster.broker(0).kill()
    three.cluster.start_brokers((1, 2))
    wait_for(lambda: {1, 2} <= three.in_sync(), "both have renewed their seats")
    three.elect(1, isr=(1, 2))
    assert three.produce(1, b"b").status == 200
    three.cluster.start_broker(0)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()
    assert b"only here" not in three.log_bytes(0)
