"""Makes the topics of staged commits when somebody wants to commit for the first time. One task per broker."""

import asyncio
import logging

from headrace.core.limits import INTERNAL_REPLICAS_MAX, RECONCILE_BACKOFF_MAX_MS
from headrace.core.resources.internal_topics import commits_manifest, staging_manifest
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError
from headrace.kube.resource import TOPICS
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.staging.coordinators import WriterCoordinators

_log = logging.getLogger(__name__)


class Making:
    def __init__(self, client: KubeClient, view: ClusterView, writers: WriterCoordinators) -> None:
        self._client = client
        self._view = view
        self._writers = writers

    async def run(self) -> None:
        """Until it is cancelled. What cannot be made is tried again while somebody asks."""
        while True:
            await self._writers.wanted.wait()
            self._writers.wanted.clear()
            try:
                await self._make()
            except ApiError as error:
                _log.warning("the topics of staged commits cannot be made: %s", error)
            await asyncio.sleep(RECONCILE_BACKOFF_MAX_MS / 1000)

    async def _make(self) -> None:
        replicas = min(INTERNAL_REPLICAS_MAX, max(1, len(self._view.ready_seats(monotonic_ms()))))
        namespace, cluster = self._writers.topic_name.namespace, self._view.cluster
        for manifest in (
            staging_manifest(namespace, cluster, replicas),
            commits_manifest(namespace, cluster, replicas),
        ):
            name = manifest["metadata"]["name"]
            try:
                await self._client.create(TOPICS, manifest)
            except AlreadyExistsError:
                continue  # another broker was asked as well
            _log.info("made the topic %s/%s with %d replicas: somebody commits", namespace, name, replicas)
