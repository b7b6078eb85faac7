"""What requests about groups may take of a broker: bodies that wait for their records, records that wait for followers,
answers that list much."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.core.groups import group_machine
from headrace.core.groups.group import OFFSETS_BYTES_PER_COMMIT_MAX
from headrace.core.groups.identity import OFFSETS_TOPIC, GroupName, GroupSettings
from headrace.core.groups.publishing import Newcomers
from headrace.core.groups.requests import reply_object
from headrace.core.limits import JSON_INLINE_BYTES_MAX, OFFSET_METADATA_BYTES_MAX, TOPIC_PARTITIONS_MAX
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import TopicUid
from headrace.http2.async_transport import AsyncResponse, AsyncTransport
from headrace_broker.http import groups
from headrace_broker.http.json_bodies import JSON_INLINE_ITEMS_MAX
from tests.support.broker_app import KEY, BrokerApp, running_app
from tests.support.waiting import eventually


def topic(name: str, uid: TopicUid, partitions: int) -> Topic:
    metadata = Metadata(namespace="default", name=name, uid=uid)
    return Topic(metadata, TopicSpec.parse({"partitions": partitions, "replicas": 1}))


@dataclass
class Caller:
    app: BrokerApp
    transport: AsyncTransport

    async def call(self, method: str, path: str, body: object = None) -> tuple[AsyncResponse, Any]:
        answer = await self.transport.request(
            method,
            f"http://127.0.0.1:{self.app.server.port}/v1/namespaces/default/groups/billing{path}",
            headers={"content-type": "application/json"},
            body=(json.dumps(body).encode(),) if body is not None else (),
            timeout_s=60,
        )
        return answer, json.loads(await answer.read())

    async def commit(self, count: int, metadata: str = "") -> tuple[AsyncResponse, Any]:
        offsets = [{"topic": "flights", "partition": n, "offset": 5, "metadata": metadata} for n in range(count)]
        return await self.call("POST", "/offsets", {"offsets": offsets})

    async def offsets(self, query: str = "") -> tuple[AsyncResponse, Any]:
        return await self.call("GET", f"/offsets{query}")

    @property
    def held_bytes(self) -> int:
        """Of bodies."""
        bodies = self.app.admission.bodies
        return bodies.limit_bytes - bodies.left_bytes


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    """Of a broker whose one partition is that of the offsets topic."""
    async with running_app(tmp_path / "data") as app, AsyncTransport() as transport:
        components = app.components
        flights = topic("flights", TopicUid("uid-flights"), TOPIC_PARTITIONS_MAX)
        components.view.list_topics([topic(OFFSETS_TOPIC, KEY.uid, 1), flights])
        components.groups.local.look()
        await eventually(lambda: not components.groups.local.is_loading, "it coordinates")
        yield Caller(app, transport)
        await components.groups.local.close()


@pytest.fixture
def hold(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What is appended from now on is committed once this is called."""
    partition, appended = caller.app.partition, caller.app.partition.append
    waiting: list[tuple[Any, ...]] = []
    monkeypatch.setattr(partition, "append", lambda *args: waiting.append(args))

    def release() -> None:
        monkeypatch.setattr(partition, "append", appended)
        for args in waiting:
            appended(*args)

    return release


async def test_should_count_a_body_until_its_request_is_answered(caller: Caller, hold: Callable[[], None]) -> None:
    commit = asyncio.create_task(caller.commit(100, "x" * 1_000))
    await eventually(lambda: caller.app.components.groups.local.waiting == 1, "it is decided")
    assert caller.held_bytes > 100_000 > JSON_INLINE_BYTES_MAX
    hold()
    answer, _ = await commit
    assert answer.status == 200
    await eventually(lambda: caller.held_bytes == 0, "it is given back")


