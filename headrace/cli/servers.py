"""The servers that a command talks to: the Kubernetes API, and brokers with the login and the namespace for them.

Brokers are searched for in this order: --server, --kubeconfig or --context, HEADRACE_SERVER, the running `headrace
dev`, the current kubeconfig: an option stands before any variable. With a kubeconfig the brokers are found by their
Leases, and reached by the API server's proxy to their bootstrap Service, with the kubeconfig's credentials: nothing but
the API server needs to be reachable. Every dead end is one sentence with the remedy.

`with_kube` connects to the Kubernetes API for as long as one command works with it. Called by every command.
"""

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from headrace.client.transport.discovery import SERVER_VARIABLE, NoServerError, Servers, find_servers, running_dev
from headrace.core.errors import LocalError
from headrace.core.resources.kubernetes_objects import BOOTSTRAP_PORT, BOOTSTRAP_PORT_NAME, bootstrap_service
from headrace.core.resources.lease import CLUSTER_LABEL, LEASE_PREFIX, BrokerLease

if TYPE_CHECKING:
    from headrace.kube.client import KubeClient
    from headrace.kube.credentials import Credentials


T = TypeVar("T")
_DEFAULT_NAMESPACE = "default"
_NOTHING_SAID = "no server is given and no `headrace dev` is running"
_NAME_A_BROKER = f"name a broker with --server or {SERVER_VARIABLE}, for example http://127.0.0.1:{BOOTSTRAP_PORT}"


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """The options as the user gave them; None for what was not given."""

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
    """Return the namespace that `with_kube` would use, without a request; None where there is no kubeconfig."""

    async def work(_: "KubeClient", namespace: str) -> str:
        return namespace

    try:
        return with_kube(options, work)
    except (LocalError, ModuleNotFoundError):
        return options.namespace


def _kubeconfig(options: KubeOptions) -> str | None:
    """Return the user's choice, else that of the running dev; None leaves it to KUBECONFIG and the default place."""
    if options.kubeconfig is not None or options.context is not None:
        return options.kubeconfig
    state = running_dev()
    return None if state is None else str(state["kubeconfig"])


@dataclass(frozen=True, slots=True)
class Found:
    server: Servers
    namespace: str
    """The namespace of the topic: the one that was asked for, else the kubeconfig context's where that decides, else
    `default`."""


@dataclass(frozen=True, slots=True)
class BrokerService:
    """The brokers of one cluster, by their Leases."""

    namespace: str
    cluster: str
    scheme: str

    @property
    def service(self) -> str:
        return bootstrap_service(self.cluster)

    def proxy_url(self, api_server: str) -> str:
        """Return the URL of any ready broker through the API server's proxy."""
        scheme = "https:" if self.scheme == "https" else ""
        target = quote(f"{scheme}{self.service}:{BOOTSTRAP_PORT_NAME}", safe=":")
        return f"{api_server.rstrip('/')}/api/v1/namespaces/{quote(self.namespace, safe='')}/services/{target}/proxy"


def find(
    server: str | None, ca_file: str | None, kubeconfig: str | None, context: str | None, namespace: str | None
) -> Found:
    """Find the brokers. Raises LocalError with the remedy, and ApiError where the API server is asked and refuses."""
    if server:
        return Found(find_servers(server, ca_file), namespace or _context_namespace(kubeconfig, context))
    if kubeconfig or context:
        return _run(_find_by_leases(kubeconfig, context, namespace))
    if os.environ.get(SERVER_VARIABLE):
        return Found(find_servers(None, ca_file), namespace or _DEFAULT_NAMESPACE)
    dev = running_dev()
    if dev is not None:
        return Found(find_servers(None, ca_file), namespace or _namespace_of(Path(dev["kubeconfig"])))
    return _find_by_default(namespace)


def _find_by_default(namespace: str | None) -> Found:
    """Find them by the current kubeconfig, which the user did not name: if there is none, the error is about a missing
    server."""
    from headrace.kube.errors import ApiUnavailableError, NoKubeConfigError

    try:
        return _run(_find_by_leases(None, None, namespace))
    except (NoKubeConfigError, ModuleNotFoundError):
        raise NoServerError(
            f"{_NOTHING_SAID}: start `headrace dev`, or {_NAME_A_BROKER}, or a cluster with --kubeconfig"
        ) from None
    except ApiUnavailableError as error:
        raise NoServerError(
            f"{_NOTHING_SAID}, and the current kubeconfig's API server cannot be asked for brokers ({error.message}):"
            f" start `headrace dev`, or {_NAME_A_BROKER}"
        ) from error


