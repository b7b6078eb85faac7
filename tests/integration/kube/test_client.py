"""`headrace.kube` against a Kubernetes API: the embedded one, or whichever HEADRACE_CONTRACT_KUBECONFIG names."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import pytest

from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic, topic_manifest
from headrace.core.types import BrokerId, Incarnation
from headrace.kube.client import KubeClient
from headrace.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidObjectError,
    NotFoundError,
    UnreadableObjectError,
)
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import EVENTS, LEASES, PARTITION_SETS, SECRETS, TOPICS, raw_resource
from headrace.kube.watch import Changed, Listed, Removed, watch, watch_one
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.patience import patient
from tests.support.waiting import eventually

pytestmark = pytest.mark.contract
DEADLINE_S = patient(60)


class Space(Protocol):
    @property
    def client(self) -> KubeClient: ...
    @property
    def name(self) -> str: ...


async def create_topic(space: Space, name: str = "flights", **spec: object) -> Topic:
    manifest = topic_manifest(name, space.name, {"partitions": 3, "replicas": 1, **spec})
    return await space.client.create(TOPICS, manifest)


def own_set(space: Space) -> PartitionSet:
    found = partition_set(partition_state(0, seat(0)))
    return replace(found, metadata=Metadata("flights-0", space.name, labels={CLUSTER_LABEL: "headrace"}))


async def test_should_give_typed_objects_with_the_servers_defaults(space: Space) -> None:
    created = await create_topic(space)
    assert created.spec.segment_bytes == 256 << 20
    assert created.status["conditions"][0]["reason"] == "Pending"
    assert await space.client.get(TOPICS, "flights", space.name) == created


async def test_should_list_what_is_in_the_namespace(space: Space) -> None:
    created = [await create_topic(space, name) for name in ("a", "b")]
    listing = await space.client.list(TOPICS, namespace=space.name)
    assert list(listing.items) == created
    assert listing.resource_version
    everywhere = await space.client.list(TOPICS)
    assert {topic.uid for topic in created} <= {topic.uid for topic in everywhere.items}


async def test_should_list_by_label(space: Space) -> None:
    for number, cluster in enumerate(("headrace", "other")):
        lease = BrokerLease(
            Metadata(f"headrace-broker-{number}", space.name, labels={CLUSTER_LABEL: cluster}),
            BrokerId(number),
            Incarnation(1),
            "",
        )
        await space.client.create(LEASES, lease.to_object())
    listing = await space.client.list(LEASES, namespace=space.name, label_selector=f"{CLUSTER_LABEL}=other")
    assert [lease.broker for lease in listing.items] == [1]


async def test_should_leave_out_and_not_fail_when_an_object_cannot_be_read(space: Space) -> None:
    metadata = {"name": "a-node", "namespace": space.name}
    foreign = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
    await space.client.create(raw_resource("coordination.k8s.io", "v1", "leases", "Lease"), foreign)
    listed = await space.client.list(LEASES, namespace=space.name)
    assert (listed.items, listed.left_out) == ((), 1)
    assert listed.unreadable == ((space.name, "a-node"),)
    with pytest.raises(
        UnreadableObjectError, match=f"Lease {space.name}/a-node cannot be read, mend it: .* not a broker's"
    ):
        await space.client.get(LEASES, "a-node", space.name)


async def test_should_refuse_to_create_twice(space: Space) -> None:
    await create_topic(space)
    with pytest.raises(AlreadyExistsError, match="flights"):
        await create_topic(space)


async def test_should_raise_the_servers_words_when_a_topic_is_invalid(space: Space) -> None:
    await create_topic(space)
    with pytest.raises(InvalidObjectError, match="partitions can grow, never shrink"):
        await space.client.patch(TOPICS, "flights", space.name, {"spec": {"partitions": 1}})


async def test_should_replace_only_what_was_read(space: Space) -> None:
    created = await space.client.create(PARTITION_SETS, own_set(space).to_object())
    changed = await space.client.replace(PARTITION_SETS, replace(created, deleting=True).to_object())
    assert changed.deleting
    assert changed.metadata.resource_version != created.metadata.resource_version
    with pytest.raises(ConflictError):
        await space.client.replace(PARTITION_SETS, created.to_object())
    assert await space.client.get(PARTITION_SETS, "flights-0", space.name) == changed


async def test_should_compare_and_set_by_patch_too(space: Space) -> None:
    created = await create_topic(space)
    version = {"resourceVersion": created.metadata.resource_version}
    patch = {"metadata": {**version, "finalizers": ["headrace.io/x"]}}
    changed = await space.client.patch(TOPICS, "flights", space.name, patch)
    assert changed.metadata.finalizers == ("headrace.io/x",)
    with pytest.raises(ConflictError):
        await space.client.patch(TOPICS, "flights", space.name, patch)
    status = {"metadata": version, "status": {"leaders": "9/9"}}
    with pytest.raises(ConflictError):
        await space.client.patch(TOPICS, "flights", space.name, status, subresource="status")
    await space.client.patch(TOPICS, "flights", space.name, {"metadata": {"finalizers": None}})


async def test_should_patch_the_status_and_leave_the_generation(space: Space) -> None:
    created = await create_topic(space)
    patch = {"status": {"leaders": "3/3"}, "spec": {"partitions": 9}}
    changed = await space.client.patch(TOPICS, "flights", space.name, patch, subresource="status")
    assert changed.status["leaders"] == "3/3"
    assert (changed.spec, changed.metadata.generation) == (created.spec, created.metadata.generation)


async def test_should_delete_only_the_object_that_is_meant(space: Space) -> None:
    created = await create_topic(space)
    with pytest.raises(ConflictError):
        await space.client.delete(TOPICS, "flights", space.name, uid="another")
    await space.client.delete(TOPICS, "flights", space.name, uid=created.uid)
    with pytest.raises(NotFoundError):
        await space.client.delete(TOPICS, "flights", space.name)
    with pytest.raises(NotFoundError):
        await space.client.get(TOPICS, "flights", space.name)


async def test_should_see_what_is_there_then_every_change_in_order(space: Space) -> None:
    first = await create_topic(space, "a")
    async with asyncio.timeout(DEADLINE_S), aclosing(watch(space.client, TOPICS, namespace=space.name)) as events:
        assert await anext(events) == Listed((first,))
        second = await create_topic(space, "b")
        assert await anext(events) == Changed(second)
        grown = await space.client.patch(TOPICS, "b", space.name, {"spec": {"partitions": 4}})
        assert await anext(events) == Changed(grown)
        await space.client.delete(TOPICS, "a", space.name)
        gone = await anext(events)
        assert isinstance(gone, Removed)
        assert gone.item.uid == first.uid


async def test_should_watch_by_label(space: Space) -> None:
    selector = f"{CLUSTER_LABEL}=headrace"
    following = watch(space.client, PARTITION_SETS, namespace=space.name, label_selector=selector)
    async with asyncio.timeout(DEADLINE_S), aclosing(following) as events:
        assert await anext(events) == Listed(())
        other = own_set(space).to_object()
        other["metadata"] = {"name": "other-0", "namespace": space.name}
        await space.client.create(PARTITION_SETS, other)
        created = await space.client.create(PARTITION_SETS, own_set(space).to_object())
        assert await anext(events) == Changed(created)


async def test_should_watch_one_object_of_many(space: Space) -> None:
    def secret(name: str, content: bytes) -> dict[str, object]:
        metadata = {"name": name, "namespace": space.name}
        data = {"tls.crt": b64encode(content).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}

    for name in ("brokers", "other"):
        await space.client.create(SECRETS, secret(name, b"first"))
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_one(space.client, SECRETS, "brokers", space.name)) as events:
        first = await anext(events)
        assert isinstance(first, Listed)
        assert [(each.metadata.name, each.data) for each in first.items] == [("brokers", {"tls.crt": b"first"})]
        await space.client.replace(SECRETS, secret("other", b"second"))
        second = await space.client.replace(SECRETS, secret("brokers", b"second"))
        assert await anext(events) == Changed(second)
        await space.client.delete(SECRETS, "brokers", space.name)
        assert isinstance(await anext(events), Removed)


class Brief(KubeClient):
    """Lets the server end each watch after a second, and counts them."""

    watches = 0

    @asynccontextmanager
    async def stream(self, path: str, query: Any, timeout: Any) -> AsyncIterator[Any]:
        self.watches += 1
        async with super().stream(path, [*(dict(query) | {"timeoutSeconds": "1"}).items()], timeout) as response:
            yield response


async def test_should_go_on_when_the_server_ends_a_watch(space: Space) -> None:
    """The change after that must come, and no second list."""
    async with (
        asyncio.timeout(DEADLINE_S),
        Brief(space.client.credentials) as client,
        aclosing(watch(client, TOPICS, namespace=space.name, rng=Random(1))) as events,
    ):
        assert await anext(events) == Listed(())
        waiting = asyncio.ensure_future(anext(events))
        await eventually(lambda: client.watches > 2, "the server has ended two")
        assert not waiting.done()
        created = await create_topic(space)
        assert await waiting == Changed(created)


async def test_should_count_an_event_that_is_repeated(space: Space) -> None:
    topic = await create_topic(space)
    recorder = EventRecorder(space.client, "test")
    regarding = Regarding(TOPICS, topic.metadata)
    for _ in range(3):
        await recorder.record(regarding, EventType.WARNING, "PartitionsOffline", "partition 0: no live leader")
    await recorder.record(regarding, EventType.NORMAL, "AllPartitionsOnline", "all is well")
    events = (await space.client.list(EVENTS, namespace=space.name)).items
    ours = [e for e in events if e.get("source", {}).get("component") == "test"]
    assert sorted((e["type"], e["reason"], e["count"]) for e in ours) == [
        ("Normal", "AllPartitionsOnline", 1),
        ("Warning", "PartitionsOffline", 3),
    ]
    assert all(e["involvedObject"]["uid"] == topic.uid for e in ours)


async def test_should_record_again_when_the_event_has_been_dropped(space: Space) -> None:
    topic = await create_topic(space)
    recorder = EventRecorder(space.client, "test")
    for _ in range(2):
        await recorder.record(Regarding(TOPICS, topic.metadata), EventType.NORMAL, "Paused", "at rest")
        (event,) = [e for e in (await space.client.list(EVENTS, namespace=space.name)).items if e["reason"] == "Paused"]
        await space.client.delete(EVENTS, event["metadata"]["name"], space.name)
    assert event["count"] == 1
