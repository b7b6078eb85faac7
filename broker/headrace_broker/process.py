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
import signal
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headrace.core.browsers import host_name, is_loopback_name
from headrace.core.errors import HeadraceError, StorageFailedError
from headrace.core.limits import DRAIN_TIMEOUT_MS
from headrace.core.log.recovery import DiskFacts
from headrace.core.replication.leadership import Contact
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
from headrace_broker.cluster.membership import ClusterMembership, LocalParts
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.consumer_groups import GroupReporting
from headrace_broker.coordinators.coordinators import CommitTopicMaker
from headrace_broker.coordinators.group_lag import GroupLags
from headrace_broker.http.app import ALWAYS_ANSWERED, broker_app
from headrace_broker.http.proxy import Proxy
from headrace_broker.metrics import Metrics
from headrace_broker.partition.compaction import Compaction, CompactionProcess
from headrace_broker.partition.holdings import Holdings
from headrace_broker.partition.housekeeping import Housekeeping, Verification
from headrace_broker.partition.opening import Opener
from headrace_broker.partition.partition import Host
from headrace_broker.replication.follower_streams import FollowerStreams
from headrace_broker.serving import Readiness, Serving
from headrace_broker.settings import Settings, TlsFiles
from headrace_broker.stop_signals import StopSignals
from headrace_broker.storage.data_directory import DataDirectory, DataDirectoryInUseError, keep_private
from headrace_broker.tls import TlsIdentity, TlsSource, Transports, WatchedFiles, WatchedSecret

PEER_KEY_BYTES = 24
"""Random ones, by which brokers know each other's requests."""
HURRY_TIMEOUT_MS = 1_000
"""What requests in flight get when a broker must not go on."""
DATA_DIRECTORY_WAIT_MS = 5_000
"""So long a broker waits at its start for another one to let go of its data directory.

One whose Pod was deleted by force may still be ending when the next one begins on the same machine.
"""


T = TypeVar("T")
_log = logging.getLogger(__name__)
_LOOK_S = 0.5


class CannotListenError(HeadraceError):
    """The address is taken or not this machine's."""

    code = "CannotListen"


class DiskFailedError(HeadraceError):
    """A write or a sync failed: what is on disk is not known any more."""

    code = "DiskFailed"


class _StoppedEarlyError(Exception):
    """Asked to stop before this life has begun."""


