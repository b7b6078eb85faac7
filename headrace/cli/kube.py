"""The Kubernetes API for commands: which one, and a connection to it for as long as the command runs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.client.transport.discovery import running_dev
from headrace.core.errors import LocalError

if TYPE_CHECKING:
    from headrace.kube.client import KubeClient

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """As the user gave them; None where he did not."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None


def with_kube(options: KubeOptions, work: "Callable[[KubeClient, str], Awaitable[T]]") -> T:
    """Run `work(client, namespace)` to its end."""
    import asyncio

    from headrace.kube.client import KubeClient

    async def run() -> T:
        client = await KubeClient.connect(kubeconfig=_kubeconfig(options), context=options.context)
        async with client:
            return await work(client, options.namespace or client.namespace)

    return asyncio.run(run())


def context_namespace(options: KubeOptions) -> str | None:
    """What `with_kube` would give its work, without asking anybody; None where there is no kubeconfig."""

    async def work(_: "KubeClient", namespace: str) -> str:
        return namespace

    try:
        return with_kube(options, work)
    except (LocalError, ModuleNotFoundError):
        return options.namespace


def _kubeconfig(options: KubeOptions) -> str | None:
    """The user's choice, else that of the running dev; None leaves it to KUBECONFIG and the default place."""
    if options.kubeconfig is not None or options.context is not None:
        return options.kubeconfig
    state = running_dev()
    return None if state is None else str(state["kubeconfig"])
