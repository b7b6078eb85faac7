"""Errands at real HTTP servers that are no brokers: whoever is away is passed over, what is answered counts."""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from headrace.core.control.group_errands import DONE, Answer, ErrandVerdict
from headrace.core.errors import BrokerUnreachableError, GroupNotEmptyError, RemoteError, to_problem
from headrace.core.groups.requests import GroupCall
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server import serve
from headrace_operator.broker_calls import GROUP_ERRAND_REQUESTS_MAX, GroupCalls
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
