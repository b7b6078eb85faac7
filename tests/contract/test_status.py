"""The status subresource: spec and status are written by different hands."""

from typing import Any

from tests.support.api_objects import partition_set, topic
from tests.support.api_server import Space


def _condition(status: str = "True", **members: Any) -> dict[str, Any]:
    stamp = "2026-11-21T09:00:00Z"
    return {"type": "Ready", "status": status, "reason": "X", "message": "", "lastTransitionTime": stamp, **members}


async def test_should_start_with_the_default_status_whatever_the_writer_says(space: Space) -> None:
    created = await space.create("topics", topic() | {"status": {"leaders": "3/3"}})
    assert created["status"] == {
        "observedGeneration": 0,
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "Pending",
                "message": "waiting for the operator",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }
        ],
    }


async def test_should_ignore_the_status_in_a_write_to_the_object(space: Space) -> None:
    obj = await space.create("topics", topic())
    obj["status"]["leaders"] = "3/3"
    answer = await space.api.request("PUT", space.path("topics", "flights"), obj)
    assert answer.status == 200
    assert "leaders" not in answer.body["status"]
    assert answer.body["metadata"]["generation"] == 1


async def test_should_change_nothing_but_the_status_in_a_write_to_it(space: Space) -> None:
    await space.create("topics", topic())
    patch = {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["headrace.io/x"]},
        "spec": {"partitions": 77},
        "status": {"leaders": "3/3", "conditions": [_condition()]},
    }

    answer = await space.api.merge(space.path("topics", "flights", "status"), patch)

    assert answer.status == 200
    assert answer.body["status"]["leaders"] == "3/3"
    assert answer.body["status"]["conditions"] == [_condition()]
    assert answer.body["status"]["observedGeneration"] == 0
    assert answer.body["spec"]["partitions"] == 3
    assert answer.body["metadata"]["generation"] == 1
    assert not {"labels", "finalizers"} & answer.body["metadata"].keys()


async def test_should_replace_the_status_with_optimistic_concurrency(space: Space) -> None:
    obj = await space.create("topics", topic())
    path = space.path("topics", "flights", "status")
    obj["status"] = {"observedGeneration": 1, "conditions": [_condition()]}
    assert (await space.api.request("PUT", path, obj)).body["status"] == obj["status"]
    assert (await space.api.request("PUT", path, obj)).status == 409


async def test_should_read_the_whole_object_at_its_status(space: Space) -> None:
    created = await space.create("topics", topic())
    assert (await space.api.get(space.path("topics", "flights", "status"))).body == created


async def test_should_validate_the_status(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights", "status")

    answer = await space.api.merge(path, {"status": {"conditions": [_condition("Maybe")]}})
    assert (
        "status.conditions[0].status",
        "FieldValueNotSupported",
        'Unsupported value: "Maybe": supported values: "True", "False", "Unknown"',
    ) in answer.causes

    answer = await space.api.merge(path, {"status": {"conditions": [_condition(), _condition()]}})
    assert answer.causes == {
        ("status.conditions[1]", "FieldValueDuplicate", 'Duplicate value: {"type":"Ready"}'),
    }


async def test_should_come_back_to_the_default_when_the_status_is_removed(space: Space) -> None:
    created = await space.create("topics", topic())
    path = space.path("topics", "flights", "status")
    await space.api.merge(path, {"status": {"leaders": "3/3"}})
    answer = await space.api.merge(path, {"status": None})
    assert answer.body["status"] == created["status"]


async def test_should_have_no_status_where_the_kind_has_none(space: Space) -> None:
    created = await space.create("partitionsets", partition_set() | {"status": {"a": 1}})
    assert "status" not in created
    answer = await space.api.get(space.path("partitionsets", "flights-0", "status"))
    assert (answer.status, answer.reason) == (404, "NotFound")
