"""The requests of commands to the Kubernetes API about Topics and ConsumerGroups, and its answers as sentences.

It creates, lists, waits for and deletes topics; lists, resets and deletes consumer groups. A wait follows a watch and
ends when the operator has done its part, when it reports that it never will, or when the time is over. The module
prints nothing. Called by `topic`, `group`, completion, and by commands that explain an unknown topic; imported in
functions, because it loads the Kubernetes client.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from headrace.core.errors import HeadraceError, LocalError
from headrace.core.resources.consumer_group import ConsumerGroup, ResetOffsets
from headrace.core.resources.internal_topics import INTERNAL_TOPICS
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.metadata import API_VERSION, ConditionType
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import INTERNAL_LABEL, Topic, topic_manifest
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from headrace.kube.resource import CONSUMER_GROUPS, LEASES, PARTITION_SETS, TOPICS
from headrace.kube.watch import Changed, Listed, Removed, WatchEvent, watch, watch_one

_HOPELESS_REASONS = frozenset({"AdoptionRefused"})
"""Reasons for not being ready that only a change of the topic ends: waiting does not help."""
PATIENCE_S = 60.0
"""The time that the operator gets for what no membership delays."""
_NOT_LOOKED = "the operator has not looked at it yet"
_DOES_IT_RUN = f"{_NOT_LOOKED}, so it may not run: see its Pod, or `headrace dev status`"
_OF_A_RESET = ("id", "to", "timestamp", "topics", "offsets")
Heard = Callable[[str], None]


class TopicNotReadyError(HeadraceError):
    """The topic was created, and does not become ready."""

    code = "TopicNotReady"


def ready_condition(topic: Topic) -> Mapping[str, Any]:
    """Return the Ready condition, if it is about the present spec; else one that says that the operator has not acted
    yet."""
    for condition in topic.status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("observedGeneration") == topic.metadata.generation:
            return dict(condition)
    return {"status": "Unknown", "reason": "Pending", "message": "the operator has not looked at it yet: does it run?"}


async def create_topic(
    client: KubeClient, name: str, namespace: str, spec: Mapping[str, Any], *, or_take: bool = False
) -> None:
    """Create a topic. Raises the API server's own sentence where the spec breaks a rule, and LocalError where the topic
    exists.

    With `or_take` an existing topic is no error.
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
    """Return an explanation where no broker is of the topic's cluster; None where one is, or where that is not
    known."""
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
    """Return the same for a topic that may not be there."""
    try:
        return await unserved(client, await client.get(TOPICS, name, namespace))
    except ApiError:
        return None


async def wait_until_ready(
    client: KubeClient, name: str, namespace: str, *, timeout_s: float, heard: Callable[[str], None]
) -> Topic:
    """Wait for Ready=True; `heard` is called with each reason on the way. Raises TopicNotReadyError with the last
    one."""
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
    """Delete, wait until the topic is really gone, and return whether there was one. Raises LocalError where it must
    exist."""
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
    """Return topics by namespace and name; None is all namespaces. With `internal`, Headrace's own topics as well."""
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
    """Return the topic and where its partitions are. Raises LocalError where there is none."""
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


async def list_groups(client: KubeClient, namespace: str | None) -> list[ConsumerGroup]:
    """Return groups by namespace and name; None is all namespaces."""
    try:
        listing = await client.list(CONSUMER_GROUPS, namespace=namespace)
    except NotFoundError as error:
        raise LocalError(
            f"the Kubernetes API does not know consumer groups ({error.message}): install Headrace there first, or"
            " choose another with --kubeconfig and --context"
        ) from error
    return sorted(listing.items, key=lambda group: group.name)


async def find_group(client: KubeClient, name: str, namespace: str) -> ConsumerGroup | None:
    """Return the group; None: there is none."""
    try:
        return await client.get(CONSUMER_GROUPS, name, namespace)
    except NotFoundError:
        return None


def no_group(name: str, namespace: str) -> LocalError:
    return LocalError(f"there is no group {name} in namespace {namespace}: `headrace group list -A` shows all")


def members_of(group: ConsumerGroup) -> str:
    """Return the members as `billing-0 (10.1.2.3), 6b1e (10.1.2.4)`."""
    return ", ".join(
        (member.instance or member.member) + (f" ({member.client_address})" if member.client_address else "")
        for member in group.status.members
    )


def condition_of(group: ConsumerGroup, type_: ConditionType) -> Mapping[str, Any] | None:
    """Return the condition, if it is about the present spec."""
    for condition in group.status.conditions:
        if condition.get("type") == type_ and condition.get("observedGeneration") == group.metadata.generation:
            return condition
    return None


# -- resetting ---------------------------------------------------------------------------------------------------------


async def ask_for_reset(client: KubeClient, name: str, namespace: str, reset: ResetOffsets, cluster: str) -> None:
    """Write the reset into the ConsumerGroup, which is created where there is none. Raises ApiError."""
    wanted = reset.to_object()
    # A merge patch leaves alone what it does not name, such as the timestamp of the reset before.
    patch = {"spec": {"resetOffsets": {field: wanted.get(field) for field in _OF_A_RESET}}}
    try:
        await client.patch(CONSUMER_GROUPS, name, namespace, patch)
    except NotFoundError:
        try:
            await client.create(CONSUMER_GROUPS, _manifest(name, namespace, wanted, cluster))
        except AlreadyExistsError:  # A member joined at this moment.
            await client.patch(CONSUMER_GROUPS, name, namespace, patch)


