"""The aiohttp application: every path, what is done around each request, and the routes that belong to no resource.

Every failure becomes a problem document (RFC 9457): typed errors, unknown paths, and our own mistakes.

GET /healthz, /readyz and /metrics say whether the process is alive, whether it takes requests, and what Prometheus
wants to know; they are answered under any load. GET /openapi.json is `openapi.yaml`, which stands beside this module,
as JSON: read with the first request and kept, so a broker that nobody asks never loads a YAML parser. A unit test
checks that every path is in it, and no other; `make openapi-check` checks that it is true. POST /v1/sessions begins a
session of a client or a replication stream of a broker: one request in which both sides go on talking.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from time import perf_counter

from aiohttp import ClientPayloadError, web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from headrace.core.browsers import SAFE_METHODS, why_foreign, why_not_here
from headrace.core.errors import (
    PROBLEM_CONTENT_TYPE,
    ForeignPageError,
    HeadraceError,
    InvalidRequestError,
    NotReadyError,
    RemoteError,
    UnsupportedEncodingError,
    to_problem,
)
from headrace.core.frames.replication_messages import REPLICATION_MEDIA_TYPE as REPLICATION
from headrace.core.frames.session_messages import SESSION_MEDIA_TYPE as SESSION
from headrace.core.holders import holder_of
from headrace.core.limits import RETRY_AFTER_S
from headrace.core.resources.internal_topics import InternalTopics
from headrace.core.types import BrokerId
from headrace.http2.bodies import RequestBody
from headrace.http2.bridge import ResponseWriter
from headrace_broker.admission import Admission, Requests
from headrace_broker.cluster.locator import Locator, OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.coordinators import GroupCoordinators, WriterCoordinators
from headrace_broker.http.callers import Callers
from headrace_broker.http.control import HeldRoute, Peers, PromisesRoute, Reports, WatermarksRoute
from headrace_broker.http.fetch import FetchRoute, OffsetsRoute, WatchResponses
from headrace_broker.http.groups import GroupRoutes, GroupsRoute
from headrace_broker.http.json_bodies import JsonBodies
from headrace_broker.http.metadata import MetadataRoutes
from headrace_broker.http.parameters import parse_no_query
from headrace_broker.http.produce import DeleteRoute, ProduceRoute, SpreadRoute
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.record_bodies import compressed
from headrace_broker.http.uploads import Questions
from headrace_broker.http.writers import WriterRoutes
from headrace_broker.metrics import Metrics
from headrace_broker.partition.fetch import OpenWatches
from headrace_broker.replication.leader_stream import ServedStream
from headrace_broker.replication.open_streams import ServedStreams
from headrace_broker.sessions.open_sessions import OpenSessions
from headrace_broker.sessions.session import ChannelOpener, Session

_log = logging.getLogger(__name__)
_TOPIC_RECORDS = re.compile(r"(?P<topic>/v1/namespaces/[^/]+/topics/[^/]+)/records")
_TOPICS = "/v1/namespaces/{namespace}/topics"
_TOPIC = _TOPICS + "/{topic}"
_PARTITION = _TOPIC + "/partitions/{partition}"
_GROUPS = "/v1/namespaces/{namespace}/groups"
_GROUP = _GROUPS + "/{group}"
_MEMBER = _GROUP + "/members/{member}"
_WRITER = "/v1/namespaces/{namespace}/writers/{writer}"
_CONTROL = "/v1/brokers/"
_HEARTBEAT = "/heartbeat"
ALWAYS_ANSWERED = frozenset({"/healthz", "/readyz", "/metrics"})
"""The paths that are answered under any load: a monitor must not take a busy broker for a dead one."""


class UnknownPathError(RemoteError):
    """The path has no route (HTTP 404)."""

    code = "UnknownPath"
    status = 404


class MethodNotAllowedError(RemoteError):
    """The path exists, with other methods (HTTP 405); `allow` lists them."""

    code = "MethodNotAllowed"
    status = 405


class InternalError(RemoteError):
    """A mistake of the broker's own (HTTP 500); its log has the traceback."""

    code = "Internal"
    status = 500


