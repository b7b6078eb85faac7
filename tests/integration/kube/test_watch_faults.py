"""A watch through a server that misbehaves by script: each request is answered by the next step, and counted."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from headrace.core.resources.topic import topic_manifest
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiUnavailableError
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import TOPICS, ObjectKey
from headrace.kube.watch import Changed, Listed, Removed, Unreadable, WatchEvent, watch
from tests.support.kubeconfig import write_kubeconfig
from tests.support.patience import patient

Step = Callable[[web.Request], Awaitable[web.StreamResponse]]
DEADLINE_S = patient(60)


def topic_object(name: str, version: str) -> dict[str, Any]:
    obj = topic_manifest(name, "default", {"partitions": 1})
    obj["metadata"]["resourceVersion"] = version
    return obj


def listing(*names: str, version: str = "5") -> Step:
    async def answer(_: web.Request) -> web.Response:
        items = [topic_object(name, version) for name in names]
        return web.json_response({"kind": "TopicList", "metadata": {"resourceVersion": version}, "items": items})

    return answer


def refusal(status: int) -> Step:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": "not now", "code": status}, status=status)

    return answer


def stream(*events: dict[str, Any], then: str = "end") -> Step:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        match then:
            case "hang":
                await asyncio.Event().wait()
            case "break":
                assert request.transport is not None
                request.transport.abort()
            case _:
                pass
        return response

    return answer


def added(name: str, version: str) -> dict[str, Any]:
    return {"type": "ADDED", "object": topic_object(name, version)}


@asynccontextmanager
async def scripted(folder: Path, *steps: Step) -> AsyncIterator[tuple[KubeClient, list[web.Request]]]:
    """A client, and the requests so far. The last step is repeated."""
    requests: list[web.Request] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        return await steps[min(len(requests), len(steps)) - 1](request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client:
            yield client, requests
    finally:
        await runner.cleanup()


def names(event: WatchEvent[Any]) -> list[str]:
    match event:
        case Listed(items):
            return [topic.metadata.name for topic in items]
        case Changed(item) | Removed(item):
            return [item.metadata.name]
        case Unreadable(key):
            return [key.name]


async def first_events(client: KubeClient, count: int, silence_ms_max: int = 60_000) -> list[WatchEvent[Any]]:
    following = watch(client, TOPICS, rng=Random(1), silence_ms_max=silence_ms_max)
    async with asyncio.timeout(DEADLINE_S), aclosing(following) as events:
        return [await anext(events) for _ in range(count)]


@pytest.mark.parametrize("status", [429, 500, 503, 404])
async def test_should_list_again_when_a_list_was_refused(tmp_path: Path, status: int) -> None:
    async with scripted(tmp_path, refusal(status), refusal(status), listing("a")) as (client, requests):
        assert names((await first_events(client, 1))[0]) == ["a"]
        assert len(requests) == 3


@pytest.mark.parametrize(
    "loss",
    [
        refusal(410),
        stream({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}),
        stream({"type": "ERROR", "object": {"kind": "Status", "message": "no code"}}),
        stream(then="break"),
        stream({"message": "upstream connect error"}),
        stream({"type": "MODIFIED", "object": {"metadata": {"name": "a"}}}),
        stream({"type": "ERROR", "object": {"kind": "Status", "code": "none"}}),
    ],
)
async def test_should_list_again_when_the_watch_is_lost(tmp_path: Path, loss: Step) -> None:
    async with scripted(tmp_path, listing("a"), loss, listing("b")) as (client, _):
        before, after = await first_events(client, 2)
        assert isinstance(after, Listed)
        assert (names(before), names(after)) == (["a"], ["b"])


async def test_should_list_again_when_the_server_falls_silent(tmp_path: Path) -> None:
    hanging = stream(added("b", "6"), then="hang")
    async with scripted(tmp_path, listing("a"), hanging, listing("c")) as (client, requests):
        _, change, after = await first_events(client, 3, silence_ms_max=4_000)
        assert (names(change), names(after)) == (["b"], ["c"])
        assert requests[1].query["timeoutSeconds"] == "3"


async def test_should_go_on_from_the_last_version_when_the_server_ends_a_watch(tmp_path: Path) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    steps = [listing(version="5"), stream(added("a", "6")), stream(bookmark), stream(added("b", "10"), then="hang")]
    async with scripted(tmp_path, *steps) as (client, requests):
        _, first, second = await first_events(client, 3)
        assert isinstance(second, Changed)
        assert (names(first), names(second)) == (["a"], ["b"])
        assert [request.query["resourceVersion"] for request in requests[1:4]] == ["5", "6", "9"]


async def test_should_say_what_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    obj = {"metadata": {"name": "bad", "resourceVersion": "6"}}
    broken, gone = {"type": "MODIFIED", "object": obj}, {"type": "DELETED", "object": obj}
    async with scripted(tmp_path, listing(), stream(broken, gone, added("a", "7"), then="hang")) as (client, _):
        _, first, second, third = await first_events(client, 4)
    assert (first, second) == (Unreadable(ObjectKey("", "bad")), Unreadable(ObjectKey("", "bad"), is_gone=True))
    assert names(third) == ["a"]
    assert "left out Topic /bad: spec is missing" in caplog.text


async def test_should_take_an_event_of_many_megabytes(tmp_path: Path) -> None:
    big = added("a", "6")
    big["object"]["metadata"]["annotations"] = {"x": "y" * (3 << 20)}
    async with scripted(tmp_path, listing(), stream(big, then="hang")) as (client, _):
        assert names((await first_events(client, 2))[1]) == ["a"]


async def test_should_send_a_write_once_when_it_fails(tmp_path: Path) -> None:
    async with scripted(tmp_path, refusal(503)) as (client, requests):
        with pytest.raises(ApiUnavailableError, match="not now"):
            await client.replace(TOPICS, topic_object("a", "5"))
        assert len(requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_should_read_again_when_the_server_cannot_just_now(tmp_path: Path, status: int) -> None:
    async with scripted(tmp_path, refusal(status), refusal(status), listing("a")) as (client, requests):
        assert [topic.metadata.name for topic in (await client.list(TOPICS)).items] == ["a"]
        assert len(requests) == 3


async def test_should_give_up_reading_when_the_server_still_cannot(tmp_path: Path) -> None:
    async with scripted(tmp_path, *[refusal(503)] * 3, listing("a")) as (client, requests):
        with pytest.raises(ApiUnavailableError, match="not now"):
            await client.get(TOPICS, "a", "default")
        assert len(requests) == 3


async def test_should_say_so_when_the_answer_is_no_json(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with scripted(tmp_path, answer) as (client, _):
        with pytest.raises(ApiUnavailableError, match="did not answer"):
            await client.get(TOPICS, "a", "default")


async def test_should_say_so_when_the_connection_breaks_in_an_answer(tmp_path: Path) -> None:
    async with scripted(tmp_path, stream({}, then="break")) as (client, _):
        with pytest.raises(ApiUnavailableError):
            await client.get(TOPICS, "a", "default")


async def test_should_say_so_when_nobody_listens(tmp_path: Path) -> None:
    async with await KubeClient.connect(
        kubeconfig=str(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1"))
    ) as client:
        with pytest.raises(ApiUnavailableError, match=r"GET /apis/headrace\.io/v1alpha1/topics: "):
            await client.list(TOPICS)


async def test_should_only_log_when_an_event_cannot_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(tmp_path, refusal(503)) as (client, _):
        metadata = TOPICS.parse(topic_object("a", "5")).metadata
        await EventRecorder(client, "test").record(Regarding(TOPICS, metadata), EventType.NORMAL, "X", "y")
    assert "event X of default/a is lost" in caplog.text
