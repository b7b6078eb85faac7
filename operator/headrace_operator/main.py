"""`headrace-operator`: the command, its options, and the order in which the operator's parts start and stop.

`/healthz` and `/metrics` are served for kubelet and Prometheus, for as long as the block of `serve_health` runs. Exit
codes: 0 after SIGTERM or SIGINT, 1 with a sentence where it cannot start, 2 for wrong usage.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlsplit

import click
from prometheus_client import CONTENT_TYPE_LATEST

from headrace.core.errors import HeadraceError
from headrace.core.limits import FINALIZER_WAIT_MS
from headrace.core.resources.lease import Whereabouts
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.units import parse_duration_ms
from headrace.http2.aiohttp_web import web
from headrace.http2.async_transport import AsyncTransport
from headrace.kube.client import KubeClient
from headrace.kube.events import EventRecorder
from headrace_operator.applier import Applier, GroupApplier
from headrace_operator.authority import Authority
from headrace_operator.broker_calls import GroupCalls, Reporter
from headrace_operator.candidate import OperatorCandidate
from headrace_operator.groups import Groups
from headrace_operator.kopf_watches import Doorbell
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observer import Observer, Scope
from headrace_operator.reconciler import Reconciler

_COMPONENT = "headrace-operator"
_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_health(host: str, port: int, reconciler: Reconciler, metrics: OperatorMetrics) -> AsyncIterator[int]:
    """Serve the health routes, and yield the port. Raises OSError where the port is taken."""
    runner = web.AppRunner(health_application(reconciler, metrics), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def health_application(reconciler: Reconciler, metrics: OperatorMetrics) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        if reconciler.healthy:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the reconcile loop stands still\n")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", exposition)])
    return app


@dataclass(frozen=True, slots=True)
class Options:
    cluster: str
    kubeconfig: str | None
    context: str | None
    namespace: str | None
    host: str
    metrics_port: int | None
    finalizer_wait_ms: int
    identity: str
    tls_ca_file: str | None


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.option("--cluster", default=DEFAULT_CLUSTER, show_default=True, help="The cluster whose Topics it serves.")
@click.option("--kubeconfig", help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--context", help="Of the kubeconfig; default: its current one.")
@click.option("--namespace", help="Where the brokers' Leases are; default: the context's namespace.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for /healthz and /metrics.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /healthz and /metrics here; 0 picks a port.")
@click.option(
    "--finalizer-wait",
    "finalizer_wait_ms",
    type=_Duration(),
    default=FINALIZER_WAIT_MS,
    show_default="30s",
    help="How long a deleted Topic waits for its brokers, at most.",
)
@click.option(
    "--tls-ca-file",
    type=click.Path(exists=True, dir_okay=False),
    help="Certificates to check the brokers' with, taken anew when they change; default: the system's.",
)
@click.option(
    "--identity",
    default=lambda: f"{socket.gethostname()}-{os.getpid()}",
    show_default="host and process id",
    help="Of this process among the operators of the cluster, of which one acts at a time.",
)
def main(**given: Any) -> None:
    """Turn Topics into partitions on live brokers, and say in their status how they are."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # kopf writes a traceback for every lost connection of every watch; the error that ends it is logged in one line
    # elsewhere.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    try:
        asyncio.run(operate(Options(**given)))
    except (HeadraceError, OSError) as error:
        sys.exit(f"{_COMPONENT}: {error}")


async def operate(options: Options) -> None:
    """Run until SIGTERM or SIGINT. Raises KubeConfigError, and OSError where the port is taken."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    authority = Authority(options.tls_ca_file)
    async with (
        await KubeClient.connect(kubeconfig=options.kubeconfig, context=options.context) as client,
        AsyncTransport(authority.take_on()) as transport,
    ):
        server = client.credentials.server
        in_pod = urlsplit(server).hostname == os.environ.get("KUBERNETES_SERVICE_HOST", "").lower()
        whereabouts = Whereabouts.of_operator(server, in_pod=in_pod)
        namespace = options.namespace or client.namespace
        scope = Scope(options.cluster, namespace, options.finalizer_wait_ms, whereabouts)
        metrics = OperatorMetrics()
        candidate = OperatorCandidate(client, scope, options.identity, Random())
        metrics.watch_turn(scope.cluster, lambda: candidate.acts)
        recorder = EventRecorder(client, _COMPONENT)
        applier = Applier(client, recorder, metrics.landed)
        reconciler = Reconciler(
            Observer(client, scope), Reporter(transport), applier, metrics, Random(), acts=lambda: candidate.acts
        )
        group_applier = GroupApplier(client, recorder, lambda: candidate.acts, reconciler.idle)
        groups = Groups(client, scope, group_applier, GroupCalls(transport), metrics.groups)
        reconciler.show_to(groups.show)
        doorbell = Doorbell(
            client.credentials, scope, ring=reconciler.ring, lease_seen=reconciler.lease_seen, rng=Random()
        )
        async with AsyncExitStack() as stack:
            if options.metrics_port is not None:
                port = await stack.enter_async_context(
                    serve_health(options.host, options.metrics_port, reconciler, metrics)
                )
                _log.info("/healthz and /metrics on http://%s:%d", options.host, port)
            doorbell.start()
            stack.push_async_callback(doorbell.stop)
            _log.info("serving cluster %s, brokers in namespace %s", scope.cluster, scope.lease_namespace)
            loops = {
                "reconcile": reconciler.run(),
                "groups": groups.run(lambda: candidate.acts),
                "candidate": candidate.run(reconciler.ring),
                "authority": authority.keep_fresh(transport.trust),
            }
            await _until(stop, loops)
            await candidate.resign()
        _log.info("stopped")


async def _until(stop: asyncio.Event, loops: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run the loops, by their names, until `stop`; a loop that fails ends the process."""
    tasks = {asyncio.create_task(loop, name=name) for name, loop in loops.items()}
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, pending = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        await task


if __name__ == "__main__":
    main()
