"""Watches: everything that happened, in order, from where the client stands; 410 when that is too long ago."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace.dev.api.store import DEV_WATCH_HISTORY_BYTES_MAX, DEV_WATCH_HISTORY_MAX
from tests.support.api_objects import topic
from tests.support.api_server import Space
from tests.support.kubeconfig import Stream
from tests.support.patience import patient

_PATIENCE_S = patient(60)
_HEAVY_BYTES = 200_000
_WATCHERS = 10
_CHANGES = 20
"""Topics that are made, changed and deleted at once while the watchers look on."""


async def _next(stream: Stream) -> dict[str, Any]:
    async with asyncio.timeout(_PATIENCE_S):
        event = await stream.next()
    assert event is not None, "the watch ended early"
    return event


def _told(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def _version(space: Space) -> str:
    return str((await space.api.get(space.path("topics"))).body["metadata"]["resourceVersion"])


async def test_should_tell_every_change_after_the_version_of_the_list(space: Space) -> None:
    await space.create("topics", topic("before"))
    async with space.api.watch(space.path("topics"), resourceVersion=await _version(space)) as stream:
        created = await space.create("topics", topic())
        await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 4}})
        await space.api.request("DELETE", space.path("topics", "flights"))

        events = [await _next(stream) for _ in range(3)]

    assert [_told(event) for event in events] == [
        ("ADDED", "flights"),
        ("MODIFIED", "flights"),
        ("DELETED", "flights"),
    ]
    assert events[0]["object"] == created
    assert events[1]["object"]["spec"]["partitions"] == 4
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)), "a deletion has a version of its own"


async def test_should_go_on_where_an_earlier_watch_ended(space: Space) -> None:
    created = await space.create("topics", topic())
    version = created["metadata"]["resourceVersion"]
    await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 4}})
    await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 5}})
    async with space.api.watch(space.path("topics"), resourceVersion=version, timeoutSeconds="1") as stream:
        partitions = [event["object"]["spec"]["partitions"] for event in await stream.rest()]
    assert partitions == [4, 5]


async def test_should_begin_with_the_state_without_a_version(space: Space) -> None:
    await space.create("topics", topic("a"))
    await space.create("topics", topic("b"))
    async with space.api.watch(space.path("topics"), timeoutSeconds="1") as stream:
        assert [_told(event) for event in await stream.rest()] == [("ADDED", "a"), ("ADDED", "b")]


async def test_should_mark_the_end_of_the_state_when_asked_to_send_it(space: Space) -> None:
    await space.create("topics", topic("a"))
    async with space.api.watch(
        space.path("topics"),
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as stream:
        assert _told(await _next(stream)) == ("ADDED", "a")
        mark = await _next(stream)
        await space.create("topics", topic("b"))
        after = await _next(stream)
        while after["type"] == "BOOKMARK":  # Now and then one comes by itself.
            after = await _next(stream)
        assert _told(after) == ("ADDED", "b")

    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "Topic"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_should_refuse_to_send_the_state_to_who_does_not_ask_properly(space: Space) -> None:
    answer = await space.api.get(space.path("topics"), {"watch": "true", "sendInitialEvents": "true"})
    assert (answer.status, answer.reason) == (422, "Invalid")
    rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    assert answer.causes == {("resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {rule}")}

    answer = await space.api.get(space.path("topics"), {"sendInitialEvents": "true"})
    assert (answer.status, answer.reason) == (422, "Invalid")


@pytest.mark.usefixtures("embedded")
async def test_should_say_how_far_it_came_before_a_watch_ends(space: Space) -> None:
    version = await _version(space)
    await space.create("topics", topic())
    async with space.api.watch(
        space.path("topics"), resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds="2"
    ) as stream:
        events = await stream.rest()

    assert _told(events[0]) == ("ADDED", "flights")
    bookmarks = [event for event in events if event["type"] == "BOOKMARK"]
    assert bookmarks
    assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) >= int(
        events[0]["object"]["metadata"]["resourceVersion"]
    )


async def test_should_say_gone_when_the_version_is_too_old(space: Space) -> None:
    async with space.api.watch(space.path("topics"), resourceVersion="1") as stream:
        event = await _next(stream)
        assert await stream.next() is None
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")


@pytest.mark.usefixtures("embedded")
async def test_should_say_gone_once_the_history_is_compacted_and_go_on_for_who_kept_up(space: Space) -> None:
    created = await space.create("topics", topic())
    version = created["metadata"]["resourceVersion"]
    path = space.path("topics", "flights")
    # The history forgets by halves: what earlier tests have left in it goes first.
    changes = DEV_WATCH_HISTORY_BYTES_MAX // _HEAVY_BYTES + DEV_WATCH_HISTORY_MAX.bit_length()
    async with space.api.watch(space.path("topics"), resourceVersion=version) as keeping_up:
        for number in range(changes):
            await space.api.merge(path, {"metadata": {"annotations": {"heavy": str(number) + "x" * _HEAVY_BYTES}}})
            event = await _next(keeping_up)
            assert event["object"]["metadata"]["annotations"]["heavy"].startswith(f"{number}x")

    async with space.api.watch(space.path("topics"), resourceVersion=version) as late:
        event = await _next(late)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert event["object"]["message"].startswith(f"too old resource version: {version} (")


async def test_should_refuse_a_version_that_is_no_number(space: Space) -> None:
    answer = await space.api.get(space.path("topics"), {"watch": "true", "resourceVersion": "abc"})
    assert answer.status == 500
    assert answer.message == 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'


async def test_should_say_timeout_when_a_list_must_be_newer_than_now(space: Space) -> None:
    answer = await space.api.get(space.path("topics"), {"resourceVersion": "99999999999"})
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith("Timeout: Too large resource version: 99999999999, current: ")


async def test_should_tell_only_of_what_the_selector_sees(space: Space) -> None:
    async with space.api.watch(
        space.path("topics"), resourceVersion=await _version(space), labelSelector="team=data"
    ) as stream:
        await space.create("topics", topic("unseen"))
        await space.create("topics", topic(labels={"team": "data"}))
        path = space.path("topics", "flights")
        await space.api.merge(path, {"metadata": {"labels": {"team": "ops"}}})
        await space.api.merge(path, {"metadata": {"labels": {"team": "data"}}})
        await space.api.request("DELETE", path)

        events = [await _next(stream) for _ in range(4)]

    assert [_told(event) for event in events] == [
        ("ADDED", "flights"),
        ("DELETED", "flights"),
        ("ADDED", "flights"),
        ("DELETED", "flights"),
    ]


async def test_should_watch_one_object_by_its_name(space: Space) -> None:
    async with space.api.watch(
        space.path("topics"), resourceVersion=await _version(space), fieldSelector="metadata.name=flights"
    ) as stream:
        await space.create("topics", topic("other"))
        await space.create("topics", topic())
        assert _told(await _next(stream)) == ("ADDED", "flights")


async def test_should_watch_all_namespaces_at_once(space: Space) -> None:
    path = "/apis/headrace.io/v1alpha1/topics"
    async with space.api.watch(
        path, resourceVersion=await _version(space), fieldSelector=f"metadata.namespace={space.name}"
    ) as stream:
        await space.create("topics", topic())
        event = await _next(stream)
    assert event["object"]["metadata"]["namespace"] == space.name


async def test_should_tell_ten_watchers_the_same_in_the_same_order(space: Space) -> None:
    start = await _version(space)
    async with AsyncExitStack() as stack:
        watches = [space.api.watch(space.path("topics"), resourceVersion=start) for _ in range(_WATCHERS)]
        streams = [await stack.enter_async_context(watch) for watch in watches]
        told = [asyncio.create_task(_events(stream, _CHANGES * 3)) for stream in streams]
        names = [f"topic-{number}" for number in range(_CHANGES)]
        await asyncio.gather(*(_live_and_die(space, name) for name in names))
        first, *others = await asyncio.gather(*told)

    assert all(other == first for other in others)
    for name in names:
        assert [kind for kind, found, _ in first if found == name] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [version for _, _, version in first]
    assert versions == sorted(set(versions)), "every watcher sees one order, that of the versions"


async def _live_and_die(space: Space, name: str) -> None:
    await space.create("topics", topic(name))
    await space.api.merge(space.path("topics", name), {"spec": {"partitions": 4}})
    await space.api.request("DELETE", space.path("topics", name))


async def _events(stream: Stream, count: int) -> list[tuple[str, str, int]]:
    events = [await _next(stream) for _ in range(count)]
    return [(*_told(event), int(event["object"]["metadata"]["resourceVersion"])) for event in events]


async def test_should_answer_before_anything_happens(space: Space) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        async with space.api.watch(space.path("topics"), resourceVersion=await _version(space)) as stream:
            assert stream.status == 200