def problem_response(error: HeadraceError) -> web.Response:
    response = web.Response(
        status=error.status, body=json.dumps(to_problem(error)).encode() + b"\n", content_type=PROBLEM_CONTENT_TYPE
    )
    if error.retriable:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, UnsupportedEncodingError):
        response.headers["Accept-Encoding"] = "gzip, identity"
    return response


def problem_of(request: web.Request, error: Exception, metrics: Metrics) -> web.Response:
    """Answer a handler's failure, and count it by its code. Raises the failure where nobody is to be told."""
    if isinstance(error, (ConnectionError, ClientPayloadError)):
        raise error  # the client went away
    if isinstance(error, web.HTTPException) and error.status < 400:
        raise error
    if isinstance(error, web.HTTPMethodNotAllowed) and request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": _allowed(error)})
    failure = _failure(request, error)
    metrics.errors.labels(failure.code).inc()
    response = problem_response(failure)
    if isinstance(failure, MethodNotAllowedError):
        response.headers["Allow"] = str(failure.details["allow"])
    return response


def _failure(request: web.Request, error: Exception) -> HeadraceError:
    match error:
        case HeadraceError():
            return error
        case web.HTTPMethodNotAllowed():
            return _method_not_allowed(request, error)
        case web.HTTPException():
            return _http_failure(request, error)
        case _:
            _log.error("%s %s failed", request.method, request.path, exc_info=error)
            return InternalError("the broker failed to answer; its log says why")


def _http_failure(request: web.Request, error: web.HTTPException) -> HeadraceError:
    if error.status == 404:
        return UnknownPathError(f"{request.method} {request.path}: there is no such path; GET /openapi.json lists them")
    return InternalError(f"{request.method} {request.path}: {error.reason}")


def _method_not_allowed(request: web.Request, error: web.HTTPMethodNotAllowed) -> MethodNotAllowedError:
    said = f"{request.method} {request.path}: this path takes {_allowed(error)}"
    # Records are read where they have offsets, but a client that produced to a topic first looks under its path.
    topic = _TOPIC_RECORDS.fullmatch(request.path)
    if topic is not None:
        said += f"; records are read and deleted at {topic['topic']}/partitions/{{partition}}/records"
    return MethodNotAllowedError(said, allow=_allowed(error))


def _allowed(error: web.HTTPMethodNotAllowed) -> str:
    return ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))


async def openapi(_: web.Request) -> web.StreamResponse:
    """GET /openapi.json"""
    return web.Response(body=await asyncio.to_thread(_openapi_document), content_type="application/json")


@cache
def _openapi_document() -> bytes:
    import yaml

    text = files("headrace_broker.http").joinpath("openapi.yaml").read_text()
    return json.dumps(yaml.safe_load(text)).encode() + b"\n"


