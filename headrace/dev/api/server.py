"""The process: one store, one HTTP server, one collector, started and stopped together.

`serving` owns them from start to a clean stop: watches end, requests finish, the collector is cancelled, the file is
closed. State that every cluster has (the system namespaces, the CRDs of Headrace) is there before the port opens.

Version, health and access reviews are no resources, and are answered here. Every client may do anything: it is one
person's machine.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.limits import DEV_REQUEST_BODY_BYTES_MAX
from headrace.dev.api.builtin import DEFINITIONS, NAMESPACES, SYSTEM_NAMESPACES
from headrace.dev.api.collector import Collector
from headrace.dev.api.documents import Document, decode
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.logs import PodLogs
from headrace.dev.api.objects import Key, Object, copy_of
from headrace.dev.api.operations import Operations, RequestTarget
from headrace.dev.api.proxy import ANY_PORT, ServiceProxy
from headrace.dev.api.routes import ApiRoutes, programs_of_this_machine, refusals
from headrace.dev.api.status import StatusError
from headrace.dev.api.store import Store
from headrace.dev.api.strategy import ApiWriteOptions
from headrace.http2.aiohttp_web import web
from headrace.http2.server import Server, serve

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware


_VERSION: Object = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+headrace-dev",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The Kubernetes whose behaviour this API follows; the suffix says that it is not one."""
_REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_log = logging.getLogger(__name__)
_OPTIONS = ApiWriteOptions(manager="headrace-dev")
_STORE_FILE = "kubernetes.sqlite3"
_SWEEP_INTERVAL_S = 60
"""The interval of sweeps: Events grow old without any change that would wake the collector."""
_SWEEP_PAUSE_S = 0.05
"""The pause that lets a burst of changes become one sweep."""
_SHUTDOWN_S = 2.0


def add_probes(app: web.Application) -> None:
    app.router.add_get("/version", _version)
    for path in ("/healthz", "/livez", "/readyz"):
        app.router.add_get(path, _healthy)
    app.router.add_post(_REVIEW_PATH, _review)


async def _version(request: web.Request) -> web.Response:
    return web.json_response(_VERSION)


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _review(request: web.Request) -> web.Response:
    """Answer yes to every question. kubectl asks in protobuf, which need not be read for that."""
    try:
        asked = decode(await request.read(), request.content_type).value
    except StatusError:
        asked = {}
    spec = asked.get("spec", {}) if isinstance(asked, dict) else {}
    answer = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": True},
    }
    return web.json_response(answer, status=201)


class CannotServeError(Exception):
    """The server cannot start; the message is a sentence for the user."""


@asynccontextmanager
async def serving(
    data: Path,
    host: str,
    port: int,
    definitions: Sequence[Object],
    pod_logs: Path | None = None,
    pod_ports: range = ANY_PORT,
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL. Port 0 takes a free one. Raises CannotServeError.

    `pod_logs` is the log file of every Pod, as `logs.PodLogs` takes it. `pod_ports` are the ports that Pods listen on:
    the proxy connects to no others, whatever a Pod's status has.
    """
    store = _open_store(data)
    try:
        operations = Operations(store)
        bootstrap(operations, definitions)
        app = _application(operations, programs_of_this_machine(host), pod_logs, pod_ports)
        server = await _listen(app, host, port)
        collecting = asyncio.create_task(_collect(operations))
        try:
            yield f"http://{host}:{server.port}"
        finally:
            store.history.close()
            collecting.cancel()
            with suppress(asyncio.CancelledError):
                await collecting
            await server.close(_SHUTDOWN_S)
    finally:
        store.close()


def bootstrap(operations: Operations, definitions: Sequence[Object]) -> None:
    """Store the namespaces that every cluster has, and `definitions` as they now are."""
    for name in SYSTEM_NAMESPACES:
        if operations.store.get(Key(NAMESPACES, "", name)) is None:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            operations.create(_kind(operations, "v1", "Namespace"), "", Document(namespace), _OPTIONS)
    for definition in definitions:
        _install(operations, definition)


def _install(operations: Operations, definition: Object) -> None:
    kind = _kind(operations, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
    name = definition["metadata"]["name"]
    current = operations.store.get(Key(DEFINITIONS, "", name))
    if current is None:
        operations.create(kind, "", Document(copy_of(definition)), _OPTIONS)
        return
    # The CRDs belong to this version of Headrace: a data directory of an older one gets the newer schema.
    updated = copy_of(current) | {"spec": copy_of(definition)["spec"]}
    operations.replace(RequestTarget(kind, "", name), Document(updated), _OPTIONS)


def _kind(operations: Operations, version: str, name: str) -> ResourceKind:
    kind = operations.catalog.of_kind(version, name)
    assert kind is not None, "built-in kinds are always served"
    return kind


def _open_store(data: Path) -> Store:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Store(data / _STORE_FILE, first_revision=int(time.time()))
    except (OSError, sqlite3.Error) as error:
        raise CannotServeError(
            f"cannot open the API's state in {data}: {error}; is another `headrace dev` using this directory?"
        ) from error


def _application(
    operations: Operations, callers: "Middleware", pod_logs: Path | None, pod_ports: range
) -> web.Application:
    app = web.Application(client_max_size=DEV_REQUEST_BODY_BYTES_MAX, middlewares=[refusals, callers])
    add_probes(app)
    ServiceProxy(operations, pod_ports).add_to(app)
    PodLogs(operations, pod_logs).add_to(app)
    ApiRoutes(operations).add_to(app)
    return app


async def _listen(app: web.Application, host: str, port: int) -> Server:
    """Listen with HTTP/1.1 for kubectl and all else, and HTTP/2 for our own clients, who come by the proxy."""
    try:
        return await serve(app, host=host, port=port)
    except OSError as error:
        raise CannotServeError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; is the port in use? Choose another with --port"
        ) from error


async def _collect(operations: Operations) -> None:
    collector = Collector(operations)
    with operations.store.history.watching(None) as wake:
        while True:
            wake.clear()
            try:
                collector.sweep()
            except (StatusError, sqlite3.Error):
                # The state decides what has to be done, so the next sweep does what this one could not.
                _log.exception("the collector could not finish a sweep")
            await asyncio.sleep(_SWEEP_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_INTERVAL_S):
                    await wake.wait()
