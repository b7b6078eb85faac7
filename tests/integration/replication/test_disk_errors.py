"""The disk of a leader fails, fills or loses its power, and two followers have theirs: S11, S8 and S26 in short."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.core.records.columns import decode_batches
from headrace.core.types import BrokerId
from tests.faults.shim import SYNC, FaultyDisk
from tests.support.cluster import http
from tests.support.replicated_brokers import ReplicatedBrokers, replicated_brokers
from tests.support.waiting import wait_for


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    disk = FaultyDisk(tmp_path / "broker-0")
    yield disk
    disk.close()


@pytest.fixture
def three(tmp_path: Path, disk: FaultyDisk) -> Iterator[ReplicatedBrokers]:
    """Broker 0 leads, on the faulty disk."""
    with replicated_brokers(tmp_path, brokers=0) as running:
        start_on(running, disk)
        running.cluster.start_brokers((1, 2))
        three = ReplicatedBrokers(running.cluster, tuple(map(BrokerId, range(3))))
        three.create(minInsyncReplicas=2)
        yield three


def start_on(three: ReplicatedBrokers, disk: FaultyDisk) -> None:
    three.cluster.broker_prefix = ("env", *(f"{name}={value}" for name, value in disk.environment().items()))
    three.cluster.start_broker(0)
    three.cluster.broker_prefix = ()


def produce(three: ReplicatedBrokers, leader: int, numbers: range) -> list[int]:
    """Those that were acknowledged: not what met a broker that has just gone."""
    return [number for number in numbers if is_acknowledged(three, leader, number)]


def is_acknowledged(three: ReplicatedBrokers, leader: int, number: int) -> bool:
    try:
        return three.produce(leader, b"%d" % number).status == 200
    except OSError:
        return False


def values(three: ReplicatedBrokers, leader: int) -> list[int]:
    found, offset = list[int](), 0
    while True:
        answer = http(
            "GET", f"{three.records_url(leader)}?offset={offset}", headers={"Accept": "application/vnd.headrace.batch"}
        )
        batches = list(decode_batches(answer.body))
        if not batches:
            return found
        for batch in batches:
            found += [int(record.value or b"-1") for _, record in batch.rows()]
        offset = batches[-1].header.next_offset


@pytest.mark.parametrize(
    "fail",
    [
        lambda disk: disk.fail(SYNC, errno.EIO, path=".log"),
        lambda disk: disk.read_only(),
    ],
    ids=["fdatasync", "read-only"],
)
def test_should_give_up_loudly_and_lose_nothing_when_the_disk_fails(
    three: ReplicatedBrokers, disk: FaultyDisk, fail: Callable[[FaultyDisk], object]
) -> None:
    leader = three.cluster.broker(0)
    acknowledged = produce(three, 0, range(20))
    fail(disk)

    assert produce(three, 0, range(20, 22)) == []

    assert leader.wait(60) == 1
    assert "the disk failed" in leader.log
    wait_for(lambda: three.state().leader is None, "the leadership is given up")
    wait_for(lambda: three.in_sync() == {1, 2}, "so is its place among those in sync")
    three.elect(1)
    acknowledged += produce(three, 1, range(30, 40))
    disk.heal()
    start_on(three, disk)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()
    assert [number for number in values(three, 1) if number in acknowledged] == acknowledged


def test_should_have_all_that_was_acknowledged_when_the_power_fails_again_and_again(
    three: ReplicatedBrokers, disk: FaultyDisk
) -> None:
    """Each time it is back before anybody else has led: its own log, cut to what was synced, must still do."""
    acknowledged, leader = list[int](), 0
    for life in range(3):
        first = 100 * life
        acknowledged += produce(three, leader, range(first, first + 10))
        three.cluster.broker(0).kill()
        disk.lose_power(seed=life or None)
        start_on(three, disk)
        leader = 1 if life % 2 else 0
        three.wait_in_sync(0, 1, 2)
        three.elect(leader)
    acknowledged += produce(three, leader, range(900, 905))
    three.wait_equal_logs()
    assert values(three, leader) == acknowledged


def test_should_let_others_lead_while_it_has_no_room(three: ReplicatedBrokers, disk: FaultyDisk) -> None:
    acknowledged = produce(three, 0, range(10))
    disk.room(2_000)
    refused = [three.produce(0, os.urandom(1_000)).status for _ in range(4)]
    assert 507 in refused
    wait_for(lambda: 0 not in three.in_sync(), "nobody waits for it", 60)
    three.elect(1)
    acknowledged += produce(three, 1, range(10, 20))
    disk.room(None)
    three.wait_in_sync(0, 1, 2, timeout_s=90)
    assert three.cluster.broker(0).is_running
    three.wait_equal_logs()
