"""Looking at a consumer group from both sides, the Kubernetes API and the brokers, either of which may be away."""

from typing import TYPE_CHECKING

from headrace.cli.group_brokers import BRIEF_TIMEOUT_MS, TIMEOUT_MS, GroupBrokers, Live
from headrace.cli.group_view import GroupView
from headrace.cli.groups_api import find_group, no_group
from headrace.cli.kube import context_namespace, with_kube
from headrace.cli.options import Where
from headrace.core.errors import HeadraceError
from headrace.core.groups.identity import OFFSETS_TOPIC, GroupName
from headrace.kube.resource import TOPICS

if TYPE_CHECKING:
    from headrace.core.resources.consumer_group import ConsumerGroup
    from headrace.kube.client import KubeClient


def namespace_of(where: Where) -> str:
    """Of groups: as `headrace topic` has it, where there is a kubeconfig; else as commands for records."""
    return context_namespace(where.kube) or where.find().namespace


def brokers_of(where: Where, namespace: str, timeout_ms: int = TIMEOUT_MS) -> GroupBrokers:
    """Raises HeadraceError with the remedy where nothing leads to brokers."""
    return GroupBrokers(where.find(), namespace, timeout_ms)


def look(where: Where, name: str) -> GroupView:
    """Raises LocalError where there is no such group, and HeadraceError where that cannot be said."""
    view = look_for(where, name)
    if view.resource is not None or view.live is not None:
        return view
    namespace = view.name.namespace
    if view.no_api:
        raise HeadraceError(
            f"no broker knows a group {name} in namespace {namespace}, and the Kubernetes API is away: {view.no_api}"
        )
    if view.no_brokers and _has_had_groups(where):
        raise HeadraceError(
            f"there is no ConsumerGroup {name} in namespace {namespace}, and brokers do not tell: {view.no_brokers}"
        )
    raise no_group(name, namespace)


def look_for(where: Where, name: str) -> GroupView:
    """What is to be seen of it, which may be nothing. Raises HeadraceError where neither side can be asked."""
    namespace = namespace_of(where)
    resource, no_api = _resource(where, name, namespace)
    # What the Kubernetes API has never heard of is worth a look, and no patience.
    timeout_ms = BRIEF_TIMEOUT_MS if resource is None and not no_api else TIMEOUT_MS
    live, no_brokers = _live(where, name, namespace, timeout_ms)
    if no_api and no_brokers:
        raise HeadraceError(f"neither the Kubernetes API nor a broker tells: {no_api}; {no_brokers}")
    return GroupView(GroupName(namespace, name), resource, live, no_api, no_brokers)


def _resource(where: Where, name: str, namespace: str) -> "tuple[ConsumerGroup | None, str]":
    """And why it cannot be said whether there is one; empty: it can."""

    async def work(client: "KubeClient", _: str) -> "ConsumerGroup | None":
        return await find_group(client, name, namespace)

    try:
        return with_kube(where.kube, work), ""
    except (HeadraceError, ModuleNotFoundError) as error:
        return None, str(error)


def _has_had_groups(where: Where) -> bool:
    """Before the first one no broker coordinates anything. True too where that is not known."""

    async def work(client: "KubeClient", _: str) -> bool:
        return any(topic.metadata.name == OFFSETS_TOPIC for topic in (await client.list(TOPICS)).items)

    try:
        return with_kube(where.kube, work)
    except HeadraceError:
        return True


def _live(where: Where, name: str, namespace: str, timeout_ms: int) -> tuple[Live | None, str]:
    try:
        with brokers_of(where, namespace, timeout_ms) as brokers:
            return brokers.live(name), ""
    except HeadraceError as error:
        return None, error.message
