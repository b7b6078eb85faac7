"""The life of a broker process: the order in which its parts start, and in which they stop.

    lock the data ──> listen (503) ──> take an incarnation ──> watch ──> recover, claim ──> ready
    asked to stop ──> not ready, draining ──> hand over ──> finish requests ──> close the logs ──> say that the stop was
                                               clean ──> 0          asked again ──> hand nothing more over
    asked to stop before it has an incarnation ──> 0
    a log is damaged ──> as if asked to stop, but a new life begins then, in the same process (`Verification`)
    disk failed   ──> not ready ──> give up every seat ──> stop ──> 1         superseded ──> stop at once ──> 1

The port is taken before the Lease, because the Lease says where this broker listens, and after the certificate. The
incarnation is on disk before it is in the Lease. While the API server is away, the start waits for it
(`cluster.lease`).
"""

import asyncio
import gc
import importlib
import logging
import resource
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from headrace.core.browsers import host_name, is_loopback_name
from headrace.core.errors import HeadraceError, StorageFailedError
from headrace.core.limits import DRAIN_TIMEOUT_MS
from headrace.core.log.recovery import DiskFacts
from headrace.core.replication.leadership import Contact
from headrace.core.resources.internal_topics import InternalTopics
from headrace.core.resources.lease import Doubts, Whereabouts
from headrace.core.types import Seat
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.memory import keep_large_buffers
from headrace.http2.server import Server, Terms, serve
from headrace.kube.client import KubeClient
from headrace_broker.admission import Admission, memory_limit_bytes
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.lease import LeaseHolder, vacant_lease
from headrace_broker.cluster.locator import Locator
from headrace_broker.cluster.membership import ClusterMembership, LocalParts
from headrace_broker.cluster.reports import LogReports
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.consumer_groups import GroupReporting
from headrace_broker.coordinators.coordinators import CommitTopicMaker, GroupCoordinators, WriterCoordinators
from headrace_broker.coordinators.group_lag import GroupLags
from headrace_broker.coordinators.writer_coordinator import PartitionAccess
from headrace_broker.ending import DiskFailedError, Ending, StoppedEarlyError, cancel
from headrace_broker.http.app import ALWAYS_ANSWERED, Components, Readiness, broker_app
from headrace_broker.http.callers import Callers
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.uploads import Questions
from headrace_broker.metrics import Metrics
from headrace_broker.partition.actions import PartitionActions
from headrace_broker.partition.compaction import Compaction, CompactionProcess
from headrace_broker.partition.fetch import OpenWatches
from headrace_broker.partition.holdings import Holdings
from headrace_broker.partition.housekeeping import Housekeeping, Verification
from headrace_broker.partition.opening import Opener
from headrace_broker.partition.partition import Host
from headrace_broker.replication.follower_streams import FollowerStreams
from headrace_broker.replication.open_streams import ServedStreams, StreamMetrics
from headrace_broker.sessions.open_sessions import OpenSessions
from headrace_broker.settings import Settings, TlsFiles
from headrace_broker.stop_signals import StopSignals
from headrace_broker.storage.data_directory import DataDirectory, DataDirectoryInUseError, keep_private
from headrace_broker.tls import TlsIdentity, TlsSource, Transports, WatchedFiles, WatchedSecret

PEER_KEY_BYTES = 24
"""Random ones, by which brokers know each other's requests."""
HURRY_TIMEOUT_MS = 1_000
"""The time that requests in flight get when a broker must not go on."""
DATA_DIRECTORY_WAIT_MS = 5_000
"""The time that a broker waits at its start for another one to let go of its data directory.

One whose Pod was deleted by force may still be ending when the next one begins on the same machine.
"""


_log = logging.getLogger(__name__)
_LOOK_S = 0.5


class CannotListenError(HeadraceError):
    """The address is taken or not this machine's."""

    code = "CannotListen"


async def run(settings: Settings, signals: StopSignals, *, again: bool = False) -> bool:
    """Live one life; True where another one is to begin at once. Raises HeadraceError where it cannot start or go on.

    `again`: the one before has ended so.
    """
    keep_large_buffers()
    _allow_open_files()
    data = await _opened(settings.data, signals)
    if data is None:
        return False
    clean = False
    try:
        async with await KubeClient.connect(kubeconfig=settings.kubeconfig) as client, AsyncTransport() as transport:
            broker = _Broker(settings, data, client, transport)
            with signals.passed_to(broker.ending.ask):
                clean = await broker.live(again=again)
            return broker.ending.returns
    finally:
        await asyncio.to_thread(data.close, clean=clean)


async def _opened(path: Path, signals: StopSignals) -> DataDirectory | None:
    """Open the data directory; None where the broker is asked to stop before.

    Raises DataDirectoryInUseError where another broker does not let go.
    """
    keep_private(path)
    deadline_ms = monotonic_ms() + DATA_DIRECTORY_WAIT_MS
    while not signals.asked:
        try:
            return await asyncio.to_thread(DataDirectory.open, path)
        except DataDirectoryInUseError as error:
            if monotonic_ms() >= deadline_ms:
                raise
            _log.info("waiting: %s", error)
            await asyncio.sleep(_LOOK_S)
    return None


