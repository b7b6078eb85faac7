"""`python -m headrace_operator.uninstalling`: it takes off Headrace's finalizers before the operator goes for good.

Without the operator no program takes Headrace's finalizers off, so a Topic or a ConsumerGroup that is deleted later
would stay for ever. First the operator itself is stopped, which would put them back; then they are taken off all of its
cluster's objects, which stay as they are: so do their data. An operator that is installed again puts them on.

What is gone already is fine: the Deployment, an object, or a kind that the API server does not know any more.

Run by the chart's hook before `helm uninstall`, and by people where that did not run. Exit codes: 0, 1 with a sentence,
2 for wrong usage.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

import click

from headrace.core.errors import HeadraceError
from headrace.core.resources.metadata import DEFAULT_CLUSTER, GROUP, VERSION, Object
from headrace.kube.client import KubeClient
from headrace.kube.errors import ConflictError, NotFoundError
from headrace.kube.resource import ObjectKey, Resource, raw_resource

_PREFIX = f"{GROUP}/"
# These are raw objects: one that cannot be read as a Topic is to be let go, too.
_KINDS = (
    raw_resource(GROUP, VERSION, "topics", "Topic"),
    raw_resource(GROUP, VERSION, "consumergroups", "ConsumerGroup"),
)
_DEPLOYMENTS = raw_resource("apps", "v1", "deployments", "Deployment")
_PODS = raw_resource("", "v1", "pods", "Pod")
_POLL_S = 0.5
_log = logging.getLogger(__name__)


class StillRunningError(HeadraceError):
    code = "OperatorStillRunning"


def others(finalizers: Sequence[str]) -> list[str]:
    """Return the finalizers that are not Headrace's."""
    return [name for name in finalizers if not name.startswith(_PREFIX)]


def is_of(obj: Object, cluster: str) -> bool:
    return str((obj.get("spec") or {}).get("cluster", DEFAULT_CLUSTER)) == cluster


@click.command()
@click.option(
    "--cluster", default=DEFAULT_CLUSTER, show_default=True, help="Whose Topics and ConsumerGroups to let go."
)
@click.option("--deployment", required=True, help="The operator's; it is scaled to nothing first.")
@click.option("--namespace", help="Of the Deployment; default: the context's, or the pod's own.")
@click.option("--kubeconfig", help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=120, show_default=True, metavar="SECONDS",
              help="How long the operator may take to stop.")  # fmt: skip
def main(cluster: str, deployment: str, namespace: str | None, kubeconfig: str | None, wait_s: float) -> None:
    """Stop the operator and take Headrace's finalizers off; nothing is deleted."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        asyncio.run(_uninstall(cluster, deployment, namespace, kubeconfig, wait_s))
    except (HeadraceError, OSError) as error:
        sys.exit(f"uninstalling: {error}")


async def _uninstall(
    cluster: str, deployment: str, namespace: str | None, kubeconfig: str | None, wait_s: float
) -> None:
    async with await KubeClient.connect(kubeconfig=kubeconfig) as client:
        await stop_operator(client, deployment, namespace or client.namespace, wait_s)
        for kind in _KINDS:
            for obj in await all_of(client, kind):
                if is_of(obj, cluster):
                    await let_go(client, kind, obj)


async def stop_operator(client: KubeClient, deployment: str, namespace: str, wait_s: float) -> None:
    """Stop the operator, and wait until its last pod is gone. No Deployment is no error. Raises StillRunningError."""
    try:
        stopped = await client.patch(_DEPLOYMENTS, deployment, namespace, {"spec": {"replicas": 0}})
    except NotFoundError:
        _log.info("Deployment %s/%s is gone already", namespace, deployment)
        return
    labels = stopped["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    try:
        async with asyncio.timeout(wait_s):
            # Pods are counted because the Deployment's status does not count pods that are about to end.
            while (await client.list(_PODS, namespace=namespace, label_selector=selector)).items:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise StillRunningError(
            f"pods of Deployment {namespace}/{deployment} are still there after {wait_s:g} s; look at them with:"
            f" kubectl -n {namespace} get pods -l {selector}"
        ) from None
    _log.info("Deployment %s/%s is scaled to nothing", namespace, deployment)


async def all_of(client: KubeClient, kind: Resource[Object]) -> Sequence[Object]:
    """Return all objects; none where its CustomResourceDefinition was deleted: its objects went with it."""
    try:
        return (await client.list(kind)).items
    except NotFoundError:
        _log.info("the definition of %s is gone already", kind.kind)
        return ()


async def let_go(client: KubeClient, kind: Resource[Object], obj: Object) -> None:
    """Take Headrace's finalizers off, and no others."""
    key = ObjectKey.of(obj)
    while (kept := others(finalizers := obj["metadata"].get("finalizers") or [])) != finalizers:
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"], "finalizers": kept}
        }
        try:
            await client.patch(kind, key.name, key.namespace, patch)
        except ConflictError:
            obj = await client.get(kind, key.name, key.namespace)
        except NotFoundError:
            return
        else:
            _log.info("%s %s/%s: let go", kind.kind, key.namespace, key.name)
            return


if __name__ == "__main__":
    main()
