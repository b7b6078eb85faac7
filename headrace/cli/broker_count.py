"""How many brokers a cluster is meant to have, for who does not say how many replicas a topic is to have.

What is meant counts, not what runs just now: a broker that is away for a minute must not cost a topic a replica for
good.
"""

from typing import TYPE_CHECKING

from headrace.core.errors import LocalError
from headrace.core.resources.lease import CLUSTER_LABEL

if TYPE_CHECKING:
    from headrace.kube.client import KubeClient

REPLICAS_DEFAULT = 3
"""Of the Topic resource itself."""


async def replicas_for(client: "KubeClient", cluster: str, wanted: int | None) -> int:
    """`wanted`, or REPLICAS_DEFAULT, but no more than there are to be brokers; where that cannot be known, the default.

    Raises LocalError where more are wanted than there are to be brokers: such a topic would never be ready.
    """
    from headrace.kube.errors import ApiError

    try:
        brokers = await _asked_for(client, cluster) or await _ever_seen(client, cluster)
    except ApiError:
        brokers = 0
    if wanted is None:
        return min(REPLICAS_DEFAULT, brokers) if brokers else REPLICAS_DEFAULT
    if brokers and wanted > brokers:
        there_are = "is 1 broker" if brokers == 1 else f"are {brokers} brokers"
        raise LocalError(
            f"{wanted} replicas of each partition need as many brokers, and in cluster {cluster} there {there_are}:"
            f" give --replicas {brokers}, or start more with kubectl scale statefulset {cluster} --replicas {wanted}"
        )
    return wanted


async def _asked_for(client: "KubeClient", cluster: str) -> int:
    """By the StatefulSet, which is named as its cluster; 0 where there is none, or more than one."""
    from headrace.kube.resource import STATEFUL_SETS, raw_resource

    raw = raw_resource(STATEFUL_SETS.group, STATEFUL_SETS.version, STATEFUL_SETS.plural, STATEFUL_SETS.kind)
    found = [each for each in (await client.list(raw)).items if each["metadata"]["name"] == cluster]
    return STATEFUL_SETS.parse(found[0]).replicas if len(found) == 1 else 0


async def _ever_seen(client: "KubeClient", cluster: str) -> int:
    """By the brokers' Leases, which stay."""
    from headrace.kube.resource import LEASES

    return len((await client.list(LEASES, label_selector=f"{CLUSTER_LABEL}={cluster}")).items)
