"""What is passed on to a coordinator elsewhere leaves room for what else goes there."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from headrace.core.errors import NotCoordinatorError
from headrace.core.groups.identity import GroupName
from headrace.core.limits import GROUP_REQUESTS_PASSED_ON_MAX
from headrace.core.types import BrokerId, PartitionId
from headrace.http2.client import AsyncTransport
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.groups.coordinators import CoordinatorElsewhere
from headrace_broker.metrics import Metrics
from headrace_broker.proxy import Proxy
from headrace_broker.routes.groups import GroupRoutes
from headrace_broker.serving import Readiness, Serving
from tests.unit.headrace_broker.test_serving import Nothing

THERE = CoordinatorElsewhere(GroupName("default", "billing"), PartitionId(0), BrokerId(1), "http://b1")


class Slow(Proxy):
    """The other broker answers everybody when it is told to."""

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport)
        self.answer = asyncio.Event()

    async def forward(self, *_: Any, **__: Any) -> web.Response:
        await self.answer.wait()
        return web.Response()


async def test_should_pass_on_so_many_requests_at_a_time_and_say_where_to_ask() -> None:
    async with AsyncTransport() as transport:
        proxy = Slow(transport)
        serving = Serving(BrokerId(0), ClusterView("x"), Nothing(), proxy, Metrics(), Readiness())
        routes, request = GroupRoutes(serving), make_mocked_request("POST", "/")
        passing = [
            asyncio.create_task(routes._pass_on(request, THERE, ())) for _ in range(GROUP_REQUESTS_PASSED_ON_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(NotCoordinatorError, match="as many") as refusal:
            await routes._pass_on(request, THERE, ())
        assert refusal.value.details == {"leader": 1, "url": "http://b1"}
        proxy.answer.set()
        await asyncio.gather(*passing)
        assert (await routes._pass_on(request, THERE, ())).status == 200