def _namespace_of(kubeconfig: Path) -> str:
    """Return the namespace of its current context, as `headrace topic` and kubectl have it; read without the Kubernetes
    client."""
    import yaml

    try:
        document = yaml.safe_load(kubeconfig.read_bytes())
        contexts = {each["name"]: each["context"] for each in document["contexts"]}
        return str(contexts[document["current-context"]].get("namespace") or _DEFAULT_NAMESPACE)
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return _DEFAULT_NAMESPACE


def _context_namespace(kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace with an explicit server: that of the context, if one was named as well."""
    if not (kubeconfig or context):
        return _DEFAULT_NAMESPACE
    from headrace.kube.credentials import load_credentials

    return _run(load_credentials(kubeconfig, context)).namespace


def _run(question: Coroutine[Any, Any, T]) -> T:
    import asyncio  # a server that is given needs none

    return asyncio.run(question)


async def _find_by_leases(kubeconfig: str | None, context: str | None, namespace: str | None) -> Found:
    from headrace.kube.client import KubeClient
    from headrace.kube.credentials import Authorization

    async with await KubeClient.connect(kubeconfig=kubeconfig, context=context) as client:
        credentials = client.credentials
        _check_reachable(credentials)
        brokers = await _brokers_of(client)
        await _check_service(client, brokers)
        servers = Servers(
            urls=(brokers.proxy_url(credentials.server),),
            headers=Authorization(kubeconfig, context, await credentials.authorization()),
            ssl_context=credentials.ssl_context(),
            reaches_leaders=False,
        )
        return Found(servers, namespace or client.namespace)


def _check_reachable(credentials: "Credentials") -> None:
    if credentials.detour is not None:
        raise LocalError(
            f"the kubeconfig reaches {credentials.server} by {credentials.detour}, which records cannot take:"
            f" run `kubectl port-forward` to a broker and {_NAME_A_BROKER}"
        )


async def _brokers_of(client: "KubeClient") -> BrokerService:
    """Return the brokers in the context's namespace, else those in any."""
    from headrace.kube.errors import ForbiddenError

    try:
        leases = await _leases(client, client.namespace) or await _leases(client, None)
    except ForbiddenError as error:
        if error.reason == "Unauthorized":
            raise LocalError(
                f"{client.credentials.server} does not know the kubeconfig's user (Unauthorized): log in there again,"
                f" choose another context with --context, or {_NAME_A_BROKER}"
            ) from error
        raise LocalError(
            f"no brokers of {client.credentials.server} are to be seen ({error.message}): choose a context whose"
            f" namespace is theirs with --context, or {_NAME_A_BROKER}"
        ) from error
    return only_cluster(leases, client.credentials.server)


async def _leases(client: "KubeClient", namespace: str | None) -> tuple[BrokerLease, ...]:
    """Return the Leases. Raises ForbiddenError for all namespaces only: that of the context is only tried."""
    from headrace.kube.errors import ForbiddenError
    from headrace.kube.resource import LEASES

    try:
        # Every node of a cluster has a Lease, too.
        return (await client.list(LEASES, namespace=namespace, label_selector=CLUSTER_LABEL)).items
    except ForbiddenError:
        if namespace is None:
            raise
        return ()


def only_cluster(leases: Iterable[BrokerLease], api_server: str) -> BrokerService:
    """Return the one cluster whose Leases these are. Raises LocalError where there is none, or more than one."""
    schemes = {(lease.metadata.namespace, lease.cluster): lease.url.partition(":")[0] for lease in leases}
    if not schemes:
        raise LocalError(
            f"no Headrace runs in the cluster of {api_server}: no namespace has a Lease {LEASE_PREFIX}0;"
            f" install it there, start `headrace dev`, choose another cluster with --context, or {_NAME_A_BROKER}"
        )
    if len(schemes) > 1:
        listed = ", ".join(f"{cluster} in namespace {namespace}" for namespace, cluster in sorted(schemes))
        raise LocalError(
            f"more than one Headrace runs in the cluster of {api_server} ({listed}): choose a context whose namespace"
            f" is that of one alone with --context, or {_NAME_A_BROKER}"
        )
    ((namespace, cluster), scheme) = next(iter(schemes.items()))
    return BrokerService(namespace, cluster, scheme)


async def _check_service(client: "KubeClient", brokers: BrokerService) -> None:
    """Explain a missing Service in a sentence; a user who may not read Services may still use them."""
    from headrace.kube.errors import ForbiddenError, NotFoundError
    from headrace.kube.resource import raw_resource

    services = raw_resource("", "v1", "services", "Service")
    try:
        await client.get(services, brokers.service, brokers.namespace)
    except ForbiddenError:
        return
    except NotFoundError as error:
        raise LocalError(
            f"brokers are in namespace {brokers.namespace} of {client.credentials.server}, but no Service"
            f" {brokers.service} leads to them: create it, or run `kubectl port-forward -n {brokers.namespace}`"
            f" to a broker and {_NAME_A_BROKER}"
        ) from error
