"""The requests about consumer groups: passed on to their coordinator, or decided here (`headrace_broker.coordinators`).

The bodies are those of `headrace.core.groups.requests`. Their bytes are counted until they are answered: so long the
coordinator holds what they said. A heartbeat that waits for news holds none, and is counted among heartbeats alone
(`Admission.heartbeats`).

`GroupForwarding` bounds the requests that are passed on: each holds a stream between two brokers for as long as its
answer takes, and records go by the same connection. Heartbeats that wait have a bound of their own, so that a thousand
members never keep anybody from committing or leaving. Above it they are answered at once there, and wait here
(`heartbeat_without_waiting`). One per broker.

GET of the groups of a namespace asks all brokers that coordinate any, as far as they answer. One hop only, as with
everything: a broker that is asked by another one tells what it coordinates itself. Documents that list much are made in
a thread, and counted among answers until the client has taken them.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from gzip import decompress

from aiohttp import web

from headrace.core.errors import (
    CoordinatorLoadingError,
    HeadraceError,
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
    answer_pause_ms,
    heartbeat_without_waiting,
    parse_commit,
    parse_heartbeat,
    parse_join,
    parse_offsets_asked,
    parse_reset,
    reply_object,
)
from headrace.core.groups.status import (
    GroupSummary,
    group_object,
    groups_object,
    parse_groups,
    report_of,
    with_silences,
)
from headrace.core.limits import (
    H2_MAX_CONCURRENT_STREAMS,
    JSON_INLINE_BYTES_MAX,
    LOOK_ITEMS_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
)
from headrace.core.types import BrokerId
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.coordinators import CoordinatorElsewhere, GroupCoordinators
from headrace_broker.coordinators.group_coordinator import GroupCoordinator
from headrace_broker.http.callers import PROXIED_HEADER, Callers
from headrace_broker.http.control import Peer
from headrace_broker.http.json_bodies import JsonBodies, json_answer
from headrace_broker.http.parameters import (
    parse_group,
    parse_group_type,
    parse_leave,
    parse_member,
    parse_no_query,
    parse_topics_asked,
)
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.uploads import Chunks, take_body

GROUP_BODY_BYTES_MAX = 8 << 20
"""The limit of a request about a group: a commit of OFFSETS_PER_COMMIT_MAX offsets with some metadata."""
GROUP_LIST_TIMEOUT_MS = 2_000
"""The time that other brokers get to say which groups they coordinate."""
GROUP_HEARTBEATS_PASSED_ON_MAX = 3 * H2_MAX_CONCURRENT_STREAMS // 10
"""Heartbeats that wait at other brokers: more are passed on without a wait there."""
GROUP_REQUESTS_PASSED_ON_MAX = 2 * H2_MAX_CONCURRENT_STREAMS // 10
"""All other requests about groups, at one time: records go to other brokers by the same connections."""
_Topics = Mapping[str, TopicShape]
_Parse = Callable[[object, int, _Topics], Request]
"""A function that makes the request of the body, the request's number, and the topics of the group's namespace."""


class GroupForwarding:
    def __init__(self, proxy: Proxy, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._proxy = proxy
        self._sleep = sleep
        self._heartbeats = 0
        """The number of heartbeats that other brokers have yet to answer, and that may wait there."""
        self._others = 0

    async def heartbeat(self, request: web.Request, target: CoordinatorElsewhere, chunks: Chunks) -> web.Response:
        """Pass a heartbeat on. Raises what `other` raises."""
        if self._heartbeats < GROUP_HEARTBEATS_PASSED_ON_MAX:
            self._heartbeats += 1
            try:
                return await self._proxy.forward(request, target, chunks, PRODUCE_TIMEOUT_MS_DEFAULT)
            finally:
                self._heartbeats -= 1
        is_small = sum(map(len, chunks)) <= JSON_INLINE_BYTES_MAX
        hurried, wait_ms = _hurried(chunks) if is_small else await asyncio.to_thread(_hurried, chunks)
        answer = await self.other(request, target, (hurried,))
        if answer.status == 200:
            await self._sleep(answer_pause_ms(_told(answer), wait_ms) / 1000)
        return answer

    async def other(self, request: web.Request, target: CoordinatorElsewhere, chunks: Chunks) -> web.Response:
        """Pass a request on. Raises NotCoordinatorError where other brokers have as many to answer as may be."""
        if self._others >= GROUP_REQUESTS_PASSED_ON_MAX:
            raise target.error("; ask there: this one passes on as many requests about groups as it may")
        self._others += 1
        try:
            return await self._proxy.forward(request, target, chunks, PRODUCE_TIMEOUT_MS_DEFAULT)
        finally:
            self._others -= 1


def _hurried(chunks: Chunks) -> tuple[bytes, int]:
    whole = b"".join(chunks)
    try:
        body, wait_ms = heartbeat_without_waiting(json.loads(whole))
    except (ValueError, RecursionError):
        return whole, 0  # which says the coordinator
    return json.dumps(body).encode(), wait_ms


def _told(answer: web.Response) -> object:
    assert isinstance(answer.body, bytes), "it was read whole"
    return json.loads(decompress(answer.body) if "Content-Encoding" in answer.headers else answer.body)


class GroupsRoute:
    """GET /v1/namespaces/{ns}/groups"""

    def __init__(
        self, me: BrokerId, view: ClusterView, groups: GroupCoordinators, json_bodies: JsonBodies, proxy: Proxy
    ) -> None:
        self._me = me
        self._view = view
        self._groups = groups
        self._json = json_bodies
        self._proxy = proxy

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        parse_no_query(request.query)
        self._view.check_complete()
        me, namespace = self._me, request.match_info["namespace"]
        found = {summary.group: summary for summary in await self._summaries(namespace)}
        unreachable = {me} if self._groups.local.is_loading else set()
        if PROXIED_HEADER not in request.headers:
            leaders = self._groups.leaders()
            peers = [Peer(broker, url) for broker, url in leaders.items() if broker != me]
            for peer, theirs in zip(
                peers, await asyncio.gather(*(self._ask(request, each) for each in peers)), strict=True
            ):
                if theirs is None:
                    unreachable.add(peer.broker)
                    continue
                summaries, missing = theirs
                unreachable |= set(missing)
                found |= {summary.group: summary for summary in summaries}
        return await self._json.answer_of_many(request, len(found), lambda: groups_object(found.values(), unreachable))

    async def _summaries(self, namespace: str) -> list[GroupSummary]:
        """Return a namespace's groups. Others have the event loop in between: there may be many thousands in all."""
        found: list[GroupSummary] = []
        for at, group in enumerate(self._groups.all(), 1):
            image = group.image
            if image.name.namespace == namespace:
                members = len(image.members)
                found.append(GroupSummary(image.name.name, group.state, members, self._me, image.group.type))
            if at % LOOK_ITEMS_MAX == 0:
                await asyncio.sleep(0)
        return found

    async def _ask(
        self, request: web.Request, peer: Peer
    ) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]] | None:
        """Ask another broker for its groups; None where the answer cannot be had."""
        try:
            answer = await self._proxy.send(
                peer, "GET", request.path, headers={}, body=(), timeout_ms=GROUP_LIST_TIMEOUT_MS
            )
            return await asyncio.to_thread(_parsed, answer) if answer.status == 200 else None
        except (HeadraceError, ValueError):
            return None


