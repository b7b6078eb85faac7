"""What Pods and the StatefulSet tell the operator, long before Leases could."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.operator import Cluster

pytestmark = pytest.mark.contract


async def _delete(cluster: Cluster) -> None:
    await cluster.delete_pod(1)


async def _end(cluster: Cluster) -> None:
    await cluster.tell_of_pod(1, {"terminated": {"exitCode": 137}})


async def _restart(cluster: Cluster) -> None:
    await cluster.tell_of_pod(1, {"running": {}}, restarts=1)


@pytest.mark.parametrize("die", [_delete, _end, _restart])
async def test_should_take_a_broker_for_lost_as_soon_as_its_pod_has_ended(
    cluster: Cluster, die: Callable[[Cluster], Awaitable[None]]
) -> None:
    await cluster.run_as_pods(2)
    await cluster.start_brokers(0, 1)
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.brokers[1].stop()
    await die(cluster)
    topic = await cluster.wait_condition("Ready", "False", "PartitionsOffline")
    assert topic.status["leadersByBroker"] == "0:3"
    told = cluster.operator.log.read_text()
    assert "broker 1: its process has ended, as its Pod shows" in told, "and its Lease has not run out first"
    await cluster.brokers[1].start()
    await cluster.take_seats(1)
    assert (await cluster.wait_ready()).status["leaders"] == "6/6"


async def test_should_place_nothing_on_a_broker_that_the_stateful_set_does_not_ask_for(cluster: Cluster) -> None:
    await cluster.run_as_pods(2)
    await cluster.start_brokers(0, 1)
    await cluster.scale(1)
    await cluster.operator.start()
    await cluster.create_topic()
    assert (await cluster.wait_ready()).status["leadersByBroker"] == "0:6"
