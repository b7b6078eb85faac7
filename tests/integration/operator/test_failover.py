"""Real brokers and real operators: leaders die and move while a producer with acks=all goes on, and nothing is lost."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.operator import Cluster, Operator
from tests.support.real_brokers import RealCluster, producing
from tests.support.waiting import observed

pytestmark = [pytest.mark.contract, pytest.mark.timeout(400)]
PARTITIONS = 3


@pytest.fixture
async def three(cluster: Cluster, kubeconfig: Path, tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Three brokers, and the topic `flights` with three replicas."""
    shutil.copy(kubeconfig, tmp_path / "kubeconfig")
    real = RealCluster(cluster, tmp_path)
    try:
        await real.start()
        await cluster.create_topic(partitions=PARTITIONS, replicas=3)
        await cluster.wait_ready()
        yield real
    finally:
        for broker in real.brokers.values():
            await broker.end()


async def test_should_elect_another_and_go_on_when_leaders_are_killed(three: RealCluster) -> None:
    async with producing(three) as load:
        for partition in range(PARTITIONS):
            killed = await three.leader(partition)
            await killed.kill()
            await load.goes_on(PARTITIONS)
            await killed.start()
            await three.wait_whole(3, 0, 1, 2)
    # Leaders are moved for balance as well.
    await three.control.wait_event_about("LeaderElected", says="is gone")


async def test_should_elect_another_when_a_leader_dies_in_silence(three: RealCluster) -> None:
    async with producing(three) as load:
        await (await three.leader()).kill(silently=True)
        await load.goes_on(PARTITIONS, timeout_s=90)


async def test_should_hand_leaders_over_before_each_broker_stops(three: RealCluster) -> None:
    async with producing(three) as load:
        for number in (2, 1, 0):
            assert await three.brokers[number].stop() == 0
            await load.goes_on(PARTITIONS)
            await three.brokers[number].start()
            await three.wait_whole(3, 0, 1, 2)


async def test_should_move_replicas_away_before_a_broker_goes_for_good(three: RealCluster) -> None:
    await three.control.patch_topic({"spec": {"replicas": 2, "minInsyncReplicas": 1}})
    await three.wait_whole(2, 0, 1, 2)
    async with producing(three) as load:
        await three.control.scale(2)
        assert await three.brokers[2].stop() == 0
        await three.wait_whole(2, 0, 1)
        await load.goes_on(PARTITIONS)


async def test_should_keep_every_record_when_replicas_go_down_to_one_and_up_again(three: RealCluster) -> None:
    async with producing(three) as load:
        await three.control.patch_topic({"spec": {"replicas": 1, "minInsyncReplicas": 1}})
        await three.wait_whole(1, 0, 1, 2)
        await load.goes_on(PARTITIONS)
        await three.control.patch_topic({"spec": {"replicas": 3, "minInsyncReplicas": 2}})
        await three.wait_whole(3, 0, 1, 2)
        await (await three.leader()).kill()
        await load.goes_on(PARTITIONS)


async def test_should_elect_by_another_operator_when_the_first_is_killed(three: RealCluster, tmp_path: Path) -> None:
    first = three.control.operator
    second = Operator((*first.arguments[:-1], "second"), tmp_path / "second.log")
    await second.start()
    try:
        await observed(second.stands_by, bool, "the second operator stands by")
        async with producing(three) as load:
            await first.kill()
            await (await three.leader()).kill()
            await load.goes_on(PARTITIONS, timeout_s=90)
    finally:
        await second.kill()


async def test_should_let_the_greatest_log_lead_when_those_in_sync_have_lost_their_disks(three: RealCluster) -> None:
    await three.control.patch_topic({"spec": {"minInsyncReplicas": 1}})
    leader = await three.leader()
    others = [broker for broker in three.brokers.values() if broker is not leader]
    for broker in others:
        await broker.kill()
    await observed(three.states, lambda states: all(len(state.isr) == 1 for state in states), "one is in sync")
    await (await three.leader()).kill()
    shutil.rmtree(leader.folder / f"broker-{leader.number}")
    await asyncio.gather(*(broker.start() for broker in three.brokers.values()))
    await three.wait_whole(3, 0, 1, 2)
    event = await three.control.wait_event_about("RecordsMayBeLost")
    assert event["type"] == "Warning"
    async with producing(three):
        pass
