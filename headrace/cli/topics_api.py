"""What `headrace topic` asks of the Kubernetes API, and its answers as sentences. No output here."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from headrace.core.errors import HeadraceError, LocalError
from headrace.core.resources.internal_topics import INTERNAL_TOPICS
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import INTERNAL_LABEL, Topic, topic_manifest
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError, NotFoundError
from headrace.kube.resource import LEASES, PARTITION_SETS, TOPICS
from headrace.kube.watch import Changed, Listed, Removed, WatchEvent, watch

_HOPELESS_REASONS = frozenset({"AdoptionRefused"})
"""Reasons for not being ready that only a change of the topic ends: waiting is of no use."""


class TopicNotReadyError(HeadraceError):
    """The topic was created, and does not become ready."""

    code = "TopicNotReady"


def ready_condition(topic: Topic) -> Mapping[str, Any]:
    """The Ready condition, if it is about the present spec; else one that says that the operator has not looked yet."""
    for condition in topic.status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("observedGeneration") == topic.metadata.generation:
            return dict(condition)
    return {"status": "Unknown", "reason": "Pending", "message": "the operator has not looked at it yet: does it run?"}


async def create_topic(
    client: KubeClient, name: str, namespace: str, spec: Mapping[str, Any], *, or_take: bool = False
) -> None:
    """Raises the API server's own sentence where the spec breaks a rule, and LocalError where the topic exists.

    With `or_take` one that exists does as well.
    """
    if name in INTERNAL_TOPICS:
        raise LocalError(f"{name} is the name of one of Headrace's own topics, which comes by itself: choose another")
    try:
        await client.create(TOPICS, topic_manifest(name, namespace, spec))
    except AlreadyExistsError as error:
        if or_take:
            return
        raise LocalError(
            f"topic {namespace}/{name} exists already: `headrace topic describe {name} -n {namespace}` shows it"
        ) from error
    except NotFoundError as error:
        raise _no_crd(error, namespace) from error


async def has_topic(client: KubeClient, name: str, namespace: str) -> bool:
    try:
        await client.get(TOPICS, name, namespace)
    except NotFoundError:
        return False
    return True


async def unserved(client: KubeClient, topic: Topic) -> str | None:
    """What there is to say where no broker is of the topic's cluster; None where one is, or nobody may know."""
    try:
        clusters = {lease.cluster for lease in (await client.list(LEASES, label_selector=CLUSTER_LABEL)).items}
    except ApiError:
        return None
    if topic.spec.cluster in clusters:
        return None
    served = f"there are brokers of {', '.join(sorted(clusters))}" if clusters else "there are no brokers at all"
    return (
        f"topic {topic.full_name} belongs to cluster {topic.spec.cluster} by its spec.cluster, and no broker does;"
        f" {served}: delete the topic and create it for one of them, or start that cluster"
    )


async def unserved_topic(client: KubeClient, name: str, namespace: str) -> str | None:
    """The same of a topic that may not be there."""
    try:
        return await unserved(client, await client.get(TOPICS, name, namespace))
    except ApiError:
        return None


async def wait_until_ready(
    client: KubeClient, name: str, namespace: str, *, timeout_s: float, heard: Callable[[str], None]
) -> Topic:
    """Wait for Ready=True; `heard` is told each reason on the way. Raises TopicNotReadyError with the last one."""
    condition: Mapping[str, Any] = {"reason": "Pending", "message": "the operator has not looked at it yet"}
    said = await unserved_topic(client, name, namespace)
    if said is not None:
        raise TopicNotReadyError(f"topic {name} is there, and nobody looks after it: {said}")
    try:
        async with asyncio.timeout(timeout_s), aclosing(watch(client, TOPICS, namespace=namespace)) as events:
            async for event in events:
                for topic in _about(event, name):
                    condition = ready_condition(topic)
                    if condition["status"] == "True":
                        return topic
                    if condition["reason"] in _HOPELESS_REASONS:
                        raise TopicNotReadyError(f"topic {name} was created but cannot work: {condition['message']}")
                    heard(f"{condition['reason']}: {condition['message']}")
    except TimeoutError:
        pass
    raise TopicNotReadyError(
        f"topic {name} was created, and is not ready after {timeout_s:g} s: {condition['reason']}:"
        f" {condition['message']}"
    )


async def delete_topic(
    client: KubeClient, name: str, namespace: str, *, timeout_s: float, must_exist: bool = True
) -> bool:
    """Delete, and wait until the topic is really gone; whether there was one. Raises LocalError where it must exist."""
    try:
        topic = await client.get(TOPICS, name, namespace)
        if is_internal(topic):
            raise LocalError(
                f"topic {namespace}/{name} is Headrace's own: it holds what all consumer groups have read, and is not"
                " deleted; to forget one group: `headrace group delete NAME`"
            )
        uid = topic.uid
        await client.delete(TOPICS, name, namespace, uid=uid)
    except NotFoundError as error:
        if not must_exist:
            return False
        raise no_topic(name, namespace) from error
    try:
        async with asyncio.timeout(timeout_s), aclosing(watch(client, TOPICS, namespace=namespace)) as events:
            async for event in events:
                if isinstance(event, Removed) and event.item.uid == uid:
                    return True
                if isinstance(event, Listed) and uid not in {topic.uid for topic in event.items}:
                    return True
    except TimeoutError:
        pass
    raise HeadraceError(f"topic {namespace}/{name} is being deleted, and is still there after {timeout_s:g} s")


async def list_topics(client: KubeClient, namespace: str | None, *, internal: bool = False) -> list[Topic]:
    """By namespace and name; None is all namespaces. With `internal`, those that are Headrace's own as well."""
    try:
        listing = await client.list(TOPICS, namespace=namespace)
    except NotFoundError as error:
        raise _no_crd(error, namespace or "") from error
    return sorted(
        (topic for topic in listing.items if internal or not is_internal(topic)), key=lambda topic: topic.full_name
    )


def is_internal(topic: Topic) -> bool:
    return topic.metadata.labels.get(INTERNAL_LABEL) == "true"


async def describe_topic(client: KubeClient, name: str, namespace: str) -> tuple[Topic, list[PartitionSet]]:
    """The topic and where its partitions are. Raises LocalError where there is none."""
    try:
        topic = await client.get(TOPICS, name, namespace)
    except NotFoundError as error:
        raise no_topic(name, namespace) from error
    sets = (await client.list(PARTITION_SETS, namespace=namespace)).items
    return topic, sorted(
        (s for s in sets if s.topic_uid == topic.uid), key=lambda s: min((p.id for p in s.partitions), default=0)
    )


def no_topic(name: str, namespace: str) -> LocalError:
    return LocalError(f"there is no topic {name} in namespace {namespace}: `headrace topic list -A` shows all")


def _no_crd(error: NotFoundError, namespace: str) -> LocalError:
    return LocalError(
        f"the Kubernetes API does not know topics, or not the namespace {namespace!r} ({error.message}):"
        " install Headrace there first, or choose another with --kubeconfig, --context and -n"
    )


def _about(event: WatchEvent[Topic], name: str) -> list[Topic]:
    match event:
        case Listed(items):
            return [topic for topic in items if topic.metadata.name == name]
        case Changed(topic) if topic.metadata.name == name:
            return [topic]
        case _:
            return []
