"""The requests of writers that stage their commits: passed on to the writer's coordinator, or decided here."""

from aiohttp import web

from headrace.core.errors import HeadraceError, NotCoordinatorError, ThrottledError
from headrace.core.limits import (
    COMMIT_WAIT_MS_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
    WRITER_REQUESTS_MAX,
)
from headrace.core.resources.internal_topics import InternalTopics
from headrace.core.staging.requests import parse_commit, staging_object, status_object
from headrace.core.staging.writer_machine import CommitAsked, StateAsked, Status
from headrace.core.staging.writers import WriterName
from headrace.core.types import BrokerId, TopicName
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.coordinators import CoordinatorElsewhere, WriterCoordinators
from headrace_broker.coordinators.writer_coordinator import WriterCoordinator
from headrace_broker.http.json_bodies import JsonBodies, json_answer
from headrace_broker.http.parameters import parse_no_query, parse_writer
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.uploads import Chunks, take_body

COMMIT_BODY_BYTES_MAX = 8 << 20
"""The limit of a request to commit."""


class WriterRoutes:
    def __init__(
        self,
        me: BrokerId,
        view: ClusterView,
        writers: WriterCoordinators,
        internal: InternalTopics,
        json_bodies: JsonBodies,
        proxy: Proxy,
    ) -> None:
        self._me = me
        self._view = view
        self._writers = writers
        self._internal = internal
        self._json = json_bodies
        self._proxy = proxy
        self._passed_on = 0
        """The number of requests that other brokers have yet to answer."""

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/writers/{w}"""
        writer = self._named(request)
        target = self._writers.locate(writer)
        if isinstance(target, CoordinatorElsewhere):
            return await self._pass_on(request, target, ())
        status = await self._ask(target, writer, StateAsked(target.shell.requests.next_number(), writer))
        coordinator = {"broker": self._me, "url": self._view.url_of(self._me)}
        staging = staging_object(self._writers.staging(writer))
        return json_answer({**status_object(status), "coordinator": coordinator, "staging": staging})

    async def commit(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/namespaces/{ns}/writers/{w}/commits"""
        writer = self._named(request)
        self._writers.locate(writer)  # what needs no body is found out before one is read
        with self._json.body_share(request) as share:
            chunks = await take_body(request, share, COMMIT_BODY_BYTES_MAX)
            target = self._writers.locate(writer)
            if isinstance(target, CoordinatorElsewhere):
                return await self._pass_on(request, target, chunks)
            number, uid = target.shell.requests.next_number(), self._writers.staging(writer).uid
            asked = await self._json.parsed(chunks, lambda body: parse_commit(body, number, writer, uid))
            for topic in {share.topic for share in asked.decision.shares}:
                self._internal.check_writable(TopicName(writer.namespace, topic))
            return json_answer(status_object(await self._ask(target, writer, asked)))

    def _named(self, request: web.Request) -> WriterName:
        parse_no_query(request.query)
        writer = parse_writer(request.match_info)
        self._view.check_complete()
        return writer

    async def _ask(self, target: WriterCoordinator, writer: WriterName, asked: CommitAsked | StateAsked) -> Status:
        """Return the answer. Raises the refusal; where another broker decides by now, with its address."""
        try:
            return await target.ask(asked)
        except NotCoordinatorError as error:
            try:
                there = self._writers.locate(writer)
            except HeadraceError:
                raise error from None
            raise (there.error("") if isinstance(there, CoordinatorElsewhere) else error) from error

    async def _pass_on(self, request: web.Request, target: CoordinatorElsewhere, chunks: Chunks) -> web.Response:
        if self._passed_on >= WRITER_REQUESTS_MAX:
            raise ThrottledError("this broker passes on as many requests of writers as it may: ask the coordinator")
        self._passed_on += 1
        try:
            timeout_ms = COMMIT_WAIT_MS_MAX + PRODUCE_TIMEOUT_MS_DEFAULT
            return await self._proxy.forward(request, target, chunks, timeout_ms)
        finally:
            self._passed_on -= 1
