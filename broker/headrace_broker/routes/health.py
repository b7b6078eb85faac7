"""Is the process alive, does it take requests, and what does Prometheus want to know."""

import asyncio
from collections.abc import Iterator, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from headrace.core.errors import NotReadyError
from headrace_broker.metrics import Metrics
from headrace_broker.serving import Readiness


class HealthRoutes:
    def __init__(self, readiness: Readiness, metrics: Metrics) -> None:
        self._readiness = readiness
        self._metrics = metrics

    async def healthz(self, _: web.Request) -> web.StreamResponse:
        """GET /healthz: the event loop turns."""
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.StreamResponse:
        """GET /readyz: requests are taken. 503 with the reason while they are not."""
        if self._readiness.why_not:
            raise NotReadyError(f"this broker takes no requests: {self._readiness.why_not}")
        return web.Response(text="ok\n")

    async def metrics(self, _: web.Request) -> web.StreamResponse:
        """GET /metrics: Prometheus' text format. To write that down takes much longer than to look."""
        seen = _Seen([*self._metrics.registry.collect()])
        body = await asyncio.to_thread(generate_latest, seen)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Seen(CollectorRegistry):
    """What was there at one moment."""

    def __init__(self, families: Sequence[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
