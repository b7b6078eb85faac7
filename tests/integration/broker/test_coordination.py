"""A broker and the API server: it takes its lives, renews its Lease and gives up its seats whatever others write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, Incarnation, TopicUid
from headrace.kube.client import KubeClient
from headrace.kube.errors import NotFoundError
from headrace.kube.resource import LEASES, PARTITION_SETS
from headrace_broker.cluster import lease as lease_module
from headrace_broker.cluster.lease import LeaseHolder, Taken, vacant_lease
from headrace_broker.metrics import Metrics
from tests.support.cluster import Cluster
from tests.support.partition_sets import partition_state, seat
from tests.support.waiting import eventually

VACANT = vacant_lease(BrokerId(7), "default", "another", "http://7", "")
"""Of another cluster: the operator of the shared one does not see it."""


@pytest.fixture
async def client(shared: Cluster) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(kubeconfig=str(shared.kubeconfig)) as client:
        yield client
        with suppress(NotFoundError):
            await client.delete(LEASES, VACANT.metadata.name, "default")


def holder(client: KubeClient, **said: Any) -> LeaseHolder:
    return LeaseHolder(client, Metrics(), replace(VACANT, **said))


def on_disk(_incarnation: Incarnation, _known: Incarnation) -> None:
    """The disk is not looked at."""


async def create_set(client: KubeClient, name: str, state: PartitionState, cluster: str) -> PartitionSet:
    metadata = Metadata(name, "default", labels={"headrace.io/cluster": cluster})
    return await client.create(PARTITION_SETS, PartitionSet(metadata, name, TopicUid(name), (state,)).to_object())


async def test_should_know_of_the_life_of_whoever_was_faster(client: KubeClient, shared: Cluster) -> None:
    assert await holder(client).acquire(Incarnation(0), on_disk) == Taken(Incarnation(1), Incarnation(0))
    lease = await client.get(LEASES, VACANT.metadata.name, "default")
    written: list[tuple[Incarnation, Incarnation]] = []

    def write(incarnation: Incarnation, known: Incarnation) -> None:
        """Before the first number is on this disk, another process lives under it."""
        if not written:
            faster = replace(lease, incarnation=incarnation)
            shared.kube("PUT", LEASES.path("default", VACANT.metadata.name), faster.to_object())
        written.append((incarnation, known))

    assert await holder(client).acquire(Incarnation(1), write) == Taken(Incarnation(3), Incarnation(2))
    assert written == [(2, 1), (3, 2)]


async def test_should_renew_again_when_the_answer_to_the_lease_that_it_made_anew_was_lost(client: KubeClient) -> None:
    await holder(client).acquire(Incarnation(0), on_disk)
    # As after a Lease was deleted, made again, and the answer to that lost: it is there, and its version is not known.
    await holder(client, incarnation=Incarnation(1)).announce(draining=True, clean=False)
    assert (await client.get(LEASES, VACANT.metadata.name, "default")).draining


async def test_should_renew_again_once_a_lease_that_could_not_be_read_was_mended(
    client: KubeClient, shared: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "LEASE_RENEW_INTERVAL_MS", 20)
    kept = holder(client)
    await kept.acquire(Incarnation(0), on_disk)
    keeping = asyncio.create_task(kept.keep())
    path = LEASES.path("default", VACANT.metadata.name)
    try:
        shared.kube("PATCH", path, {"spec": {"holderIdentity": "somebody"}})
        await eventually(lambda: "cannot be read, mend it" in caplog.text, "it says so, and goes on")
        before_ms = kept.renewed_ms
        shared.kube("PATCH", path, {"spec": {"holderIdentity": "1"}})
        await eventually(lambda: kept.renewed_ms > before_ms, "it is renewed")
        assert not keeping.done()
    finally:
        keeping.cancel()


async def test_should_count_no_lives_of_the_same_number_in_another_cluster(client: KubeClient) -> None:
    foreign = await create_set(client, "foreign-0", partition_state(leader=seat(7, 50)), "headrace-2")
    own = await create_set(client, "own-0", partition_state(leader=seat(7, 4)), "another")
    try:
        assert await holder(client).acquire(Incarnation(1), on_disk) == Taken(Incarnation(5), Incarnation(4))
    finally:
        for created in (foreign, own):
            await client.delete(PARTITION_SETS, created.metadata.name, "default")
