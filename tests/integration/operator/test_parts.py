"""The operator's parts, each in this process and against a Kubernetes API, where the whole process is too coarse."""

import asyncio
from dataclasses import replace
from random import Random

import aiohttp
import pytest

from headrace.core.control.actions import CreateSet, DeleteOrphanSet, PatchStatus, ReplaceSet, TopicPlan
from headrace.core.control.observed import BrokerState
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, Incarnation, TopicName, TopicUid
from headrace.http2.async_transport import AsyncTransport
from headrace.kube.errors import NotFoundError
from headrace.kube.events import EventRecorder
from headrace.kube.resource import LEASES, PARTITION_SETS, TOPICS
from headrace_operator.applier import Applier, Outcome
from headrace_operator.broker_calls import Reporter
from headrace_operator.main import serve_health
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observer import Observer, Scope
from headrace_operator.reconciler import Reconciler
from tests.support.operator import Cluster
from tests.support.partition_sets import partition_set

pytestmark = pytest.mark.contract


def applier(cluster: Cluster) -> Applier:
    return Applier(cluster.client, EventRecorder(cluster.client, "test"), OperatorMetrics().landed)


def observer(cluster: Cluster) -> Observer:
    return Observer(cluster.client, Scope(cluster.name, cluster.name, finalizer_wait_ms=30_000))


def plan_of(*actions: CreateSet | ReplaceSet | DeleteOrphanSet | PatchStatus) -> TopicPlan:
    return TopicPlan(TopicName("default", "flights"), actions)


async def own_set(cluster: Cluster, uid: str) -> PartitionSet:
    found = replace(partition_set(uid=uid), metadata=Metadata("flights-0", cluster.name))
    return await cluster.client.create(PARTITION_SETS, found.to_object())


async def test_should_delete_a_set_whose_topic_is_gone(cluster: Cluster) -> None:
    orphan = await own_set(cluster, "gone")
    assert await applier(cluster).apply(plan_of(DeleteOrphanSet(orphan, "test"))) is Outcome.DONE
    with pytest.raises(NotFoundError):
        await cluster.client.get(PARTITION_SETS, "flights-0", cluster.name)


async def test_should_delete_a_set_when_only_a_namesake_of_its_topic_is_there(cluster: Cluster) -> None:
    await cluster.create_topic()
    orphan = await own_set(cluster, "gone")
    assert await applier(cluster).apply(plan_of(DeleteOrphanSet(orphan, "test"))) is Outcome.DONE


async def test_should_keep_a_set_when_its_topic_is_there_after_all(cluster: Cluster) -> None:
    topic = await cluster.create_topic()
    found = await own_set(cluster, topic.uid)
    assert await applier(cluster).apply(plan_of(DeleteOrphanSet(found, "test"))) is Outcome.OVERTAKEN
    assert await cluster.client.get(PARTITION_SETS, "flights-0", cluster.name) == found


async def test_should_drop_the_rest_when_another_write_was_first(cluster: Cluster) -> None:
    topic = await cluster.create_topic()
    stale = await own_set(cluster, topic.uid)
    await cluster.client.replace(PARTITION_SETS, replace(stale, deleting=True).to_object())
    status = PatchStatus(topic, {"leaders": "9/9"}, "test")
    assert await applier(cluster).apply(plan_of(ReplaceSet(stale, "test"), status)) is Outcome.OVERTAKEN
    assert "leaders" not in (await cluster.client.get(TOPICS, "flights", cluster.name)).status


async def test_should_write_no_status_on_a_topic_that_was_created_again(cluster: Cluster) -> None:
    old = await cluster.create_topic()
    await cluster.delete_topic()
    await cluster.create_topic()
    outcome = await applier(cluster).apply(plan_of(PatchStatus(old, {"leaders": "9/9"}, "test")))
    assert outcome is Outcome.OVERTAKEN
    assert "leaders" not in (await cluster.client.get(TOPICS, "flights", cluster.name)).status


async def test_should_go_on_with_others_when_the_server_refuses(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await cluster.create_topic()
    wrong = PatchStatus(topic, {"leaders": 9}, "test")
    assert await applier(cluster).apply(plan_of(wrong)) is Outcome.REFUSED
    assert "PatchStatus was refused" in caplog.text


async def test_should_believe_in_a_broker_only_once_its_lease_moves(cluster: Cluster) -> None:
    lease = await a_lease(cluster)
    watcher = observer(cluster)
    assert await state_of(watcher) is BrokerState.UNPROVEN
    assert await state_of(watcher) is BrokerState.UNPROVEN
    await renew(cluster, lease)
    assert await state_of(watcher) is BrokerState.READY


async def test_should_tell_a_change_of_a_lease_from_a_mere_renewal(cluster: Cluster) -> None:
    lease = await a_lease(cluster)
    watcher = observer(cluster)
    await state_of(watcher)
    assert not watcher.lease_seen(lease)
    lease = await renew(cluster, lease)
    assert watcher.lease_seen(lease), "it is proven now"
    await state_of(watcher)
    assert not watcher.lease_seen(await renew(cluster, lease, "2")), "a mere renewal"
    assert watcher.lease_seen(replace(lease, incarnation=Incarnation(2)))
    assert watcher.lease_seen(replace(lease, draining=True))
    assert watcher.lease_seen(replace(lease, broker=BrokerId(4)))


async def test_should_ask_for_proof_again_when_contact_was_lost(cluster: Cluster) -> None:
    lease = await a_lease(cluster)
    watcher = observer(cluster)
    await state_of(watcher)
    await renew(cluster, lease)
    assert await state_of(watcher) is BrokerState.READY
    expiry_ms = watcher.next_change_ms()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await watcher.observe()
    assert await state_of(watcher) is BrokerState.UNPROVEN
    assert (watcher.next_change_ms() or 0) > (expiry_ms or 0), "a whole lease time again"


async def a_lease(cluster: Cluster) -> BrokerLease:
    labels = {CLUSTER_LABEL: cluster.name}
    metadata = Metadata("headrace-broker-3", cluster.name, labels=labels)
    lease = BrokerLease(metadata, BrokerId(3), Incarnation(1), "", renew_time="2026-11-21T09:00:00.000000Z")
    return await cluster.client.create(LEASES, lease.to_object())


async def renew(cluster: Cluster, lease: BrokerLease, digit: str = "1") -> BrokerLease:
    renewed = lease.renewed(f"2026-11-21T09:00:00.00000{digit}Z")
    return await cluster.client.replace(LEASES, renewed.to_object())


async def state_of(watcher: Observer) -> BrokerState:
    return (await watcher.observe()).observed.brokers[BrokerId(3)].state


async def test_should_see_topics_and_sets_of_all_namespaces(cluster: Cluster) -> None:
    topic = await cluster.create_topic()
    found = await own_set(cluster, topic.uid)
    picture = await observer(cluster).observe()
    assert topic in picture.topics
    assert found in picture.observed.sets
    assert picture.observed.overdue == frozenset[TopicUid]()


async def test_should_serve_health_and_metrics(cluster: Cluster) -> None:
    metrics = OperatorMetrics()
    reporter = Reporter(AsyncTransport())
    reconciler = Reconciler(observer(cluster), reporter, applier(cluster), metrics, Random(1), acts=lambda: True)
    async with serve_health("127.0.0.1", 0, reconciler, metrics) as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.status == 200
            assert "headrace_operator_reconciles_total 0.0" in await response.text()
