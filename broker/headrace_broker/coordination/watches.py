"""Keeps the cluster view up to date: one endless watch per kind, for the whole life of the process."""

from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.kube.client import KubeClient
from headrace.kube.resource import LEASES, PARTITION_SETS, TOPICS
from headrace.kube.watch import Changed, Listed, Removed, watch
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordination.cluster_view import ClusterView


def watches(client: KubeClient, view: ClusterView, lease_namespace: str) -> list[Coroutine[Any, Any, None]]:
    """The three of them, each to be run as a task until it is cancelled."""
    return [
        _follow_topics(client, view),
        _follow_sets(client, view),
        _follow_leases(client, view, lease_namespace),
    ]


async def _follow_topics(client: KubeClient, view: ClusterView) -> None:
    async with aclosing(watch(client, TOPICS)) as events:
        async for event in events:
            match event:
                case Listed(items):
                    view.list_topics(items)
                case Changed(item):
                    view.put_topic(item)
                case Removed(item):
                    view.remove_topic(item)


async def _follow_sets(client: KubeClient, view: ClusterView) -> None:
    async with aclosing(watch(client, PARTITION_SETS)) as events:
        async for event in events:
            match event:
                case Listed(items):
                    view.list_sets(items)
                case Changed(item):
                    view.put_set(item)
                case Removed(item):
                    view.remove_set(item)


async def _follow_leases(client: KubeClient, view: ClusterView, namespace: str) -> None:
    selector = f"{CLUSTER_LABEL}={view.cluster}"
    async with aclosing(watch(client, LEASES, namespace=namespace, label_selector=selector)) as events:
        async for event in events:
            match event:
                case Listed(items):
                    view.list_leases(items, monotonic_ms())
                case Changed(item):
                    view.put_lease(item, monotonic_ms())
                case Removed(item):
                    view.remove_lease(item)