def _parsed(answer: web.Response) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]]:
    return parse_groups(json.loads(answer.text or ""))


class GroupRoutes:
    def __init__(
        self,
        me: BrokerId,
        view: ClusterView,
        groups: GroupCoordinators,
        callers: Callers,
        json_bodies: JsonBodies,
        proxy: Proxy,
    ) -> None:
        self._me = me
        self._view = view
        self._groups = groups
        self._callers = callers
        self._json = json_bodies
        self._forwarding = GroupForwarding(proxy)

    async def coordinator(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/groups/{g}/coordinator"""
        group = self._used(request, parse_group_type(request.query))
        target = self._groups.locate(group)
        broker = target.broker if isinstance(target, CoordinatorElsewhere) else self._me
        url = self._view.url_of(broker)
        if not url:
            raise CoordinatorLoadingError(f"broker {broker} coordinates {group}, but its URL is not known; try again")
        return json_answer({"partition": self._groups.partition_of(group), "broker": broker, "url": url})

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/groups/{g}"""
        group = self._named(request)
        target = self._groups.locate(group)
        if isinstance(target, CoordinatorElsewhere):
            return await self._forwarding.other(request, target, ())
        found, topics = target.find(group), self._groups.topics(group.namespace)
        report = None if found is None else report_of(found.image, found.state, self._me, topics, {})
        if report is not None and found is not None:
            report = with_silences(report, found.silences(monotonic_ms()))
        nothing = OffsetsAsked(target.shell.requests.next_number(), frozenset())
        await self._ask_here(target, group, nothing)  # until it is committed
        if report is None:
            raise UnknownGroupError(f"there is no group {group}: nobody has joined it or committed offsets for it")
        items = sum(len(listed.partitions) for each in report.members for listed in (*each.assignment, *each.owned))
        return await self._json.answer_of_many(request, items + len(report.members), lambda: group_object(report))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/namespaces/{ns}/groups/{g}"""
        group = self._named(request)
        return await self._ask(request, group, lambda _body, number, _topics: DeletionReceived(number))

    async def join(self, request: web.Request) -> web.StreamResponse:
        """PUT /v1/namespaces/{ns}/groups/{g}/members/{m}"""
        group, member = self._used(request), parse_member(request.match_info)
        address = self._callers.address(request)
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
        """Return the group's name; `query`: check that none is given. Raises InvalidRequestError, NotReadyError."""
        if query:
            parse_no_query(request.query)
        group = parse_group(request.match_info)
        self._view.check_complete()
        return group

    def _used(self, request: web.Request, group_type: GroupType | None = None) -> GroupName:
        """The group of somebody who wants it to be there. `group_type`: as the query says, which is parsed already."""
        group = self._named(request, query=group_type is None)
        self._groups.want(group, group_type or GroupType.CONSUMER)
        return group

    async def _ask_with_body(
        self, request: web.Request, group: GroupName, parse: _Parse, *, waits: bool = False
    ) -> web.StreamResponse:
        """Ask the coordinator with the request's body; `waits`: a heartbeat, which is not held while it waits."""
        self._groups.locate(group)  # what needs no body is found out before one is read
        with self._json.body_share(request) as share:
            chunks = await take_body(request, share, GROUP_BODY_BYTES_MAX)
            target = self._groups.locate(group)
            if isinstance(target, CoordinatorElsewhere):
                pass_on = self._forwarding.heartbeat if waits else self._forwarding.other
                return await pass_on(request, target, chunks)
            number, topics = target.shell.requests.next_number(), self._groups.topics(group.namespace)
            asked = await self._json.parsed(chunks, lambda body: parse(body, number, topics))
            if not waits and not self._groups.is_known(group):
                self._callers.take_new_group(request)
            del chunks
            if waits:
                share.resize(0)
            return await self._answer(request, target, group, asked)

    async def _ask(self, request: web.Request, group: GroupName, parse: _Parse) -> web.StreamResponse:
        target = self._groups.locate(group)
        if isinstance(target, CoordinatorElsewhere):
            return await self._forwarding.other(request, target, ())
        asked = parse(None, target.shell.requests.next_number(), self._groups.topics(group.namespace))
        return await self._answer(request, target, group, asked)

    async def _answer(
        self, request: web.Request, target: GroupCoordinator, group: GroupName, asked: Request
    ) -> web.StreamResponse:
        reply, names = await self._ask_here(target, group, asked), self._groups.names(group.namespace)
        return await self._json.answer_of_many(request, _items(reply), lambda: reply_object(reply, names))

    async def _ask_here(self, target: GroupCoordinator, group: GroupName, asked: Request) -> Reply:
        """Return the answer, once all that was decided before is committed. Raises the refusal of the request."""
        try:
            return await target.ask(group, asked)
        except NotCoordinatorError as error:
            raise self._with_leader(group, error) from error

    def _with_leader(self, group: GroupName, error: NotCoordinatorError) -> NotCoordinatorError:
        """Return the same error; where another broker coordinates, with its address."""
        try:
            target = self._groups.locate(group)
        except HeadraceError:
            return error
        if isinstance(target, CoordinatorElsewhere):
            return NotCoordinatorError(error.message, leader=target.broker, url=target.url)
        return error


def _items(reply: Reply) -> int:
    match reply:
        case Offsets(offsets):
            return len(offsets)
        case Membership(_, _, assigned):
            return len(assigned or ())
        case _:
            return 0
