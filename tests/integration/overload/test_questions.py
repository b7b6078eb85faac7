"""What operators and brokers ask is answered whatever clients do: unfinished questions take no place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.core.types import BrokerId
from headrace_broker.admission import CONTROL_REQUESTS_IN_FLIGHT_MAX
from headrace_broker.cluster.lease import vacant_lease
from headrace_broker.http.uploads import CONTROL_UPLOADS_MAX
from tests.support.broker_app import BrokerApp, running_app
from tests.support.patience import patient
from tests.support.waiting import eventually

HOG, OPERATOR = "127.0.0.2", "127.0.0.3"
PROMISES, WATERMARKS = "/v1/brokers/0/promises", "/v1/brokers/0/watermarks"
BODY = b'{"partitions": []}'


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[BrokerApp]:
    async with running_app(tmp_path / "data") as app:
        app.components.view.put_lease(vacant_lease(BrokerId(0), "default", "headrace", app.url, ""), 0)
        yield app


class Asker:
    """Questions over connections of its own, each of which stays open until the block ends."""

    def __init__(self, app: BrokerApp, source: str, stack: AsyncExitStack) -> None:
        self._port = app.server.port
        self._source = source
        self._stack = stack

    async def ask(self, path: str, body: bytes, length: int) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._source, 0))
        self._stack.callback(writer.close)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: broker\r\nContent-Length: {length}\r\n\r\n".encode() + body)
        await writer.drain()
        return reader

    async def answer(self, path: str) -> int:
        return await status(await self.ask(path, BODY, len(BODY)))


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(patient(30)):
        return int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])


@pytest.mark.parametrize("path", [PROMISES, WATERMARKS])
async def test_should_answer_the_operator_when_a_client_leaves_questions_unfinished(app: BrokerApp, path: str) -> None:
    app.components.questions.timeout_ms = 600_000
    async with AsyncExitStack() as stack:
        hog, operator = Asker(app, HOG, stack), Asker(app, OPERATOR, stack)
        unfinished = [await hog.ask(path, b"{", 1000) for _ in range(CONTROL_REQUESTS_IN_FLIGHT_MAX + 1)]
        await eventually(lambda: app.components.questions.arriving == len(unfinished), "all of them are on their way")
        assert await operator.answer(path) == 200
        assert await hog.answer(path) == 200


async def test_should_end_the_oldest_question_of_whoever_has_most(app: BrokerApp) -> None:
    app.components.questions.timeout_ms = 600_000
    async with AsyncExitStack() as stack:
        hog, operator = Asker(app, HOG, stack), Asker(app, OPERATOR, stack)
        slow = await operator.ask(PROMISES, BODY[:-1], len(BODY))
        await eventually(lambda: app.components.questions.arriving == 1, "the operator's")
        first = await hog.ask(PROMISES, b"{", 1000)
        await eventually(lambda: app.components.questions.arriving == 2, "the oldest")
        others = [await hog.ask(PROMISES, b"{", 1000) for _ in range(CONTROL_UPLOADS_MAX - 2)]
        await eventually(lambda: app.components.questions.arriving == CONTROL_UPLOADS_MAX, "as many as may be")
        assert await operator.answer(PROMISES) == 200
        assert await status(first) == 429
        assert not slow.at_eof()
        assert len(others) == CONTROL_UPLOADS_MAX - 2


async def test_should_not_wait_long_for_a_question(app: BrokerApp) -> None:
    app.components.questions.timeout_ms = 50
    async with AsyncExitStack() as stack:
        assert await status(await Asker(app, HOG, stack).ask(PROMISES, b"{", 1000)) == 408
    await eventually(lambda: app.components.questions.arriving == 0, "it is forgotten")