def _allow_open_files() -> None:
    """Allow as many as the system lets us have: a partition keeps 4 open, a closed segment 3; usually it is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Broker:
    """The parts that a broker has before it has an incarnation, and the order in which it starts and stops."""

    def __init__(self, settings: Settings, data: DataDirectory, client: KubeClient, transport: AsyncTransport) -> None:
        self.settings = settings
        self.data = data
        self.client = client
        self.namespace = settings.namespace or client.namespace
        self.ending = Ending()
        self.metrics = Metrics()
        self.disk = BrokerDisk(data.path, settings.disk_limits, self.metrics, self.ending.fail)
        self.view = ClusterView(settings.cluster)
        self.holdings = Holdings(data, self.metrics)
        self.metrics.watch_partitions(self.holdings.gauges)
        self.reports = LogReports(self.holdings, self.view, data)
        self.transports = Transports(transport)
        self.identity = self._identity()
        self.memory_bytes = settings.memory_bytes or memory_limit_bytes()
        self._peer_key = secrets.token_urlsafe(PEER_KEY_BYTES)
        self.components = self._components(
            Proxy(transport, self._peer_key), Admission.for_memory(self.memory_bytes), self.metrics.registry
        )

    def _identity(self) -> TlsIdentity | None:
        settings = self.settings
        if settings.tls is None:
            return None
        if isinstance(settings.tls, TlsFiles):
            source: TlsSource = WatchedFiles(settings.tls.certificate, settings.tls.key, settings.tls.authority)
        else:
            source = WatchedSecret(self.client, self.namespace, settings.tls.name)
        host = urlsplit(settings.advertised_url).hostname or settings.host
        return TlsIdentity(source, host, self.transports, self.metrics.registry)

    def _components(self, proxy: Proxy, admission: Admission, registry: CollectorRegistry) -> Components:
        me, view, holdings, namespace = self.settings.broker, self.view, self.holdings, self.namespace
        locator, callers = Locator(me, view, holdings), Callers(view, admission)
        access = PartitionAccess(locator.locate, proxy)
        return Components(
            me=me,
            view=view,
            partitions=holdings,
            locator=locator,
            internal=InternalTopics(namespace),
            reports=self.reports,
            proxy=proxy,
            metrics=self.metrics,
            readiness=Readiness(),
            admission=admission,
            callers=callers,
            questions=Questions(callers, admission.control_bodies),
            watches=OpenWatches(),
            groups=GroupCoordinators(me, namespace, view, holdings),
            writers=WriterCoordinators(me, namespace, view, holdings, access, registry),
            sessions=OpenSessions.for_memory(admission.bodies.limit_bytes),
            served_streams=ServedStreams(StreamMetrics(registry), self.settings.catch_up_rate),
        )

    async def live(self, *, again: bool) -> bool:
        """Live, and stop; True where the stop was clean: all that is held is on disk."""
        try:
            return await self._live(again=again)
        except StoppedEarlyError:
            return self.data.stopped_cleanly  # No log was opened since.

    async def _live(self, *, again: bool) -> bool:
        if self.identity is not None:
            await self.ending.unless_asked(self.identity.take_on())
        server = await self._listen()
        try:
            lease = self._lease(server.port)
            me, found = await self._begin_life(lease)
            life = _Life(self, lease, me, found, again=again)
            await life.serve(server)
        except BaseException:
            self.components.readiness.why_not = "it must stop"
            await server.close(HURRY_TIMEOUT_MS / 1000)
            raise
        clean = await life.close()
        await lease.try_announce(clean=clean)
        return clean

    async def _listen(self) -> Server:
        settings = self.settings
        try:
            tls = self.identity.server_context if self.identity is not None else None
            app, terms = broker_app(self.components, self._own_names()), Terms(always=ALWAYS_ANSWERED)
            server = await serve(app, host=settings.host, port=settings.port, ssl_context=tls, terms=terms)
        except OSError as error:
            raise CannotListenError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; give another --port"
            ) from error
        self.metrics.open_connections.set_function(lambda: server.connection_count)
        self.metrics.watch_load(self.components.admission, server)
        return server

    def _own_names(self) -> frozenset[str] | None:
        """The names of a broker that listens on loopback alone: a page whose name leads there is no client."""
        if not is_loopback_name(self.settings.host):
            return None
        return frozenset({host_name(urlsplit(self.settings.advertised_url).netloc)})

    def _lease(self, port: int) -> LeaseHolder:
        settings = self.settings
        scheme = "http" if self.identity is None else "https"
        url = settings.advertised_url or f"{scheme}://{settings.host}:{port}"
        vacant = vacant_lease(settings.broker, self.namespace, settings.cluster, url, settings.zone)
        _log.info("broker %d listens on port %d, advertised as %s", settings.broker, port, url)
        self.view.doubts = Doubts(Whereabouts.of_broker(vacant))
        return LeaseHolder(self.client, self.metrics, replace(vacant, peer_key=self._peer_key))

    async def _begin_life(self, lease: LeaseHolder) -> tuple[Seat, DiskFacts]:
        data = self.data
        on_disk = await asyncio.to_thread(data.read_incarnation)
        taking = lease.acquire(on_disk, data.write_incarnation, data.epochs_seen.read())
        taken = await self.ending.unless_asked(taking)
        disk = DiskFacts(
            incarnation=on_disk,
            known_incarnation=taken.known,
            stopped_cleanly=data.stopped_cleanly,
            same_boot=data.same_boot,
        )
        _log.info("broker %d begins incarnation %d", self.settings.broker, taken.incarnation)
        await self.holdings.load()
        return Seat(self.settings.broker, taken.incarnation), disk


class _Life:
    """The parts that a broker has once it has an incarnation."""

    def __init__(self, broker: _Broker, lease: LeaseHolder, me: Seat, found: DiskFacts, *, again: bool) -> None:
        view, holdings, metrics, registry = broker.view, broker.holdings, broker.metrics, broker.metrics.registry
        settings, parts = broker.settings, broker.components
        self._broker = broker
        self._me = me
        self._streams = FollowerStreams(me, view, broker.transports, parts.served_streams.metrics)
        host = Host(metrics, broker.disk, self._streams, lambda: Contact(monotonic_ms(), lease.renewed_ms))
        opener = Opener(broker.data, found, me, host)
        self._actions = PartitionActions(holdings, broker.data, opener, metrics, view.changed.set)
        here = LocalParts(holdings, self._actions, opener, broker.data.epochs_seen, broker.disk, registry)
        self._membership = ClusterMembership(me, broker.client, view, lease, here, broker.namespace)
        self._verification = Verification(me, holdings, view, self._membership.warner.warn, registry)
        if again:
            self._verification.be_patient()
        self._housekeeping = Housekeeping(holdings, self._actions, broker.disk, settings.housekeeping_interval_ms)
        self._compaction = Compaction(
            holdings,
            CompactionProcess(),
            registry,
            interval_ms=settings.housekeeping_interval_ms,
            memory_bytes=broker.memory_bytes,
        )
        lags = GroupLags(me.broker, view, holdings, parts.proxy, parts.groups)
        self._group_reporting = GroupReporting(me.broker, broker.client, view, parts.groups, lags, registry)
        parts.groups.listeners += self._group_reporting.listeners
        self._topic_maker = CommitTopicMaker(broker.client, view, parts.writers)

    async def serve(self, server: Server) -> None:
        """Serve until it is asked to stop and every request is answered. Raises SupersededError, DiskFailedError."""
        self._broker.reports.seat = self._me
        tasks = [asyncio.create_task(each) for each in self._work()]
        ending, parts = self._broker.ending, self._broker.components
        try:
            await ending.wait(ending.asked, tasks)
            await self._drain(server, tasks)
            self._verification.end()
        except (DiskFailedError, StorageFailedError) as error:
            await cancel(tasks)
            await self._membership.give_up(error.message)
            raise
        finally:
            await cancel(tasks)
            await parts.groups.local.close()
            await parts.writers.local.close()
            await self._membership.close()
            await self._streams.close()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to be run, each as a task until it is cancelled."""
        broker, parts = self._broker, self._broker.components
        return [
            *self._membership.work(),
            self._housekeeping.checkpoint(),
            self._housekeeping.clean(),
            self._compaction.run(),
            parts.groups.local.run(),
            parts.writers.local.run(),
            self._topic_maker.run(),
            *self._group_reporting.work(),
            broker.disk.watch(),
            *self._verification.work(broker.ending.mend),
            *([broker.identity.keep_fresh()] if broker.identity is not None else []),
            self._become_ready(),
        ]

    async def _become_ready(self) -> None:
        await self._membership.settled.wait()
        self._broker.components.readiness.why_not = ""
        _log.info("broker %d is ready", self._me.broker)
        # The first large batch needs it, and would hold up the loop while it is loaded.
        await asyncio.to_thread(importlib.import_module, "numpy")
        # Modules and partitions stay: whenever the collector looked at all of them, the loop stood still for 15 ms.
        gc.collect()
        gc.freeze()

    async def _drain(self, server: Server, tasks: Sequence[asyncio.Task[None]]) -> None:
        ending, parts = self._broker.ending, self._broker.components
        parts.readiness.why_not = "it drains"
        handover = asyncio.create_task(self._membership.hand_over())
        ending.hurry.add_done_callback(lambda _: handover.cancel())
        try:
            with suppress(asyncio.CancelledError):
                await ending.wait(handover, tasks)
        finally:
            handover.cancel()
        self._broker.holdings.drain()
        parts.drain()
        await server.close(DRAIN_TIMEOUT_MS / 1000)

    async def close(self) -> bool:
        """Close the logs; True where all that is held is on disk then."""
        clean = await self._actions.close("the broker stops")
        await self._verification.cut(self._broker.data.store)
        return clean
