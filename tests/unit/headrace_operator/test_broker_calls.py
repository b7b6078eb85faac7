"""Errands at real HTTP servers that are no brokers: whoever is away is passed over, what is answered counts.

What brokers hold is asked beside the loop, and believed once.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web

from headrace.core.control.broker_reports import BrokerReport
from headrace.core.control.group_errands import DONE, Answer, ErrandVerdict
from headrace.core.control.observed import Observed
from headrace.core.errors import BrokerUnreachableError, GroupNotEmptyError, RemoteError, to_problem
from headrace.core.groups.requests import GroupCall
from headrace.core.types import BrokerId, TopicUid
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server import serve
from headrace_operator.broker_calls import GROUP_ERRAND_REQUESTS_MAX, GroupCalls, Inquiry
from tests.support.partition_sets import seat
from tests.support.patience import patient
from tests.support.waiting import eventually

NOWHERE = "http://127.0.0.1:9"


@asynccontextmanager
async def broker(*answers: web.Response) -> AsyncIterator[tuple[str, list[Any]]]:
    """Its URL, and what it was asked; it answers in turn."""
    asked: list[Any] = []
    left = [*answers]

    async def handle(request: web.Request) -> web.Response:
        asked.append((request.method, request.path_qs, await request.text()))
        return left.pop(0)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    server = await serve(app, host="127.0.0.1", port=0)
    try:
        yield f"http://127.0.0.1:{server.port}", asked
    finally:
        await server.close(0)


async def answers_of(urls: list[str], *calls: GroupCall) -> list[Answer]:
    heard: list[Answer] = []

    def errand() -> Generator[Sequence[GroupCall], Sequence[Answer], ErrandVerdict]:
        heard.extend((yield calls))
        return DONE

    async with AsyncTransport() as transport:
        assert await GroupCalls(transport).carry_out(errand(), urls) == DONE
    return heard


async def test_should_pass_over_brokers_that_are_away() -> None:
    async with broker(web.json_response({"offset": 7})) as (url, asked):
        assert await answers_of([NOWHERE, url], GroupCall("POST", "/v1/x?a=b", {"id": "a"})) == [{"offset": 7}]
    assert asked == [("POST", "/v1/x?a=b", '{"id": "a"}')]


async def test_should_ask_nobody_else_where_one_has_answered() -> None:
    refused = web.json_response(to_problem(GroupNotEmptyError("m1 is in it")), status=409)
    async with broker(refused) as (url, _), broker() as (other, asked):
        (answer,) = await answers_of([url, other], GroupCall("DELETE", "/v1/x", None))
    assert isinstance(answer, GroupNotEmptyError)
    assert asked == []


async def test_should_say_that_nobody_answers() -> None:
    for urls in ([], [NOWHERE]):
        (answer,) = await answers_of(urls, GroupCall("GET", "/v1/x", None))
        assert isinstance(answer, BrokerUnreachableError)


async def test_should_make_an_error_of_what_is_no_answer() -> None:
    odd = [web.Response(text="who?", status=404), web.json_response([1]), web.Response(text="<html>")]
    async with broker(*odd) as (url, _):
        for _ in odd:
            (answer,) = await answers_of([url], GroupCall("GET", "/v1/x", None))
            assert isinstance(answer, RemoteError)


async def test_should_not_let_one_errand_with_many_requests_hold_up_another() -> None:
    going_on = asyncio.Event()
    waiting: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        if request.path == "/v1/many":
            waiting.append(request.path)
            await going_on.wait()
        return web.json_response({})

    def errand(*calls: GroupCall) -> Generator[Sequence[GroupCall], Sequence[Answer], ErrandVerdict]:
        yield calls
        return DONE

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    server = await serve(app, host="127.0.0.1", port=0)
    urls = [f"http://127.0.0.1:{server.port}"]
    async with AsyncTransport() as transport:
        sent = GroupCalls(transport)
        many = [GroupCall("GET", "/v1/many", None)] * (2 * GROUP_ERRAND_REQUESTS_MAX)
        long = asyncio.create_task(sent.carry_out(errand(*many), urls))
        await eventually(lambda: len(waiting) == GROUP_ERRAND_REQUESTS_MAX, "it has all that it may have under way")
        async with asyncio.timeout(patient(60)):
            assert await sent.carry_out(errand(GroupCall("GET", "/v1/one", None)), urls) == DONE
        assert not long.done()
        going_on.set()
        await long
    await server.close(0)


ONE, OTHER = TopicUid("uid-1"), TopicUid("uid-2")
OBSERVED = Observed("main", (), {})
REPORTS = {BrokerId(0): BrokerReport(seat(0), {}, {})}


class Brokers:
    """They answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Sequence[TopicUid]] = []
        self.rings = 0
        self.may_answer = asyncio.Event()

    async def reported(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        self.asked.append(uids)
        await self.may_answer.wait()
        self.may_answer.clear()
        return replace(observed, reports=REPORTS, asked=frozenset(uids))

    def ring(self) -> None:
        self.rings += 1


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
async def inquiry(brokers: Brokers) -> AsyncIterator[Inquiry]:
    inquiry = Inquiry(cast("Any", brokers), brokers.ring)
    task = asyncio.create_task(inquiry.run())
    yield inquiry
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def answer(brokers: Brokers) -> None:
    rings = brokers.rings
    brokers.may_answer.set()
    await eventually(lambda: brokers.rings > rings, "it rings")


async def test_should_ask_without_waiting_and_hand_out_what_was_said_once(brokers: Brokers, inquiry: Inquiry) -> None:
    for _ in range(3):
        assert inquiry.take(OBSERVED, (ONE,)) == OBSERVED
        await eventually(lambda: len(brokers.asked) == 1, "it asks, once")
    await answer(brokers)
    assert inquiry.take(OBSERVED, (ONE,)) == replace(OBSERVED, reports=REPORTS, asked={ONE})
    assert inquiry.take(OBSERVED, (ONE,)) == OBSERVED, "it may not be so any more"
    await eventually(lambda: len(brokers.asked) == 2, "it asks anew")


async def test_should_ask_of_what_came_while_it_asked(brokers: Brokers, inquiry: Inquiry) -> None:
    inquiry.take(OBSERVED, (ONE,))
    await eventually(lambda: len(brokers.asked) == 1, "it asks")
    inquiry.take(OBSERVED, (ONE, OTHER))
    await answer(brokers)
    assert inquiry.take(OBSERVED, (ONE, OTHER)).asked == {ONE}
    await eventually(lambda: len(brokers.asked) == 2, "it asks of both")
    await answer(brokers)
    assert inquiry.take(OBSERVED, (ONE, OTHER)).asked == {ONE, OTHER}


async def test_should_not_use_what_was_asked_for_when_it_acted_last(brokers: Brokers, inquiry: Inquiry) -> None:
    inquiry.take(OBSERVED, (ONE,))
    await eventually(lambda: len(brokers.asked) == 1, "it asks")
    inquiry.drop()
    brokers.may_answer.set()
    await eventually(lambda: not brokers.may_answer.is_set(), "they answer")
    assert inquiry.take(OBSERVED, (ONE,)) == OBSERVED
    await eventually(lambda: len(brokers.asked) == 2, "it asks anew")
    assert brokers.rings == 0
    inquiry.take(OBSERVED, (OTHER,))
    inquiry.drop()
    await answer_unheard(brokers)
    assert (len(brokers.asked), brokers.rings) == (2, 0)


async def answer_unheard(brokers: Brokers) -> None:
    brokers.may_answer.set()
    await eventually(lambda: not brokers.may_answer.is_set(), "they answer")
