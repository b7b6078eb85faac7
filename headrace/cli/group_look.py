"""Looking at a consumer group from both sides, the Kubernetes API and the brokers, either of which may be away."""

from typing import TYPE_CHECKING

from headrace.cli.group_brokers import GroupBrokers, Live
from headrace.cli.group_view import GroupView
from headrace.cli.groups_api import find_group, no_group
from headrace.cli.kube import context_namespace, with_kube
from headrace.cli.options import Where
from headrace.core.errors import HeadraceError
from headrace.core.groups.identity import GroupName

if TYPE_CHECKING:
    from headrace.core.resources.consumer_group import ConsumerGroup
    from headrace.kube.client import KubeClient


def namespace_of(where: Where) -> str:
    """Of groups: as `headrace topic` has it, where there is a kubeconfig; else as commands for records."""
    return context_namespace(where.kube) or where.find().namespace


def brokers_of(where: Where, namespace: str) -> GroupBrokers:
    """Raises HeadraceError with the remedy where nothing leads to brokers."""
    return GroupBrokers(where.find(), namespace)


def look(where: Where, name: str) -> GroupView:
    """Raises LocalError where there is no such group, and HeadraceError where neither side can be asked."""
    view = look_for(where, name)
    if view.resource is not None or view.live is not None:
        return view
    if not view.missing:
        raise no_group(name, view.name.namespace)
    raise HeadraceError(f"no group {name} is to be seen in namespace {view.name.namespace}, and {view.missing[0]}")


def look_for(where: Where, name: str) -> GroupView:
    """What is to be seen of it, which may be nothing. Raises HeadraceError where neither side can be asked."""
    namespace = namespace_of(where)
    resource, no_api = _resource(where, name, namespace)
    live, no_brokers = _live(where, name, namespace)
    if no_api is not None and no_brokers is not None:
        raise HeadraceError(f"neither the Kubernetes API nor a broker can be asked: {no_api}; {no_brokers}")
    missing = []
    if no_api is not None:
        missing.append(f"the Kubernetes API is away, settings and conditions are not known: {no_api}")
    if no_brokers is not None:
        missing.append(
            f"the brokers do not tell, members are those that the Kubernetes API saw last and offsets are not known:"
            f" {no_brokers}"
        )
    return GroupView(GroupName(namespace, name), resource, live, tuple(missing))


def _resource(where: Where, name: str, namespace: str) -> "tuple[ConsumerGroup | None, str | None]":
    """And why it cannot be said whether there is one."""

    async def work(client: "KubeClient", _: str) -> "ConsumerGroup | None":
        return await find_group(client, name, namespace)

    try:
        return with_kube(where.kube, work), None
    except (HeadraceError, ModuleNotFoundError) as error:
        return None, str(error)


def _live(where: Where, name: str, namespace: str) -> tuple[Live | None, str | None]:
    try:
        with brokers_of(where, namespace) as brokers:
            return brokers.live(name), None
    except HeadraceError as error:
        return None, error.message
