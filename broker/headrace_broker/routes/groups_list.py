"""GET of the groups of a namespace: of all brokers that coordinate any, as far as they answer.

One hop only, as with everything: a broker that is asked by another one tells what it coordinates itself.
"""

import asyncio
import json

from aiohttp import web

from headrace.core.errors import HeadraceError
from headrace.core.groups.status import GroupSummary, groups_object, parse_groups
from headrace.core.limits import GROUP_LIST_TIMEOUT_MS, LOOK_ITEMS_MAX
from headrace.core.types import BrokerId
from headrace_broker.proxy import PROXIED_HEADER
from headrace_broker.routes.many_items import json_of_many
from headrace_broker.routes.parameters import parse_no_query
from headrace_broker.routes.peers import Peer
from headrace_broker.serving import Serving


class GroupsRoute:
    """GET /v1/namespaces/{ns}/groups"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        parse_no_query(request.query)
        self._serving.check_view()
        me, namespace = self._serving.me, request.match_info["namespace"]
        found = {summary.group: summary for summary in await self._summaries(namespace)}
        unreachable = {me} if self._serving.groups.is_loading else set()
        if PROXIED_HEADER not in request.headers:
            leaders = self._serving.groups.leaders()
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
        return await json_of_many(
            self._serving, request, len(found), lambda: groups_object(found.values(), unreachable)
        )

    async def _summaries(self, namespace: str) -> list[GroupSummary]:
        """Others have the event loop in between: there may be many thousands, of all namespaces."""
        found: list[GroupSummary] = []
        for at, group in enumerate(self._serving.groups.all(), 1):
            image = group.image
            if image.name.namespace == namespace:
                members = len(image.members)
                found.append(GroupSummary(image.name.name, group.state, members, self._serving.me, image.group.type))
            if at % LOOK_ITEMS_MAX == 0:
                await asyncio.sleep(0)
        return found

    async def _ask(
        self, request: web.Request, peer: Peer
    ) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]] | None:
        """None where it cannot be had."""
        try:
            answer = await self._serving.proxy.send(
                peer, "GET", request.path, headers={}, body=(), timeout_ms=GROUP_LIST_TIMEOUT_MS
            )
            return await asyncio.to_thread(_parsed, answer) if answer.status == 200 else None
        except (HeadraceError, ValueError):
            return None


def _parsed(answer: web.Response) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]]:
    return parse_groups(json.loads(answer.text or ""))
