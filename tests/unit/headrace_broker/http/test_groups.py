"""What is passed on to a coordinator elsewhere leaves room for what else goes there, and heartbeats for all else."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from gzip import compress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from headrace.core.errors import NotCoordinatorError
from headrace.core.limits import H2_MAX_CONCURRENT_STREAMS, JSON_INLINE_BYTES_MAX
from headrace.core.types import BrokerId, PartitionId
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.admission import Admission
from headrace_broker.coordinators.coordinators import CoordinatorElsewhere
from headrace_broker.http.app import _counted
from headrace_broker.http.callers import passed_on_for
from headrace_broker.http.groups import GROUP_HEARTBEATS_PASSED_ON_MAX, GROUP_REQUESTS_PASSED_ON_MAX, GroupForwarding
from headrace_broker.http.proxy import Proxy
from tests.support.waiting import eventually

THERE = CoordinatorElsewhere("default/billing", PartitionId(0), BrokerId(1), "http://b1")
NO_NEWS = {"memberEpoch": 1, "revision": 0, "assignment": None, "heartbeatMs": 3_000, "sessionMs": 45_000}


def said(**fields: object) -> bytes:
    return json.dumps({"memberEpoch": 1, "revision": 0, "owned": [], **fields}).encode()


WAITING = said(waitMs=3_000)
HURRIED = said(waitMs=0)
"""So it is passed on where others wait already."""


class Slow(Proxy):
    """Heartbeats wait at the other broker until it is told to answer; everything else is answered at once."""

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport)
        self.answers = asyncio.Event()
        self.waiting = 0
        self.most = 0
        self.told: object = NO_NEWS
        self.is_gzipped = False

    async def forward(self, *asked: Any, **_: Any) -> web.Response:
        chunks: Sequence[bytes] = asked[2]
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if b"".join(chunks) == WAITING:
            await self.answers.wait()
        self.waiting -= 1
        body = json.dumps(self.told).encode()
        return web.Response(
            body=compress(body) if self.is_gzipped else body,
            headers={"Content-Encoding": "gzip"} if self.is_gzipped else {},
        )


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    async with AsyncTransport() as transport:
        yield Slow(transport)


class Pauses:
    """Of answers that are kept here; they end at once."""

    def __init__(self) -> None:
        self.made: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.made.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


Pass = Callable[[web.Request, CoordinatorElsewhere, Sequence[bytes]], Awaitable[web.Response]]


def passed(on: Pass, body: bytes, count: int) -> list["asyncio.Task[web.Response]"]:
    async def one() -> web.Response:
        return await on(make_mocked_request("POST", "/"), THERE, (body,))

    return [asyncio.create_task(one()) for _ in range(count)]


async def test_should_let_hundreds_of_members_wait_and_still_commit_and_leave(slow: Slow, pauses: Pauses) -> None:
    """All of them behind one broker that does not coordinate their group."""
    passing = GroupForwarding(slow, pauses)
    waiting = passed(passing.heartbeat, WAITING, GROUP_HEARTBEATS_PASSED_ON_MAX)
    await eventually(lambda: slow.waiting == GROUP_HEARTBEATS_PASSED_ON_MAX, "as many wait there as may")
    for number in range(200):
        (hurried,) = passed(passing.heartbeat, WAITING, 1)
        assert (await hurried).status == 200
        assert len(pauses.made) == number + 1, "it waits here"
    assert {*pauses.made} == {3.0}
    commits = passed(passing.other, HURRIED, GROUP_REQUESTS_PASSED_ON_MAX)
    assert {(await commit).status for commit in commits} == {200}
    slow.answers.set()
    assert {(await each).status for each in waiting} == {200}
    assert slow.most <= H2_MAX_CONCURRENT_STREAMS // 2, "records go by the same connection"
    assert (await passed(passing.heartbeat, WAITING, 1)[0]).status == 200
    assert len(pauses.made) == 200, "there is room again"


@pytest.mark.parametrize("is_gzipped", [False, True])
async def test_should_hand_over_news_at_once(slow: Slow, pauses: Pauses, is_gzipped: bool) -> None:
    passing = GroupForwarding(slow, pauses)
    slow.is_gzipped = is_gzipped
    waiting = passed(passing.heartbeat, WAITING, GROUP_HEARTBEATS_PASSED_ON_MAX)
    await eventually(lambda: slow.waiting == len(waiting), "as many wait there as may")
    await passed(passing.heartbeat, WAITING, 1)[0]
    slow.told = {**NO_NEWS, "assignment": []}
    await passed(passing.heartbeat, WAITING, 1)[0]
    assert pauses.made == [3.0, 0.0]
    slow.answers.set()
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("body", [b"{", b"[" * (JSON_INLINE_BYTES_MAX + 1)])
async def test_should_leave_it_to_the_coordinator_what_is_wrong_with_a_heartbeat(
    slow: Slow, pauses: Pauses, body: bytes
) -> None:
    passing = GroupForwarding(slow, pauses)
    waiting = passed(passing.heartbeat, WAITING, GROUP_HEARTBEATS_PASSED_ON_MAX)
    await eventually(lambda: slow.waiting == len(waiting), "as many wait there as may")
    assert (await passed(passing.heartbeat, body, 1)[0]).status == 200
    assert pauses.made == [0.0]
    slow.answers.set()
    await asyncio.gather(*waiting)


async def test_should_pass_on_so_many_requests_at_a_time_and_say_where_to_ask(slow: Slow) -> None:
    passing = GroupForwarding(slow)
    others = passed(passing.other, WAITING, GROUP_REQUESTS_PASSED_ON_MAX)
    await eventually(lambda: slow.waiting == GROUP_REQUESTS_PASSED_ON_MAX, "as many are asked as may")
    with pytest.raises(NotCoordinatorError, match="as many") as refusal:
        await passed(passing.other, WAITING, 1)[0]
    assert refusal.value.details == {"leader": 1, "url": "http://b1"}
    slow.answers.set()
    await asyncio.gather(*others)
    assert (await passed(passing.other, WAITING, 1)[0]).status == 200


@pytest.mark.parametrize(("named", "address"), [("10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("x" * 9, None), ("1", None)])
def test_should_believe_no_address_that_is_none(named: str, address: str | None) -> None:
    """It stands in the group's status."""
    assert passed_on_for(make_mocked_request("PUT", "/", {"Headrace-Proxied": named})) == address


def test_should_count_questions_with_a_body_once_that_is_there() -> None:
    admission = Admission()
    for path in ("/v1/brokers/1/watermarks", "/v1/brokers/1/promises"):
        assert _counted(admission, make_mocked_request("POST", path)) is admission.others
    assert _counted(admission, make_mocked_request("GET", "/v1/brokers/1/held")) is admission.control
