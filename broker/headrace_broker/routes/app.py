"""The aiohttp application: every path, and what is done around each request."""

from time import perf_counter

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from headrace.core.browsers import SAFE_METHODS, why_foreign, why_not_here
from headrace.core.errors import ForeignPageError
from headrace_broker.admission import Admission, Requests
from headrace_broker.routes.compression import compressed
from headrace_broker.routes.fetch import FetchRoute, OffsetsRoute
from headrace_broker.routes.groups import GroupRoutes
from headrace_broker.routes.groups_list import GroupsRoute
from headrace_broker.routes.health import HealthRoutes
from headrace_broker.routes.held import HeldRoute
from headrace_broker.routes.metadata import MetadataRoutes
from headrace_broker.routes.openapi import openapi
from headrace_broker.routes.problems import answer_of
from headrace_broker.routes.produce import ProduceRoute
from headrace_broker.routes.promises import PromisesRoute
from headrace_broker.routes.records import DeleteRoute
from headrace_broker.routes.sessions import SessionsRoute, is_replication
from headrace_broker.routes.spread import SpreadRoute
from headrace_broker.routes.watermarks import WatermarksRoute
from headrace_broker.routes.writers import WriterRoutes
from headrace_broker.serving import Serving

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
"""Answered under any load: whoever watches over a broker must not take a busy one for a dead one."""


def broker_app(serving: Serving, own_names: frozenset[str] | None = None) -> web.Application:
    """`own_names`: of a broker for this machine alone, beside those of loopback; None: any name may lead to it."""
    metadata = MetadataRoutes(serving)
    groups = GroupRoutes(serving)
    writers = WriterRoutes(serving)
    health = HealthRoutes(serving.readiness, serving.metrics)
    serving.metrics.watches.set_function(lambda: serving.watches.open)
    serving.sessions.register(serving.metrics.registry)
    app = web.Application(middlewares=[_around(serving, own_names)])
    app.add_routes(
        [
            # They are tried in this order: the paths of records come first, then those of members that are at work.
            web.post(_PARTITION + "/records", ProduceRoute(serving).__call__),
            web.get(_PARTITION + "/records", FetchRoute(serving).__call__),
            web.delete(_PARTITION + "/records", DeleteRoute(serving).__call__),
            web.get(_PARTITION + "/offsets", OffsetsRoute(serving).__call__),
            web.post(_GROUP + "/offsets", groups.commit),
            web.get(_GROUP + "/offsets", groups.offsets),
            web.post(_MEMBER + "/heartbeat", groups.heartbeat),
            web.post("/v1/sessions", SessionsRoute(serving).__call__),
            web.post(_TOPIC + "/records", SpreadRoute(serving).__call__),
            web.get(_TOPIC, metadata.topic),
            web.get(_TOPICS, metadata.topics),
            web.put(_MEMBER, groups.join),
            web.delete(_MEMBER, groups.leave),
            web.get(_GROUP + "/coordinator", groups.coordinator),
            web.post(_GROUP + "/reset", groups.reset),
            web.get(_GROUP, groups.describe),
            web.delete(_GROUP, groups.delete),
            web.get(_GROUPS, GroupsRoute(serving).__call__),
            web.post(_WRITER + "/commits", writers.commit),
            web.get(_WRITER, writers.describe),
            web.get("/healthz", health.healthz),
            web.get("/readyz", health.readyz),
            web.get("/metrics", health.metrics),
            web.get("/openapi.json", openapi),
            web.get("/v1/cluster", metadata.cluster),
            web.get("/v1/prometheus/targets", metadata.targets),
            web.get("/v1/brokers/{broker}/held", HeldRoute(serving).__call__),
            web.post("/v1/brokers/{broker}/promises", PromisesRoute(serving).__call__),
            web.post("/v1/brokers/{broker}/watermarks", WatermarksRoute(serving).__call__),
        ]
    )
    return app


def _around(serving: Serving, own_names: frozenset[str] | None) -> Middleware:
    """Admits, times, compresses, and answers failures: in one middleware, because each more costs every request.

    What a web page has a browser send is refused (`core.browsers`).
    """
    metrics, admission = serving.metrics, serving.admission

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = perf_counter()
        try:
            try:
                _check_sender(request, own_names)
                with _counted(admission, request).one_more(serving.holder(request)):
                    response = await handler(request)
            except Exception as error:
                response = answer_of(request, error, metrics)
            return await compressed(request, response) if isinstance(response, web.Response) else response
        finally:
            # Known paths only: a label must not be what a client makes up.
            resource = request.match_info.route.resource
            route, method = (resource.canonical, _verb(request)) if resource is not None else ("none", "any")
            metrics.request_time(method, route).observe(perf_counter() - started)

    return middleware


def _check_sender(request: web.Request, own_names: frozenset[str] | None) -> None:
    """Raises ForeignPageError."""
    headers = request.headers
    why = why_not_here(headers.get("Host", ""), own_names) if own_names is not None else None
    if why is None and request.method not in SAFE_METHODS:
        why = why_foreign(headers.get("Host", ""), headers.get("Origin"), headers.get("Sec-Fetch-Site"))
    if why is not None:
        raise ForeignPageError(why)


def _counted(admission: Admission, request: web.Request) -> Requests:
    """Among which it is counted: each of them may be full without the others."""
    path = request.path
    if path.startswith(_CONTROL):
        # What has a body is counted once that is there (`uploads.Questions`).
        return admission.control if request.method in ("GET", "HEAD") else admission.others
    if request.method == "POST" and path.endswith(_HEARTBEAT):
        return admission.heartbeats
    return admission.others if path in ALWAYS_ANSWERED or is_replication(request) else admission.clients


def _verb(request: web.Request) -> str:
    """The method; a stream that goes on for as long as its client likes is told apart, as Kubernetes does."""
    return "WATCH" if request.method == "GET" and request.query.get("watch") == "true" else request.method