async def run(settings: Settings, signals: StopSignals, *, again: bool = False) -> bool:
    """One life; whether another one is to begin at once. Raises HeadraceError where it cannot start or go on.

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
            broker.returned = again
            with signals.told_to(broker.asked_to_stop):
                clean = await broker.live()
            return broker.returns
    finally:
        await asyncio.to_thread(data.close, clean=clean)


async def _opened(path: Path, signals: StopSignals) -> DataDirectory | None:
    """None where it is asked to stop before. Raises DataDirectoryInUseError where another broker does not let go."""
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
    """As many as the system lets us have: a partition keeps 4 open, a closed segment 3; the usual limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Broker:
    def __init__(self, settings: Settings, data: DataDirectory, client: KubeClient, transport: AsyncTransport) -> None:
        self._settings = settings
        self._data = data
        self._client = client
        self._metrics = Metrics()
        self._disk = BrokerDisk(data.path, settings.disk_limits, self._metrics, self._disk_failed)
        self._transports = Transports(transport)
        self._identity = self._identity_for()
        self._view = ClusterView(settings.cluster)
        self._holdings = Holdings(data, self._metrics, self._view.changed.set)
        self._metrics.watch_partitions(self._holdings.gauges)
        self._memory_bytes = settings.memory_bytes or memory_limit_bytes()
        self._readiness = Readiness()
        self.returned = self.returns = False
        """Nobody has asked it to stop: what it holds is mended by another life."""
        self._peer_key = secrets.token_urlsafe(PEER_KEY_BYTES)
        self._serving = Serving(
            settings.broker,
            self._view,
            self._holdings,
            Proxy(transport, self._peer_key),
            self._metrics,
            self._readiness,
            Admission.for_memory(self._memory_bytes),
            catch_up_rate=settings.catch_up_rate,
            namespace=self._namespace,
        )
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = loop.create_future()
        """Resolved when this process is asked to stop ..."""
        self._hurry: asyncio.Future[None] = loop.create_future()
        """... and when it is asked again."""
        self._broken: asyncio.Future[None] = loop.create_future()
        """Failed when it must stop because its disk failed."""

    async def live(self) -> bool:
        """Whether the stop was clean: all that is held is on disk."""
        try:
            return await self._live()
        except _StoppedEarlyError:
            return self._data.stopped_cleanly  # No log was opened since.

    async def _live(self) -> bool:
        if self._identity is not None:
            await self._unless_stopped(self._identity.take_on())
        server = await self._listen()
        try:
            lease = self._lease(server.port)
            me, found = await self._begin_life(lease)
            verification = await self._serve(server, lease, me, found)
        except BaseException:
            self._readiness.why_not = "it must stop"
            await server.close(HURRY_TIMEOUT_MS / 1000)
            raise
        clean = await self._holdings.close("the broker stops")
        await verification.cut(self._data.store)
        await lease.try_announce(clean=clean)
        return clean

    @property
    def _namespace(self) -> str:
        return self._settings.namespace or self._client.namespace

    def _identity_for(self) -> TlsIdentity | None:
        settings = self._settings
        if settings.tls is None:
            return None
        if isinstance(settings.tls, TlsFiles):
            source: TlsSource = WatchedFiles(settings.tls.certificate, settings.tls.key, settings.tls.authority)
        else:
            source = WatchedSecret(self._client, self._namespace, settings.tls.name)
        host = urlsplit(settings.advertised_url).hostname or settings.host
        return TlsIdentity(source, host, self._transports, self._metrics.registry)

    def _own_names(self) -> frozenset[str] | None:
        """Of a broker that listens on loopback alone: a page whose name leads there is no client."""
        if not is_loopback_name(self._settings.host):
            return None
        return frozenset({host_name(urlsplit(self._settings.advertised_url).netloc)})

    async def _listen(self) -> Server:
        settings = self._settings
        try:
            tls = self._identity.server_context if self._identity is not None else None
            app, terms = broker_app(self._serving, self._own_names()), Terms(always=ALWAYS_ANSWERED)
            server = await serve(app, host=settings.host, port=settings.port, ssl_context=tls, terms=terms)
        except OSError as error:
            raise CannotListenError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; give another --port"
            ) from error
        self._metrics.open_connections.set_function(lambda: server.connection_count)
        self._metrics.watch_load(self._serving.admission, server)
        return server

    def _lease(self, port: int) -> LeaseHolder:
        settings = self._settings
        scheme = "http" if self._identity is None else "https"
        url = settings.advertised_url or f"{scheme}://{settings.host}:{port}"
        vacant = vacant_lease(settings.broker, self._namespace, settings.cluster, url, settings.zone)
        _log.info("broker %d listens on port %d, advertised as %s", settings.broker, port, url)
        self._view.doubts = Doubts(Whereabouts.of_broker(vacant))
        return LeaseHolder(self._client, self._metrics, replace(vacant, peer_key=self._peer_key))

    async def _begin_life(self, lease: LeaseHolder) -> tuple[Seat, DiskFacts]:
        data = self._data
        on_disk = await asyncio.to_thread(data.read_incarnation)
        taking = lease.acquire(on_disk, data.write_incarnation, data.epochs_seen.read())
        taken = await self._unless_stopped(taking)
        disk = DiskFacts(
            incarnation=on_disk,
            known_incarnation=taken.known,
            stopped_cleanly=data.stopped_cleanly,
            same_boot=data.same_boot,
        )
        _log.info("broker %d begins incarnation %d", self._settings.broker, taken.incarnation)
        await self._holdings.load()
        return Seat(self._settings.broker, taken.incarnation), disk

    async def _serve(self, server: Server, lease: LeaseHolder, me: Seat, found: DiskFacts) -> Verification:
        """Until it is asked to stop and every request is answered. Raises SupersededError, DiskFailedError."""
        self._serving.life = me
        streams = FollowerStreams(me, self._view, self._transports, self._serving.followers.metrics)
        host = Host(self._metrics, self._disk, streams, lambda: Contact(monotonic_ms(), lease.renewed_ms))
        opener = Opener(self._data, found, me, host)
        here = LocalParts(self._holdings, opener, self._data.epochs_seen, self._disk, self._metrics.registry)
        coordination = ClusterMembership(me, self._client, self._view, lease, here, self._namespace)
        warn = coordination.teller.warn
        verification = Verification(me, self._holdings, self._view, warn, self._metrics.registry)
        if self.returned:
            verification.be_patient()
        housekeeping = Housekeeping(self._holdings, self._disk, self._settings.housekeeping_interval_ms)
        work = [
            *coordination.work(),
            housekeeping.checkpoint(),
            housekeeping.clean(),
            self._compaction().run(),
            self._serving.groups.run(),
            self._serving.writers.run(),
            CommitTopicMaker(self._client, self._view, self._serving.writers).run(),
            *self._showing(me).work(),
            self._disk.watch(),
            *verification.work(self._mend),
        ]
        if self._identity is not None:
            work.append(self._identity.keep_fresh())
        tasks = [asyncio.create_task(each) for each in (*work, self._become_ready(coordination))]
        try:
            await self._until(self._end, tasks)
            await self._drain(server, coordination, tasks)
            verification.end()
            return verification
        except (DiskFailedError, StorageFailedError) as error:
            await _cancel(tasks)
            await coordination.give_up(error.message)
            raise
        finally:
            await _cancel(tasks)
            await self._serving.groups.close()
            await self._serving.writers.close()
            await coordination.close()
            await streams.close()

    def _showing(self, me: Seat) -> GroupReporting:
        """Of the groups that are coordinated here."""
        serving = self._serving
        lags = GroupLags(me.broker, self._view, self._holdings, serving.proxy, serving.groups)
        made = GroupReporting(me.broker, self._client, self._view, serving.groups, lags, self._metrics.registry)
        serving.groups.listeners += made.listeners
        return made

    def _compaction(self) -> Compaction:
        return Compaction(
            self._holdings,
            CompactionProcess(),
            self._metrics.registry,
            interval_ms=self._settings.housekeeping_interval_ms,
            memory_bytes=self._memory_bytes,
        )

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Raises _StoppedEarlyError as soon as it is asked to stop: `work` may take as long as others are away."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, self._end), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _StoppedEarlyError
            return task.result()
        finally:
            await _cancel((task,))

    async def _until(self, end: asyncio.Future[None], tasks: Sequence[asyncio.Task[None]]) -> None:
        """Raises what any of the tasks raises, and DiskFailedError."""
        waiting: set[asyncio.Future[None]] = {end, self._broken, *tasks}
        while not end.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()

    async def _drain(
        self, server: Server, coordination: ClusterMembership, tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        self._readiness.why_not = "it drains"
        handover = asyncio.create_task(coordination.hand_over())
        self._hurry.add_done_callback(lambda _: handover.cancel())
        try:
            with suppress(asyncio.CancelledError):
                await self._until(handover, tasks)
        finally:
            handover.cancel()
        self._holdings.drain()
        self._serving.drain()
        await server.close(DRAIN_TIMEOUT_MS / 1000)

    async def _become_ready(self, coordination: ClusterMembership) -> None:
        await coordination.settled.wait()
        self._readiness.why_not = ""
        _log.info("broker %d is ready", self._settings.broker)
        # The first large batch needs it, and would hold up the loop while it is loaded.
        await asyncio.to_thread(importlib.import_module, "numpy")
        # Modules and partitions stay: whenever the collector looked at all of them, the loop stood still for 15 ms.
        gc.collect()
        gc.freeze()

    def asked_to_stop(self, number: signal.Signals) -> None:
        """A second time: wait for nobody else. Where this life ends for damage already: begin no other."""
        is_second, self.returns = self._end.done() and not self.returns, False
        asked = self._hurry if is_second else self._end
        if not asked.done():
            _log.info("stopping: %s", number.name)
            asked.set_result(None)

    def _mend(self, reason: str) -> None:
        if not self._end.done():
            _log.error("this life ends, and another begins: %s", reason)
            self.returns = True
            self._end.set_result(None)

    def _disk_failed(self, reason: str) -> None:
        if not self._broken.done():
            self._broken.set_exception(DiskFailedError(f"the disk failed, this broker stops: {reason}"))


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
