"""Tables: the columns and cells that `kubectl get` prints."""

from typing import Any

import pytest

from tests.support.api_objects import event, lease, partition_set, pod, stateful_set, topic
from tests.support.api_server import Space

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def _table(space: Space, path: str, **query: str) -> dict[str, Any]:
    answer = await space.api.get(path, query, accept=_TABLE)
    assert answer.status == 200, answer.text
    return answer.body


def _columns(table: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]]


async def test_should_show_topics_with_narrow_and_wide_columns(space: Space) -> None:
    await space.create("topics", topic(partitions=6))
    table = await _table(space, space.path("topics"))
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert _columns(table) == [
        ("Name", "string", 0),
        ("Partitions", "integer", 0),
        ("Replicas", "integer", 0),
        ("Leaders", "string", 0),
        ("In-Sync", "string", 0),
        ("Ready", "string", 0),
        ("Age", "date", 0),
        ("Reason", "string", 1),
        ("Leaders-By-Broker", "string", 1),
        ("Retention", "string", 1),
        ("Cleanup", "string", 1),
        ("Durability", "string", 1),
    ]
    (row,) = table["rows"]
    age = row["cells"].pop(6)
    assert age.endswith("s")
    assert row["cells"] == ["flights", 6, 3, None, None, "Unknown", "Pending", None, "7d", "Delete", "Fsync"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "flights"


async def test_should_show_one_object_as_a_table(space: Space) -> None:
    created = await space.create("topics", topic())
    table = await _table(space, space.path("topics", "flights"))
    assert [row["cells"][0] for row in table["rows"]] == ["flights"]
    assert table["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


@pytest.mark.parametrize(("include", "kind"), [("Object", "Topic"), ("Metadata", "PartialObjectMetadata")])
async def test_should_carry_the_objects_that_are_asked_for(space: Space, include: str, kind: str) -> None:
    await space.create("topics", topic())
    (row,) = (await _table(space, space.path("topics"), includeObject=include))["rows"]
    assert row["object"]["kind"] == kind


async def test_should_carry_no_objects_when_none_are_asked_for(space: Space) -> None:
    await space.create("topics", topic())
    (row,) = (await _table(space, space.path("topics"), includeObject="None"))["rows"]
    assert row["object"] is None


async def test_should_tell_changes_as_tables_and_the_columns_once(space: Space) -> None:
    await space.create("topics", topic("a"))
    await space.create("topics", topic("b"))
    async with space.api.watch(space.path("topics"), accept=_TABLE, timeoutSeconds="1") as stream:
        first, second = await stream.rest()
    assert (first["object"]["kind"], first["object"]["rows"][0]["cells"][0]) == ("Table", "a")
    assert len(first["object"]["columnDefinitions"]) == 12
    assert second["object"]["rows"][0]["cells"][0] == "b"
    assert not second["object"].get("columnDefinitions")


async def test_should_mark_the_end_of_the_state_in_a_table(space: Space) -> None:
    await space.create("topics", topic())
    async with space.api.watch(
        space.path("topics"),
        accept=_TABLE,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as stream:
        await stream.next()
        mark = await stream.next()
    assert mark is not None
    assert mark["type"] == "BOOKMARK"
    (row,) = mark["object"]["rows"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("plural", "obj", "columns", "cells"),
    [
        ("partitionsets", partition_set(), [("Name", 0), ("Topic", 0), ("Age", 0)], ["flights-0", "flights"]),
        ("leases", lease(holderIdentity="7"), [("Name", 0), ("Holder", 0), ("Age", 0)], ["headrace-broker-0", "7"]),
        (
            "statefulsets",
            stateful_set(replicas=3),
            [("Name", 0), ("Ready", 0), ("Age", 0), ("Containers", 1), ("Images", 1)],
            ["headrace", "0/3"],
        ),
        (
            "pods",
            pod(nodeName="node0"),
            [
                ("Name", 0),
                ("Ready", 0),
                ("Status", 0),
                ("Restarts", 0),
                ("Age", 0),
                ("IP", 1),
                ("Node", 1),
                ("Nominated Node", 1),
                ("Readiness Gates", 1),
            ],
            ["headrace-0", "0/1", "Pending", "0"],
        ),
    ],
)
async def test_should_show_the_columns_of_other_kinds(
    space: Space, plural: str, obj: dict[str, Any], columns: list[tuple[str, int]], cells: list[Any]
) -> None:
    await space.create(plural, obj)
    table = await _table(space, space.path(plural))
    assert [(name, priority) for name, _, priority in _columns(table)] == columns
    assert table["rows"][0]["cells"][: len(cells)] == cells


async def test_should_show_what_pods_do(space: Space) -> None:
    await space.create("pods", pod(nodeName="node0"))
    status = {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "containerStatuses": [
            {
                "name": "broker",
                "ready": True,
                "restartCount": 2,
                "image": "headrace",
                "imageID": "",
                "state": {"running": {"startedAt": "2026-11-21T09:00:00Z"}},
            }
        ],
    }
    await space.api.merge(space.path("pods", "headrace-0", "status"), {"status": status})
    cells = (await _table(space, space.path("pods")))["rows"][0]["cells"]
    cells.pop(4)
    assert cells == ["headrace-0", "1/1", "Running", "2", "127.0.0.1", "node0", "<none>", "<none>"]

    await space.api.request("DELETE", space.path("pods", "headrace-0"))
    assert (await _table(space, space.path("pods")))["rows"][0]["cells"][2] == "Terminating"


async def test_should_show_events(space: Space) -> None:
    stamp = "2026-11-21T09:00:00Z"
    told = event(space.name, "flights.1", reason="Placed", message="hello", type="Normal", count=3)
    await space.create(
        "events", told | {"source": {"component": "operator"}, "firstTimestamp": stamp, "lastTimestamp": stamp}
    )
    table = await _table(space, space.path("events"))
    assert [(name, priority) for name, _, priority in _columns(table)] == [
        ("Last Seen", 0),
        ("Type", 0),
        ("Reason", 0),
        ("Object", 0),
        ("Subobject", 1),
        ("Source", 1),
        ("Message", 0),
        ("First Seen", 1),
        ("Count", 1),
        ("Name", 1),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[1:7] == ["Normal", "Placed", "topic/flights", "", "operator", "hello"]
    assert cells[8:] == [3, "flights.1"]


async def test_should_show_namespaces_and_definitions(space: Space) -> None:
    namespaces = await _table(space, "/api/v1/namespaces")
    assert [name for name, _, _ in _columns(namespaces)] == ["Name", "Status", "Age"]
    assert [space.name, "Active"] in [row["cells"][:2] for row in namespaces["rows"]]
    definitions = await _table(space, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert [name for name, _, _ in _columns(definitions)] == ["Name", "Created At"]
    assert "topics.headrace.io" in [row["cells"][0] for row in definitions["rows"]]


async def test_should_list_metadata_alone_when_asked(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.get(space.path("topics"), accept=_PARTIAL)
    assert answer.body["kind"] == "PartialObjectMetadataList"
    (item,) = answer.body["items"]
    assert item["kind"] == "PartialObjectMetadata"
    assert set(item) <= {"kind", "apiVersion", "metadata"}


async def test_should_answer_yaml_and_refuse_what_it_cannot_write(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.get(space.path("topics", "flights"), accept="application/yaml")
    assert answer.text.startswith("apiVersion: headrace.io/v1alpha1\n")
    assert (await space.api.get(space.path("topics"), accept="text/csv")).status == 406
