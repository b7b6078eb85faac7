"""The use of kopf: it watches Topics, PartitionSets, Leases and the brokers' Pods, and wakes the loop when one changes.

kopf runs in a thread with an event loop of its own, so that neither its signal handlers nor a frozen watch of its own
touch the reconcile loop; its news crosses over by `call_soon_threadsafe`. It never writes: handlers are `on.event`
only, so it adds no finalizers and no annotations, posting and peering are off. When it stops by itself it is started
again; meanwhile the loop's resync goes on. Runs from `start` to `stop`.

kopf is imported without the Kubernetes clients that it tries to import. It takes objects of theirs too, and so loads
each one that is installed: with `kubernetes` 330 modules, 0.2 s of processor time and 18 MiB. Nobody here gives it any,
and its identity is given. `headrace.kube` loads `kubernetes` where a kubeconfig needs it, as before.
"""

import asyncio
import logging
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from headrace.core.limits import API_CONNECT_TIMEOUT_MS, API_REQUEST_TIMEOUT_MS, WATCH_SILENCE_MS_MAX
from headrace.core.resources.kubernetes_objects import POD_SELECTOR
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import InvalidResourceError
from headrace.kube.client import Backoff
from headrace.kube.credentials import Credentials
from headrace.kube.resource import LEASES, PARTITION_SETS, PODS, STATEFUL_SETS, TOPICS, Resource
from headrace_operator.observer import Scope

_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")
_log = logging.getLogger(__name__)
_SILENCE_S = WATCH_SILENCE_MS_MAX / 1000
# The server ends an idle watch before we would take it for dead. API servers take whole seconds only.
_SERVER_TIMEOUT_S = WATCH_SILENCE_MS_MAX * 3 // 4 // 1000
_IDENTITY: Any = "headrace-operator"
"""The identity among kopf's peers, which there are none of. Without it, kopf asks for the name of a user who may have
none."""


@contextmanager
def _not_importable(*names: str) -> Iterator[None]:
    """Make an import of one of `names` fail as if it were not installed (by None in `sys.modules`); one that is there
    already stays."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # the import system knows None, typeshed does not
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _not_importable(*_CLIENTS):
    import kopf


class Doorbell:
    def __init__(
        self,
        credentials: Credentials,
        scope: Scope,
        *,
        ring: Callable[[], None],
        lease_seen: Callable[[BrokerLease], None],
        rng: Random,
    ) -> None:
        self._credentials = credentials
        self._scope = scope
        self._ring = ring
        self._lease_seen = lease_seen
        self._rng = rng
        self._backoff = Backoff(rng)
        self._stopping = threading.Event()
        self._end_run: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, from the event loop that `ring` and `lease_seen` are to be called in."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, args=(loop,), name="kopf", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        self._end_run()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopping.is_set():
            try:
                asyncio.run(self._run_kopf(loop))
            except Exception as error:  # Whatever ended kopf, the loop's resync goes on and kopf starts again.
                _log.warning("kopf stopped, starting it again: %s", error)
            self._stopping.wait(self._backoff.next_ms() / 1000)

    async def _run_kopf(self, loop: asyncio.AbstractEventLoop) -> None:
        own_loop, stop_flag = asyncio.get_running_loop(), asyncio.Event()
        # The error that ended its tasks is raised below; asyncio need not report each of them as well.
        own_loop.set_exception_handler(lambda _, context: _log.debug("kopf: %s", context))
        # A threading.Event would not do: a thread that waits for one would keep a failed kopf from ending.
        self._end_run = lambda: _call_in(own_loop, stop_flag.set)
        if self._stopping.is_set():
            return
        # There are two of kopf's operators, since one has the same namespaces for all that it watches: Topics are
        # anywhere, and Leases, Pods and StatefulSets may be read in the brokers' namespace alone.
        watching = partial(
            kopf.operator,
            settings=kopf_settings(self._scope, self._rng),
            identity=_IDENTITY,
            standalone=True,
            stop_flag=stop_flag,
        )
        await asyncio.gather(
            watching(registry=self._registry(loop, TOPICS, PARTITION_SETS), clusterwide=True),
            watching(
                registry=self._registry(loop, LEASES, PODS, STATEFUL_SETS), namespaces=[self._scope.lease_namespace]
            ),
        )

    def _registry(self, loop: asyncio.AbstractEventLoop, *resources: Resource[Any]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def changed(**_: Any) -> None:
            _call_in(loop, self._ring)

        async def lease_changed(event: kopf.RawEvent, **_: Any) -> None:
            try:
                lease = BrokerLease.parse(event["object"])
            except InvalidResourceError:
                return  # It has our label, but is no broker's: the observer's list logs it.
            _call_in(loop, partial(self._lease_seen, lease))

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await connection_of(self._credentials)

        kopf.on.login(registry=registry)(login)
        for resource in resources:
            heard = lease_changed if resource == LEASES else changed
            kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)(heard)
        return registry


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call from another thread; a loop that has ended needs no call any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


@dataclass(frozen=True, slots=True)
class _Backoffs:
    """The waits between kopf's attempts at one request, in seconds: it never gives up, and never waits for long."""

    rng: Random

    def __iter__(self) -> Iterator[float]:
        backoff = Backoff(self.rng)
        while True:
            yield backoff.next_ms() / 1000


class _WithoutTls(kopf.ConnectionInfo):
    """A connection to an API server that speaks no TLS."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """Return a context that no connection uses: kopf would read all certificates of the system, for 25 ms each
        time."""
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def connection_of(credentials: Credentials) -> kopf.ConnectionInfo:
    scheme, _, token = (await credentials.authorization() or "").partition(" ")
    certificate, key = credentials.client_certificate or (None, None)
    kind = kopf.ConnectionInfo if credentials.server.startswith("https:") else _WithoutTls
    return kind(
        server=credentials.server,
        ca_path=credentials.ca_file,
        insecure=credentials.insecure,
        certificate_path=certificate,
        private_key_path=key,
        scheme=scheme or None,
        token=token or None,
        default_namespace=credentials.namespace,
    )


def kopf_settings(scope: Scope, rng: Random) -> kopf.OperatorSettings:
    """Return settings: watches that never freeze and never give up, only our own Leases, and not a single write."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = API_REQUEST_TIMEOUT_MS / 1000
    settings.networking.error_backoffs = _Backoffs(rng)
    settings.networking.connect_timeout = API_CONNECT_TIMEOUT_MS / 1000
    # kopf and client libraries are known to freeze silently on a dead connection.
    settings.watching.server_timeout = _SERVER_TIMEOUT_S
    settings.watching.client_timeout = _SILENCE_S
    settings.watching.connect_timeout = API_CONNECT_TIMEOUT_MS / 1000
    settings.watching.inactivity_timeout = _SILENCE_S
    settings.watching.label_selectors[LEASES.group, LEASES.version, LEASES.plural] = scope.lease_selector
    settings.watching.label_selectors[PODS.group, PODS.version, PODS.plural] = POD_SELECTOR
    return settings
