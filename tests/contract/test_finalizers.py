"""Deletion in two steps: an object with finalizers stays until the last of them is removed."""

from tests.support.api_objects import topic
from tests.support.api_server import Space


def _held(*finalizers: str) -> dict[str, object]:
    obj = topic()
    obj["metadata"]["finalizers"] = list(finalizers)
    return obj


async def test_should_mark_and_keep_an_object_that_has_finalizers(space: Space) -> None:
    await space.create("topics", _held("headrace.io/data"))

    answer = await space.api.request("DELETE", space.path("topics", "flights"))

    assert answer.status == 200
    meta = answer.body["metadata"]
    assert meta["deletionTimestamp"].endswith("Z")
    assert meta["deletionGracePeriodSeconds"] == 0
    assert meta["generation"] == 2
    assert await space.read("topics", "flights") == answer.body


async def test_should_change_nothing_when_a_marked_object_is_deleted_again(space: Space) -> None:
    await space.create("topics", _held("headrace.io/data"))
    first = await space.api.request("DELETE", space.path("topics", "flights"))
    second = await space.api.request("DELETE", space.path("topics", "flights"))
    assert first.body == second.body


async def test_should_remove_the_object_with_its_last_finalizer(space: Space) -> None:
    await space.create("topics", _held("headrace.io/data", "headrace.io/other"))
    path = space.path("topics", "flights")
    await space.api.request("DELETE", path)

    answer = await space.api.merge(path, {"metadata": {"finalizers": ["headrace.io/other"]}})
    assert answer.body["metadata"]["finalizers"] == ["headrace.io/other"]
    answer = await space.api.merge(path, {"metadata": {"finalizers": None}})

    assert answer.status == 200
    assert "finalizers" not in answer.body["metadata"]
    assert (await space.api.get(path)).status == 404


async def test_should_refuse_new_finalizers_on_a_marked_object(space: Space) -> None:
    await space.create("topics", _held("headrace.io/data"))
    path = space.path("topics", "flights")
    await space.api.request("DELETE", path)

    answer = await space.api.merge(path, {"metadata": {"finalizers": ["headrace.io/data", "headrace.io/new"]}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    message = (
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"headrace.io/new"}'
    )
    assert answer.causes == {("metadata.finalizers", "FieldValueForbidden", message)}


async def test_should_still_take_changes_of_a_marked_object(space: Space) -> None:
    await space.create("topics", _held("headrace.io/data"))
    path = space.path("topics", "flights")
    await space.api.request("DELETE", path)
    answer = await space.api.merge(path, {"spec": {"partitions": 9}})
    assert (answer.status, answer.body["metadata"]["generation"]) == (200, 3)


async def test_should_hold_an_object_that_is_deleted_with_its_dependents_first(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.request(
        "DELETE", space.path("topics", "flights"), query={"propagationPolicy": "Foreground"}
    )
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