@dataclass(slots=True)
class Readiness:
    """The reason why this broker does not take requests just now, as a clause; empty when it does."""

    why_not: str = "it is starting"


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
        """GET /metrics: Prometheus' text format. Writing it down takes much longer than the look at the numbers."""
        seen = _SeenMetrics([*self._metrics.registry.collect()])
        body = await asyncio.to_thread(generate_latest, seen)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _SeenMetrics(CollectorRegistry):
    """The metrics that were there at one moment."""

    def __init__(self, families: Sequence[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


class SessionsRoute:
    """POST /v1/sessions"""

    def __init__(
        self,
        callers: Callers,
        sessions: OpenSessions,
        served_streams: ServedStreams,
        begin_session: Callable[[RequestBody, str | None], Session],
        begin_stream: Callable[[RequestBody], ServedStream],
    ) -> None:
        self._callers = callers
        self._sessions = sessions
        self._served_streams = served_streams
        self._begin_session = begin_session
        self._begin_stream = begin_stream

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        parse_no_query(request.query)
        if is_replication(request):
            return await self._replicate(request)
        holder = self._callers.holder(request)
        session = self._begin_session(_stream_body(request), holder)
        with self._sessions.one_more(session, holder):
            response, writer = await _begun_response(request, SESSION)
            await session.run(writer)
            await response.write_eof()
            return response

    async def _replicate(self, request: web.Request) -> web.StreamResponse:
        stream = self._begin_stream(_stream_body(request))
        with self._served_streams.one_more(stream, holder_of(request.remote or "")):
            response, writer = await _begun_response(request, REPLICATION)
            await stream.run(writer)
            await response.write_eof()
            return response


def is_replication(request: web.Request) -> bool:
    """Tell whether another broker follows here: that is refused for no load of clients."""
    return request.path == "/v1/sessions" and _content_type(request) == REPLICATION


async def _begun_response(request: web.Request, content_type: str) -> tuple[web.StreamResponse, ResponseWriter]:
    response = web.StreamResponse(headers={"Content-Type": content_type})
    writer = await response.prepare(request)
    assert isinstance(writer, ResponseWriter), "over HTTP/2"
    return response, writer


def _content_type(request: web.Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _stream_body(request: web.Request) -> RequestBody:
    """Return the request's body, as a stream. Raises InvalidRequestError."""
    if _content_type(request) not in (SESSION, REPLICATION):
        content_type = request.headers.get("Content-Type", "")
        raise InvalidRequestError(f"Content-Type {content_type!r}: must be {SESSION}", field="Content-Type")
    body: object = request.content
    if not isinstance(body, RequestBody):
        version = f"{request.version.major}.{request.version.minor}"
        raise InvalidRequestError(
            f"HTTP/{version}: a session needs HTTP/2, whose streams go both ways at once; use it, or produce and fetch"
            " by single requests",
            field="HTTP version",
        )
    return body


@dataclass(frozen=True, slots=True)
class Components:
    """The objects that requests are answered with. The process makes them; each route gets those that it uses."""

    me: BrokerId
    view: ClusterView
    partitions: OpenPartitions
    locator: Locator
    internal: InternalTopics
    reports: Reports
    proxy: Proxy
    metrics: Metrics
    readiness: Readiness
    admission: Admission
    callers: Callers
    questions: Questions
    watches: OpenWatches
    groups: GroupCoordinators
    writers: WriterCoordinators
    sessions: OpenSessions
    served_streams: ServedStreams

    def drain(self) -> None:
        """End what would go on for ever, because this broker is about to stop. Its partitions drain by themselves."""
        self.proxy.drain()
        self.groups.local.drain()
        self.writers.local.drain()
        self.watches.drain()
        self.sessions.drain()
        self.served_streams.drain()


def broker_app(parts: Components, own_names: frozenset[str] | None = None) -> web.Application:
    """Make the application; `own_names` beside loopback are those of a broker for this machine alone, None: any
    name."""
    me, view, callers, internal, locator = parts.me, parts.view, parts.callers, parts.internal, parts.locator
    admission, metrics, proxy = parts.admission, parts.metrics, parts.proxy
    peers, json_bodies = Peers(me, view, proxy), JsonBodies(callers, admission)
    opener = ChannelOpener(locator, internal, admission)
    produce = ProduceRoute(callers, internal, locator, admission, proxy)
    watches = WatchResponses(callers, parts.watches, admission, metrics, proxy)
    fetch = FetchRoute(callers, internal, locator, admission, proxy, watches)
    sessions = SessionsRoute(
        callers,
        parts.sessions,
        parts.served_streams,
        partial(Session, opener, parts.sessions, admission, metrics),
        partial(ServedStream, me, view, parts.partitions, parts.served_streams),
    )
    metadata = MetadataRoutes(view, parts.partitions)
    groups = GroupRoutes(me, view, parts.groups, callers, json_bodies, proxy)
    writers = WriterRoutes(me, view, parts.writers, internal, json_bodies, proxy)
    promises = PromisesRoute(peers, parts.reports, parts.questions, admission.control)
    watermarks = WatermarksRoute(peers, parts.partitions, parts.questions, admission.watermarks)
    health = HealthRoutes(parts.readiness, metrics)
    metrics.watches.set_function(lambda: parts.watches.open)
    parts.sessions.register(metrics.registry)
    app = web.Application(middlewares=[_around(callers, admission, metrics, own_names)])
    app.add_routes(
        [
            # They are tried in this order: the paths of records come first, then those of members that are at work.
            web.post(_PARTITION + "/records", produce.__call__),
            web.get(_PARTITION + "/records", fetch.__call__),
            web.delete(_PARTITION + "/records", DeleteRoute(callers, internal, locator, proxy).__call__),
            web.get(_PARTITION + "/offsets", OffsetsRoute(locator, proxy).__call__),
            web.post(_GROUP + "/offsets", groups.commit),
            web.get(_GROUP + "/offsets", groups.offsets),
            web.post(_MEMBER + "/heartbeat", groups.heartbeat),
            web.post("/v1/sessions", sessions.__call__),
            web.post(_TOPIC + "/records", SpreadRoute(callers, internal, locator, admission, proxy).__call__),
            web.get(_TOPIC, metadata.topic),
            web.get(_TOPICS, metadata.topics),
            web.put(_MEMBER, groups.join),
            web.delete(_MEMBER, groups.leave),
            web.get(_GROUP + "/coordinator", groups.coordinator),
            web.post(_GROUP + "/reset", groups.reset),
            web.get(_GROUP, groups.describe),
            web.delete(_GROUP, groups.delete),
            web.get(_GROUPS, GroupsRoute(me, view, parts.groups, json_bodies, proxy).__call__),
            web.post(_WRITER + "/commits", writers.commit),
            web.get(_WRITER, writers.describe),
            web.get("/healthz", health.healthz),
            web.get("/readyz", health.readyz),
            web.get("/metrics", health.metrics),
            web.get("/openapi.json", openapi),
            web.get("/v1/cluster", metadata.cluster),
            web.get("/v1/prometheus/targets", metadata.targets),
            web.get("/v1/brokers/{broker}/held", HeldRoute(peers, parts.reports).__call__),
            web.post("/v1/brokers/{broker}/promises", promises.__call__),
            web.post("/v1/brokers/{broker}/watermarks", watermarks.__call__),
        ]
    )
    return app


def _around(callers: Callers, admission: Admission, metrics: Metrics, own_names: frozenset[str] | None) -> Middleware:
    """Admit, time, compress, and answer failures: in one middleware, because each more costs every request.

    What a web page has a browser send is refused (`core.browsers`).
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = perf_counter()
        try:
            try:
                _check_sender(request, own_names)
                with _counted(admission, request).one_more(callers.holder(request)):
                    response = await handler(request)
            except Exception as error:
                response = problem_of(request, error, metrics)
            return await compressed(request, response) if isinstance(response, web.Response) else response
        finally:
            # Known paths only: a label must not be what a client makes up.
            resource = request.match_info.route.resource
            route, method = (resource.canonical, _verb(request)) if resource is not None else ("none", "any")
            metrics.request_time(method, route).observe(perf_counter() - started)

    return middleware


def _check_sender(request: web.Request, own_names: frozenset[str] | None) -> None:
    """Check that no web page of another site sends this. Raises ForeignPageError."""
    headers = request.headers
    why = why_not_here(headers.get("Host", ""), own_names) if own_names is not None else None
    if why is None and request.method not in SAFE_METHODS:
        why = why_foreign(headers.get("Host", ""), headers.get("Origin"), headers.get("Sec-Fetch-Site"))
    if why is not None:
        raise ForeignPageError(why)


def _counted(admission: Admission, request: web.Request) -> Requests:
    """Return the requests among which it is counted: each kind may be full without the others."""
    path = request.path
    if path.startswith(_CONTROL):
        # A request with a body is counted once the body is there (`uploads.Questions`).
        return admission.control if request.method in ("GET", "HEAD") else admission.others
    if request.method == "POST" and path.endswith(_HEARTBEAT):
        return admission.heartbeats
    return admission.others if path in ALWAYS_ANSWERED or is_replication(request) else admission.clients


def _verb(request: web.Request) -> str:
    """Return the method; a stream that goes on for as long as its client likes is told apart, as Kubernetes does."""
    return "WATCH" if request.method == "GET" and request.query.get("watch") == "true" else request.method
