"""Requests about one consumer group: passed on to its coordinator, or decided here (`headrace_broker.groups`).

What a body says is `headrace.core.groups.wire`'s. A heartbeat that waits for news holds no bytes, and is counted among
heartbeats alone (`Admission.heartbeats`).
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from headrace.core.errors import (
    CoordinatorLoadingError,
    HeadraceError,
    InvalidRequestError,
    NotCoordinatorError,
    UnknownGroupError,
)
from headrace.core.groups.describing import group_object
from headrace.core.groups.events import (
    AbsenceReceived,
    DeletionReceived,
    LeaveReceived,
    OffsetsAsked,
    Reply,
    Request,
)
from headrace.core.groups.identity import GroupName, TopicShape
from headrace.core.groups.status import report_of
from headrace.core.groups.wire import (
    parse_commit,
    parse_heartbeat,
    parse_join,
    parse_offsets_asked,
    parse_reset,
    reply_object,
)
from headrace.core.limits import (
    GROUP_BODY_BYTES_MAX,
    GROUP_REQUESTS_PASSED_ON_MAX,
    JSON_INLINE_BYTES_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
)
from headrace_broker.groups.coordinating import Coordinating
from headrace_broker.groups.coordinators import CoordinatorElsewhere
from headrace_broker.proxy import client_address
from headrace_broker.routes.parameters import (
    parse_group,
    parse_leave,
    parse_member,
    parse_no_query,
    parse_topics_asked,
)
from headrace_broker.routes.produce import json_answer
from headrace_broker.routes.uploads import Chunks, take_body
from headrace_broker.serving import Serving

_Topics = Mapping[str, TopicShape]
_Parse = Callable[[object, int, _Topics], Request]
"""From the body, the request's number, and the topics of the group's namespace."""


class GroupRoutes:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._groups = serving.groups
        self._passed_on = 0
        """Requests that other brokers have yet to answer."""

    async def coordinator(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/groups/{g}/coordinator"""
        group = self._used(request)
        target = self._groups.locate(group)
        broker = target.broker if isinstance(target, CoordinatorElsewhere) else self._serving.me
        url = self._serving.url_of(broker)
        if not url:
            raise CoordinatorLoadingError(f"broker {broker} coordinates {group}, but its URL is not known; try again")
        return json_answer({"partition": self._groups.partition_of(group), "broker": broker, "url": url})

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/groups/{g}"""
        group = self._named(request)
        target = self._groups.locate(group)
        if isinstance(target, CoordinatorElsewhere):
            return await self._pass_on(request, target, ())
        found, topics = target.find(group), self._groups.topics(group.namespace)
        report = None if found is None else report_of(found.image, found.state, self._serving.me, topics, {})
        await self._ask_here(target, group, lambda number: OffsetsAsked(number, frozenset()))  # until it is committed
        if report is None:
            raise UnknownGroupError(f"there is no group {group}: nobody has joined it or committed offsets for it")
        return json_answer(group_object(report))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/namespaces/{ns}/groups/{g}"""
        group = self._named(request)
        return await self._ask(request, group, lambda _body, number, _topics: DeletionReceived(number))

    async def join(self, request: web.Request) -> web.StreamResponse:
        """PUT /v1/namespaces/{ns}/groups/{g}/members/{m}"""
        group, member = self._used(request), parse_member(request.match_info)
        address = client_address(request)
        return await self._ask_with_body(
            request, group, lambda body, number, _: parse_join(body, number, member, address)
        )

    async def heartbeat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/namespaces/{ns}/groups/{g}/members/{m}/heartbeat"""
        group, member = self._used(request), parse_member(request.match_info)
        return await self._ask_with_body(
            request, group, lambda body, number, topics: parse_heartbeat(body, number, member, topics)
        )

    async def leave(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/namespaces/{ns}/groups/{g}/members/{m}"""
        group, member = self._named(request, query=False), parse_member(request.match_info)
        said = AbsenceReceived if parse_leave(request.query) else LeaveReceived
        return await self._ask(request, group, lambda _body, number, _topics: said(number, member))

    async def commit(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/namespaces/{ns}/groups/{g}/offsets"""
        return await self._ask_with_body(request, self._used(request), parse_commit)

    async def offsets(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/groups/{g}/offsets"""
        group, names = self._named(request, query=False), parse_topics_asked(request.query)
        return await self._ask(request, group, lambda _, number, topics: parse_offsets_asked(names, number, topics))

    async def reset(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/namespaces/{ns}/groups/{g}/reset"""
        return await self._ask_with_body(request, self._used(request), parse_reset)

    def _named(self, request: web.Request, *, query: bool = True) -> GroupName:
        """Raises InvalidRequestError, NotReadyError. `query`: that none is taken is checked as well."""
        if query:
            parse_no_query(request.query)
        group = parse_group(request.match_info)
        self._serving.check_view()
        return group

    def _used(self, request: web.Request) -> GroupName:
        """By somebody who wants it to be there."""
        group = self._named(request)
        self._groups.want(group)
        return group

    async def _ask_with_body(self, request: web.Request, group: GroupName, parse: _Parse) -> web.StreamResponse:
        self._groups.locate(group)  # what needs no body is found out before one is read
        with self._serving.bodies.share() as share:
            chunks = await take_body(request, share, GROUP_BODY_BYTES_MAX)
            target = self._groups.locate(group)
            if isinstance(target, CoordinatorElsewhere):
                return await self._pass_on(request, target, chunks)
            body = await _json_of(chunks)
        return await self._answer(target, group, body, parse)

    async def _ask(self, request: web.Request, group: GroupName, parse: _Parse) -> web.StreamResponse:
        target = self._groups.locate(group)
        if isinstance(target, CoordinatorElsewhere):
            return await self._pass_on(request, target, ())
        return await self._answer(target, group, None, parse)

    async def _pass_on(self, request: web.Request, target: CoordinatorElsewhere, chunks: Chunks) -> web.StreamResponse:
        """Raises NotCoordinatorError where others wait at the other broker already, as many as may."""
        if self._passed_on >= GROUP_REQUESTS_PASSED_ON_MAX:
            raise target.error("; ask there: this one passes on as many requests about groups as it may")
        self._passed_on += 1
        try:
            return await self._serving.proxy.forward(request, target, chunks, PRODUCE_TIMEOUT_MS_DEFAULT)
        finally:
            self._passed_on -= 1

    async def _answer(self, target: Coordinating, group: GroupName, body: object, parse: _Parse) -> web.StreamResponse:
        topics = self._groups.topics(group.namespace)
        reply = await self._ask_here(target, group, lambda number: parse(body, number, topics))
        return json_answer(reply_object(reply, self._groups.names(group.namespace)))

    async def _ask_here(self, target: Coordinating, group: GroupName, make: Callable[[int], Request]) -> Reply:
        """The answer, once all that was decided before is committed. Raises what it is refused with."""
        try:
            return await self._groups.ask(target, group, make)
        except NotCoordinatorError as error:
            raise self._with_leader(group, error) from error

    def _with_leader(self, group: GroupName, error: NotCoordinatorError) -> NotCoordinatorError:
        """The same error; where another broker coordinates, with its address."""
        try:
            target = self._groups.locate(group)
        except HeadraceError:
            return error
        if isinstance(target, CoordinatorElsewhere):
            return NotCoordinatorError(error.message, leader=target.broker, url=target.url)
        return error


async def _json_of(chunks: Chunks) -> Any:
    """Raises InvalidRequestError."""
    size = sum(map(len, chunks))
    if size <= JSON_INLINE_BYTES_MAX:
        return _parsed(chunks)
    return await asyncio.to_thread(_parsed, chunks)


def _parsed(chunks: Chunks) -> Any:
    try:
        return json.loads(b"".join(chunks))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", field="body") from error