async def test_should_hold_nothing_of_a_heartbeat_that_waits(caller: Caller) -> None:
    _, joined = await caller.call("PUT", "/members/m1", {"topics": ["nothing"]})
    body = {"memberEpoch": joined["memberEpoch"], "revision": joined["revision"], "owned": [], "waitMs": 3_000}
    # It may be news at first that there is nothing to read.
    heartbeat = asyncio.create_task(caller.call("POST", "/members/m1/heartbeat", body))
    await eventually(lambda: caller.app.components.groups.local.waiting == 1 or heartbeat.done(), "it waits")
    assert caller.held_bytes == 0
    await heartbeat


async def test_should_refuse_commits_while_as_many_bytes_wait_as_may(
    caller: Caller, hold: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_machine, "COORDINATOR_UNCOMMITTED_OFFSETS_BYTES_MAX", 50_000)
    commit = asyncio.create_task(caller.commit(50, "x" * 1_000))
    await eventually(lambda: caller.app.components.groups.local.waiting == 1, "it is decided")
    # It is told once those before it are committed, as everything is.
    refused = asyncio.create_task(caller.commit(1))
    await eventually(lambda: refused.done() or caller.app.components.groups.local.waiting == 2, "it is refused")
    hold()
    (answer, problem), (first, _) = await refused, await commit
    assert (answer.status, problem["code"], answer.headers["retry-after"]) == (429, "Throttled", "1")
    assert first.status == 200
    answer, _ = await caller.commit(1)
    assert answer.status == 200


async def test_should_refuse_a_commit_that_no_batch_holds(caller: Caller) -> None:
    end = caller.app.partition.log.log_end_offset
    answer, problem = await caller.commit(TOPIC_PARTITIONS_MAX, "x" * OFFSET_METADATA_BYTES_MAX)
    assert (answer.status, problem["code"]) == (413, "BatchTooLarge")
    assert problem["limit"] == OFFSETS_BYTES_PER_COMMIT_MAX
    assert "less metadata" in problem["detail"]
    assert caller.app.partition.log.log_end_offset == end, "nothing was decided"


async def test_should_make_and_count_long_answers_elsewhere(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def recording(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return reply_object(*args)

    monkeypatch.setattr(groups, "reply_object", recording)
    answer, _ = await caller.commit(TOPIC_PARTITIONS_MAX)
    assert answer.status == 200
    _, told = await caller.offsets()
    assert [each["partition"] for each in told["offsets"]] == [*range(TOPIC_PARTITIONS_MAX)]
    _, some = await caller.offsets("?topic=flights:0,3")
    assert some["offsets"] == [told["offsets"][0], told["offsets"][3]]
    assert len(told["offsets"]) > JSON_INLINE_ITEMS_MAX
    assert [thread is threading.main_thread() for thread in threads] == [True, False, True]
    answers = caller.app.admission.answers
    await eventually(lambda: answers.left_bytes == answers.limit_bytes, "it is given back")
    answers.take(answers.left_bytes)
    answer, problem = await caller.offsets()
    assert (answer.status, problem["code"]) == (429, "Throttled")
    answer, _ = await caller.offsets("?topic=flights:0")
    assert answer.status == 200, "short ones cost next to nothing"
    answers.give_back(answers.limit_bytes)


async def test_should_let_nobody_make_up_groups_without_end(caller: Caller) -> None:
    """Each would be a ConsumerGroup."""
    caller.app.admission.newcomers = Newcomers(burst=2, interval_ms=600_000)

    async def commit(group: str) -> AsyncResponse:
        root = caller.app.url.partition("/v1/")[0]
        url = f"{root}/v1/namespaces/default/groups/{group}/offsets"
        body = json.dumps({"offsets": [{"topic": "flights", "partition": 0, "offset": 1}]}).encode()
        return await caller.transport.request("POST", url, headers={"content-type": "application/json"}, body=(body,))

    assert [(await commit(f"made-up-{number}")).status for number in range(3)] == [200, 200, 429]
    assert (await commit("made-up-0")).status == 200, "it is there"
    assert len(caller.app.components.groups.all()) == 2
    caller.app.components.groups.configure(GroupName("default", "declared"), GroupSettings())
    assert (await commit("declared")).status == 200, "somebody has made its ConsumerGroup"
