"""`/healthz` and `/metrics` of the operator, for kubelet and Prometheus. Runs as long as its `async with` block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from headrace_operator.metrics import Metrics
from headrace_operator.reconciler import Reconciler


@asynccontextmanager
async def serving(host: str, port: int, reconciler: Reconciler, metrics: Metrics) -> AsyncIterator[int]:
    """Yields the port that it listens on. Raises OSError where the port is taken."""
    runner = web.AppRunner(application(reconciler, metrics), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def application(reconciler: Reconciler, metrics: Metrics) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        if reconciler.healthy:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the reconcile loop stands still\n")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", exposition)])
    return app
