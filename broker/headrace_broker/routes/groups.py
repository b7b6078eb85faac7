"""Requests about one consumer group: passed on to its coordinator, or decided here (`headrace_broker.groups`).

`headrace.core.groups.requests` reads a body. Its bytes are counted until it is answered, because the coordinator holds
what it said so long. A heartbeat that waits for news holds none, and is counted among heartbeats alone
(`Admission.heartbeats`).
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
from headrace.core.groups.events import (
    AbsenceReceived,
    DeletionReceived,
    LeaveReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Reply,
    Request,
)
from headrace.core.groups.identity import GroupName, GroupType, TopicShape
from headrace.core.groups.requests import (
    parse_commit,
    parse_heartbeat,
    parse_join,
    parse_offsets_asked,
    parse_reset,
    reply_object,
)
from headrace.core.groups.status import group_object, report_of, with_silences
from headrace.core.limits import GROUP_BODY_BYTES_MAX, JSON_INLINE_BYTES_MAX
from headrace_broker.clock import monotonic_ms
from headrace_broker.groups.coordinating import Coordinating
from headrace_broker.internal_topics.coordinators import CoordinatorElsewhere
from headrace_broker.routes.groups_passing import PassingOn
from headrace_broker.routes.many_items import json_of_many
from headrace_broker.routes.parameters import (
    parse_group,
    parse_group_type,
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
        self._passing = PassingOn(serving.proxy)

    async def coordinator(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/groups/{g}/coordinator"""
        group = self._used(request, parse_group_type(request.query))
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
            return await self._passing.other(request, target, ())
        found, topics = target.find(group), self._groups.topics(group.namespace)
        report = None if found is None else report_of(found.image, found.state, self._serving.me, topics, {})
        if report is not None and found is not None:
            report = with_silences(report, found.silences(monotonic_ms()))
        nothing = OffsetsAsked(target.requests.next_number(), frozenset())
        await self._ask_here(target, group, nothing)  # until it is committed
        if report is None:
            raise UnknownGroupError(f"there is no group {group}: nobody has joined it or committed offsets for it")
        items = sum(len(listed.partitions) for each in report.members for listed in (*each.assignment, *each.owned))
        return await json_of_many(self._serving, request, items + len(report.members), lambda: group_object(report))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/namespaces/{ns}/groups/{g}"""
        group = self._named(request)
        return await self._ask(request, group, lambda _body, number, _topics: DeletionReceived(number))

    async def join(self, request: web.Request) -> web.StreamResponse:
        """PUT /v1/namespaces/{ns}/groups/{g}/members/{m}"""
        group, member = self._used(request), parse_member(request.match_info)
        address = self._serving.client_address(request)
        return await self._ask_with_body(
            request, group, lambda body, number, _: parse_join(body, number, member, address)
        )

    async def heartbeat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/namespaces/{ns}/groups/{g}/members/{m}/heartbeat"""
        group, member = self._used(request), parse_member(request.match_info)
        return await self._ask_with_body(
            request, group, lambda body, number, topics: parse_heartbeat(body, number, member, topics), waits=True
        )

    async def leave(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/namespaces/{ns}/groups/{g}/members/{m}"""
        group, member = self._named(request, query=False), parse_member(request.match_info)
        said = AbsenceReceived if parse_leave(request.query) else LeaveReceived
        return await self._ask(request, group, lambda _body, number, _topics: said(number, member))

    async def commit(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/namespaces/{ns}/groups/{g}/offsets"""
        group_type = parse_group_type(request.query)
        group = self._used(request, group_type)
        return await self._ask_with_body(
            request, group, lambda body, number, topics: parse_commit(body, number, topics, group_type)
        )

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

    def _used(self, request: web.Request, group_type: GroupType | None = None) -> GroupName:
        """By somebody who wants it to be there. `group_type`: as the query says, which is parsed already."""
        group = self._named(request, query=group_type is None)
        self._groups.want(group, group_type or GroupType.CONSUMER)
        return group

    async def _ask_with_body(
        self, request: web.Request, group: GroupName, parse: _Parse, *, waits: bool = False
    ) -> web.StreamResponse:
        """`waits`: a heartbeat, of which nothing is held while it does."""
        self._groups.locate(group)  # what needs no body is found out before one is read
        with self._serving.body_share(request) as share:
            chunks = await take_body(request, share, GROUP_BODY_BYTES_MAX)
            target = self._groups.locate(group)
            if isinstance(target, CoordinatorElsewhere):
                pass_on = self._passing.heartbeat if waits else self._passing.other
                return await pass_on(request, target, chunks)
            number, topics = target.requests.next_number(), self._groups.topics(group.namespace)
            asked = await self._parsed(chunks, lambda body: parse(body, number, topics))
            if not waits and not self._groups.is_known(group):
                self._serving.newcomers.take(self._serving.holder(request), monotonic_ms())
            del chunks
            if waits:
                share.resize(0)
            return await self._answer(request, target, group, asked)

    async def _parsed(self, chunks: Chunks, parse: Callable[[Any], Request]) -> Request:
        """Raises InvalidRequestError, and what `parse` raises."""
        size = sum(map(len, chunks))
        if size <= JSON_INLINE_BYTES_MAX:
            return parse(_json_of(chunks))
        async with self._serving.admission.converting(size):
            return await asyncio.to_thread(lambda: parse(_json_of(chunks)))

    async def _ask(self, request: web.Request, group: GroupName, parse: _Parse) -> web.StreamResponse:
        target = self._groups.locate(group)
        if isinstance(target, CoordinatorElsewhere):
            return await self._passing.other(request, target, ())
        asked = parse(None, target.requests.next_number(), self._groups.topics(group.namespace))
        return await self._answer(request, target, group, asked)

    async def _answer(
        self, request: web.Request, target: Coordinating, group: GroupName, asked: Request
    ) -> web.StreamResponse:
        reply, names = await self._ask_here(target, group, asked), self._groups.names(group.namespace)
        return await json_of_many(self._serving, request, _items(reply), lambda: reply_object(reply, names))

    async def _ask_here(self, target: Coordinating, group: GroupName, asked: Request) -> Reply:
        """The answer, once all that was decided before is committed. Raises what it is refused with."""
        try:
            return await target.ask(group, asked)
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


def _json_of(chunks: Chunks) -> Any:
    """Raises InvalidRequestError."""
    try:
        return json.loads(b"".join(chunks))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", field="body") from error


def _items(reply: Reply) -> int:
    match reply:
        case Offsets(offsets):
            return len(offsets)
        case Membership(_, _, assigned):
            return len(assigned or ())
        case _:
            return 0