def _manifest(name: str, namespace: str, reset: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ConsumerGroup",
        "metadata": {"name": name, "namespace": namespace, "labels": {CLUSTER_LABEL: cluster}},
        "spec": {"cluster": cluster, "resetOffsets": reset},
    }


async def wait_until_reset(
    client: KubeClient, name: str, namespace: str, id_: str, heard: Heard, *, patience_s: float = PATIENCE_S
) -> None:
    """Wait until the reset of this id has been carried out; `heard` is called with what it waits for. Raises
    HeadraceError."""
    said = _NOT_LOOKED

    def is_done(group: ConsumerGroup | None) -> bool:
        nonlocal said
        if group is None or group.deleting:
            raise HeadraceError(f"group {namespace}/{name} was deleted before it was reset")
        last, wanted = group.status.last_reset, group.spec.reset_offsets
        if last is not None and last.id == id_:
            return True
        if wanted is None or wanted.id != id_:
            raise HeadraceError(
                f"group {namespace}/{name} was not reset: somebody else has changed spec.resetOffsets meanwhile"
            )
        said = why_not_reset(group)
        heard(said)
        return False

    try:
        await _follow(client, name, namespace, is_done, patience_s)
    except TimeoutError:
        raise HeadraceError(
            f"group {namespace}/{name} is not reset after {patience_s:g} s, though nobody is in it: {_at_last(said)}."
            f" {stays_wanted(name, namespace)}"
        ) from None


async def clear_reset(client: KubeClient, name: str, namespace: str, id_: str) -> None:
    """Take the reset of this id out of the spec again, now that it is carried out.

    Otherwise a manifest that is applied later would be merged with its `topics` or `timestamp`.
    """
    group = await find_group(client, name, namespace)
    wanted = None if group is None else group.spec.reset_offsets
    if group is None or wanted is None or wanted.id != id_:
        return
    patch = {
        "metadata": {"resourceVersion": group.metadata.resource_version},
        "spec": {"resetOffsets": None},
    }
    try:
        await client.patch(CONSUMER_GROUPS, name, namespace, patch)
    except ConflictError:
        await clear_reset(client, name, namespace, id_)
    except NotFoundError:
        return


def why_not_reset(group: ConsumerGroup) -> str:
    """Return what the reset waits for, as a sentence."""
    if group.status.members:
        return f"it is carried out once the group is empty: stop {members_of(group)}"
    condition = condition_of(group, ConditionType.OFFSETS_RESET)
    if condition is None:
        return _NOT_LOOKED
    wanted = group.spec.reset_offsets
    return str(condition["message"]).removeprefix(f"{wanted.id if wanted is not None else ''}: ")


def _at_last(said: str) -> str:
    """Return the sentence for the end of the time."""
    return _DOES_IT_RUN if said == _NOT_LOOKED else said


def stays_wanted(name: str, namespace: str) -> str:
    return (
        "It stays wanted, and is carried out once it can be; to take it back: kubectl patch consumergroup"
        f' {name} -n {namespace} --type merge -p \'{{"spec": {{"resetOffsets": null}}}}\''
    )


# -- deleting ----------------------------------------------------------------------------------------------------------


async def delete_group(
    client: KubeClient, group: ConsumerGroup, heard: Heard, *, patience_s: float = PATIENCE_S
) -> None:
    """Delete, and wait until the group is really gone; `heard` is called with what it waits for. Raises
    HeadraceError."""
    name, namespace, uid = group.metadata.name, group.metadata.namespace, group.metadata.uid
    said = _NOT_LOOKED

    def is_gone(now: ConsumerGroup | None) -> bool:
        nonlocal said
        if now is None or now.metadata.uid != uid:
            return True
        condition = condition_of(now, ConditionType.READY)
        if condition is not None:
            said = str(condition["message"])
            heard(said)
        return False

    try:
        await client.delete(CONSUMER_GROUPS, name, namespace, uid=uid)
        await _follow(client, name, namespace, is_gone, patience_s)
    except NotFoundError:
        return
    except TimeoutError:
        raise HeadraceError(
            f"group {namespace}/{name} is being deleted, and is still there after {patience_s:g} s: {_at_last(said)}"
        ) from None


async def _follow(
    client: KubeClient,
    name: str,
    namespace: str,
    is_done: Callable[[ConsumerGroup | None], bool],
    patience_s: float,
) -> None:
    """Wait until `is_done`, which is called with each state that is seen (None: it is not there).

    Raises TimeoutError where that does not happen although no member is in the group: people may take as long as they
    like.
    """
    loop = asyncio.get_running_loop()
    async with (
        asyncio.timeout(patience_s) as limit,
        aclosing(watch_one(client, CONSUMER_GROUPS, name, namespace)) as events,
    ):
        async for event in events:
            group = _seen(event)
            if is_done(group):
                return
            if group is not None and group.status.members:
                limit.reschedule(None)
            elif limit.when() is None:
                limit.reschedule(loop.time() + patience_s)


def _seen(event: WatchEvent[ConsumerGroup]) -> ConsumerGroup | None:
    match event:
        case Listed(items):
            return items[0] if items else None
        case Changed(group):
            return group
        case _:
            return None
