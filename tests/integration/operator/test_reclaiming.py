"""Data that no PartitionSet names: real brokers hold it, the operator finds it, and no topic begins empty beside it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.producer.async_producer import AsyncProducer
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic, topic_manifest
from headrace.kube.resource import PARTITION_SETS, TOPICS
from tests.support.operator import Cluster
from tests.support.patience import patient
from tests.support.real_brokers import RealCluster
from tests.support.waiting import observed

pytestmark = [pytest.mark.contract, pytest.mark.timeout(400)]
PARTITIONS, RECORDS = 3, 100_000
OF_NOBODY = "00000000-1111-2222-3333-444455556666"


@pytest.fixture
async def three(cluster: Cluster, kubeconfig: Path, tmp_path: Path) -> AsyncIterator[RealCluster]:
    shutil.copy(kubeconfig, tmp_path / "kubeconfig")
    real = RealCluster(cluster, tmp_path)
    try:
        await real.start()
        yield real
    finally:
        for broker in real.brokers.values():
            await broker.end()


async def create(three: RealCluster, adopts: str = "", name: str = "flights") -> Topic:
    spec = {"cluster": three.control.name, "partitions": PARTITIONS, "replicas": 3, "deletionPolicy": "Retain"}
    manifest = topic_manifest(name, three.control.name, spec)
    if adopts:
        manifest["metadata"]["annotations"] = {"headrace.io/adopt-uid": adopts}
    return await three.control.client.create(TOPICS, manifest)


async def write(three: RealCluster, first: int, count: int) -> None:
    """Records `first` to `first + count`, evenly over the partitions, in order."""
    async with AsyncProducer(await three.servers(), namespace=three.control.name) as producer:
        for partition in range(PARTITIONS):
            values = [str(number) for number in range(first, first + count) if number % PARTITIONS == partition]
            await (await producer.send_batch("flights", values=values, partition=partition))


async def read(three: RealCluster, partition: int, until: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    servers, namespace = await three.servers(), three.control.name
    consumer = AsyncConsumer("flights", server=servers, namespace=namespace, partitions=[partition])
    async with consumer, asyncio.timeout(patient(90)):
        async for record in consumer:
            found.append((record.offset, record.value))
            if len(found) == until:
                break
    return found


async def check(three: RealCluster, count: int) -> None:
    """Records 0 to `count` are there, once, at their offsets."""
    for partition in range(PARTITIONS):
        expected = [str(number).encode() for number in range(count) if number % PARTITIONS == partition]
        assert await read(three, partition, len(expected)) == list(enumerate(expected)), f"partition {partition}"


async def delete_sets(three: RealCluster) -> None:
    for found in await three.control.sets():
        await three.control.client.delete(PARTITION_SETS, found.metadata.name, found.metadata.namespace)


def are_recovered(sets: list[PartitionSet]) -> bool:
    return bool(sets) and all(state.leader_epoch > 1 for found in sets for state in found.partitions)


async def test_should_go_on_with_retained_data_in_a_topic_that_adopts_it(three: RealCluster) -> None:
    old = await create(three)
    await three.control.wait_ready()
    await write(three, 0, RECORDS)
    await three.control.delete_topic()
    await three.control.wait_gone()
    new = await create(three, adopts=old.uid)
    assert new.uid != old.uid
    await three.control.wait_ready()
    event = await three.control.wait_event_about("DataAdopted")
    assert f"the data of topic uid {old.uid} goes on here" in event["message"]
    await write(three, RECORDS, 300)
    await check(three, RECORDS + 300)
    await three.wait_whole(3, 0, 1, 2)

    sets = await three.control.sets()
    await three.control.patch_topic({"metadata": {"annotations": {"headrace.io/adopt-uid": None}}})
    for broker in three.brokers.values():
        await broker.kill()
        await broker.start()
    await three.wait_whole(3, 0, 1, 2)
    await check(three, RECORDS + 300)
    assert [each.metadata.uid for each in await three.control.sets()] == [each.metadata.uid for each in sets]
    folders = [path for broker in three.brokers for path in (three.folder / f"broker-{broker}").glob("*/*-[0-9]")]
    assert {path.name.rpartition("-")[0] for path in folders} == {new.uid}
    assert {path.parent.name for path in folders} == {"partitions"}


async def test_should_adopt_whole_although_operators_and_brokers_die_meanwhile(three: RealCluster) -> None:
    old = await create(three)
    await three.control.wait_ready()
    await write(three, 0, 3_000)
    await three.control.delete_topic()
    await three.control.wait_gone()
    await create(three, adopts=old.uid)
    for number, how_far in enumerate((0, 1, 2)):
        await observed(partial(_steps, three), how_far.__le__, f"step {how_far} is done")
        await three.control.operator.kill()
        await three.control.operator.start()
        await three.brokers[number].kill()
        await three.brokers[number].start()
    await three.wait_whole(3, 0, 1, 2)
    await three.control.wait_condition("Ready", "True", "AllPartitionsOnline", timeout_s=90)
    await write(three, 3_000, 30)
    await check(three, 3_030)


async def test_should_find_the_data_of_a_topic_whose_sets_are_gone_once_all_brokers_tell(three: RealCluster) -> None:
    await create(three)
    await three.control.wait_ready()
    await write(three, 0, 3_000)
    await delete_sets(three)
    await three.control.wait_sets(are_recovered, "its data is found")
    await three.control.wait_event_about("DataFound")
    await three.wait_whole(3, 0, 1, 2)
    await check(three, 3_000)

    assert await three.brokers[2].stop() == 0
    await delete_sets(three)
    topic = await three.control.wait_condition("Ready", "False", "WaitingForReports")
    assert "broker 2 did not answer" in str(topic.status)
    assert not await three.control.sets()
    await three.brokers[2].start()
    await three.control.wait_ready()
    await write(three, 3_000, 30)
    await check(three, 3_030)


async def test_should_refuse_what_is_not_there_and_what_is_not_its_own(three: RealCluster) -> None:
    other = await create(three, name="other")
    await three.control.wait_ready("other")
    await create(three, adopts=OF_NOBODY)
    refused = await three.control.wait_condition("Ready", "False", "AdoptionRefused")
    assert f"no broker holds data of a topic with uid {OF_NOBODY}" in str(refused.status)
    await three.control.patch_topic({"metadata": {"annotations": {"headrace.io/adopt-uid": other.uid}}})

    def says_so(topic: Topic | None) -> bool:
        return topic is not None and f"topic {three.control.name}/other lives under uid" in str(topic.status)

    await observed(three.control.topic, says_so, "it says whose data that is")
    assert [found.topic for found in await three.control.sets()] == ["other"]
    await three.control.patch_topic({"metadata": {"annotations": {"headrace.io/adopt-uid": None}}})
    await three.control.wait_ready()


async def _steps(three: RealCluster) -> int:
    """How far the operator has got with placing the topic."""
    topic = await three.control.topic()
    return bool(topic is not None and topic.places.begun) + bool(await three.control.sets())
