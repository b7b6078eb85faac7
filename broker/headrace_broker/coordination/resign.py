"""Giving up every leadership at once, when the disk failed: best effort, the last thing a broker does."""

import asyncio
import logging

from headrace.core.limits import API_REQUEST_TIMEOUT_MS
from headrace.core.replication.seats import resign
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import Seat
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError
from headrace.kube.resource import PARTITION_SETS
from headrace_broker.coordination.cluster_view import ClusterView

_log = logging.getLogger(__name__)


async def resign_all(client: KubeClient, view: ClusterView, me: Seat) -> None:
    """Write every set that this broker leads in, once. What does not land the operator finds out from the Lease."""
    try:
        async with asyncio.timeout(API_REQUEST_TIMEOUT_MS / 1000):
            for partition_set in view.sets():
                await _resign(client, partition_set, me)
    except TimeoutError:
        _log.warning("not every leadership was given up in time")


async def _resign(client: KubeClient, partition_set: PartitionSet, me: Seat) -> None:
    resigned = [resign(state, me) for state in partition_set.partitions]
    changed = [state for state in resigned if state is not None]
    if not changed:
        return
    try:
        await client.replace(PARTITION_SETS, partition_set.with_partitions(*changed).to_object())
    except ApiError as error:
        # The other sets are tried all the same: a conflict in one says nothing of them.
        _log.warning("the leaderships in %s are not given up: %s", partition_set.metadata.name, error)
