"""Several operators of one cluster: one acts, another stands by and knows what there is to know."""

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.core.resources.lease import OperatorLease, operator_lease_name
from headrace.kube.errors import NotFoundError
from headrace.kube.resource import OPERATOR_LEASES
from tests.support.operator import Cluster, Operator
from tests.support.waiting import observed

pytestmark = pytest.mark.contract


async def holder(cluster: Cluster) -> str:
    try:
        lease: OperatorLease = await cluster.client.get(
            OPERATOR_LEASES, operator_lease_name(cluster.name), cluster.name
        )
    except NotFoundError:
        return ""
    return lease.holder


async def wait_holder(cluster: Cluster, name: str) -> None:
    await observed(lambda: holder(cluster), lambda found: found == name, f"{name} acts")


@asynccontextmanager
async def second(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Operator]:
    """It stands by: the first one acts already."""
    await cluster.operator.start()
    await wait_holder(cluster, "first")
    operator = Operator((*cluster.operator.arguments[:-1], "second"), tmp_path / "second.log")
    await operator.start()
    try:
        await observed(operator.stands_by, bool, "the second stands by")
        yield operator
    finally:
        await operator.kill()


async def test_should_take_over_when_the_one_that_acts_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.start_brokers(0, 1)
    async with second(cluster, tmp_path) as standby:
        await cluster.create_topic("before")
        await cluster.wait_ready("before")
        await cluster.operator.kill()
        await cluster.create_topic("after")
        await cluster.wait_ready("after")
        assert await holder(cluster) == "second"
        await cluster.operator.start()
        assert await standby.end(signal.SIGTERM) == 0
        await wait_holder(cluster, "first")


async def test_should_take_over_at_once_when_the_one_that_acts_is_told_to_stop(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.start_brokers(0, 1)
    async with second(cluster, tmp_path):
        assert await cluster.operator.end(signal.SIGTERM) == 0
        assert await holder(cluster) in ("", "second"), "there is no Lease to wait for the end of"
        await wait_holder(cluster, "second")
        await cluster.create_topic()
        await cluster.wait_ready()


async def test_should_write_nothing_any_more_when_it_was_frozen_beyond_its_lease(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.start_brokers(0, 1)
    async with second(cluster, tmp_path) as standby:
        await cluster.operator.freeze()
        await cluster.create_topic()
        await cluster.wait_ready()
        await cluster.operator.thaw()
        await observed(cluster.operator.stands_by, bool, "the first has noticed that its time is over")
        await cluster.patch_topic({"spec": {"partitions": 9}})
        await cluster.wait_ready()
        assert "flights" not in cluster.operator.log.read_text()
        assert re.search(r"flights: ReplaceSet: place 3 partitions", standby.log.read_text())
