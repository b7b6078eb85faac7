"""Server-side apply: what becomes of fields that are applied, and of those that are applied no longer."""

from typing import Any

import pytest

from tests.support.api_objects import topic
from tests.support.api_server import Space
from tests.support.applying import JSON_PATCH, PARTITIONS, VERSION, applied, apply, condition, owned_by, status_of


async def test_should_create_what_is_not_there(space: Space) -> None:
    path = space.path("topics", "flights")
    tried = await apply(space, path, topic(), "team", dryRun="All")
    assert (tried.status, (await space.api.get(path)).status) == (201, 404)
    answer = await apply(space, path, topic(), "team")
    assert (answer.status, answer.body["spec"]["partitions"], answer.body["spec"]["replicas"]) == (201, 3, 3)
    (entry,) = answer.body["metadata"]["managedFields"]
    assert entry.pop("time") == answer.body["metadata"]["creationTimestamp"]
    identity = {"manager": "team", "operation": "Apply", "apiVersion": VERSION}
    assert entry == identity | {"fieldsType": "FieldsV1", "fieldsV1": PARTITIONS}


async def test_should_read_yaml(space: Space) -> None:
    body = b"apiVersion: headrace.io/v1alpha1\nkind: Topic\nmetadata: {name: flights}\nspec:\n  partitions: 4\n"
    answer = await apply(space, space.path("topics", "flights"), body, "team")
    assert (answer.status, answer.body["spec"]["partitions"]) == (201, 4)


async def test_should_leave_alone_what_is_the_same(space: Space) -> None:
    await applied(space, topic(), "team")
    changed = await applied(space, topic(labels={"a": "b"}), "team")
    assert await applied(space, topic(labels={"a": "b"}), "team") == changed
    assert (await applied(space, topic(), "team", dryRun="All"))["metadata"].get("labels") is None
    assert await space.read("topics", "flights") == changed


async def test_should_remove_what_its_only_owner_no_longer_applies(space: Space) -> None:
    first = await applied(space, topic(labels={"a": "b", "c": "d"}, retention={"time": "1h"}), "team")
    assert owned_by(first)["team", "Apply", ""]["f:metadata"] == {"f:labels": {"f:a": {}, "f:c": {}}}
    second = await applied(space, topic(labels={"c": "d"}), "team")
    assert (second["metadata"]["labels"], second["spec"]["retention"]["time"]) == ({"c": "d"}, "7d")
    assert second["metadata"]["generation"] == 2
    assert "labels" not in (await applied(space, topic(), "team"))["metadata"]


async def test_should_leave_to_others_what_they_own(space: Space) -> None:
    await applied(space, topic(retention={"time": "1h"}, minInsyncReplicas=2), "team")
    both = await applied(space, topic(retention={"time": "1h"}), "other")
    assert {manager for manager, _, _ in owned_by(both)} == {"team", "other"}
    left = await applied(space, topic(), "team")
    assert left["spec"]["retention"]["time"] == "1h"
    assert "minInsyncReplicas" not in left["spec"]
    assert owned_by(left)["team", "Apply", ""] == PARTITIONS


async def test_should_leave_alone_what_nobody_owns(space: Space) -> None:
    await applied(space, topic(labels={"a": "b"}, minInsyncReplicas=2), "team")
    path = space.path("topics", "flights")
    await space.api.merge(path, {"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}})
    mine = [{"op": "remove", "path": "/metadata/managedFields/1"}]
    await space.api.request("PATCH", path, mine, content_type=JSON_PATCH)
    left = await applied(space, topic(), "team")
    assert set(owned_by(left)) == {("team", "Apply", "")}
    assert left["metadata"]["annotations"] == {"x": "y"}
    # A struct that only the applier had fields in goes with them, whatever else is in it.
    assert "labels" not in left["metadata"]
    assert "minInsyncReplicas" not in left["spec"]


async def test_should_own_nothing_any_more_who_applies_nothing(space: Space) -> None:
    await applied(space, topic(), "team")
    await applied(space, topic(labels={"a": "b"}), "labels")
    nothing = {"apiVersion": VERSION, "kind": "Topic", "metadata": {"name": "flights"}}
    left = await applied(space, nothing, "labels")
    assert "labels" not in left["metadata"]
    assert set(owned_by(left)) == {("team", "Apply", "")}


async def test_should_keep_the_status_apart(space: Space) -> None:
    await applied(space, topic(), "team")
    path = space.path("topics", "flights", "status")
    written = await space.api.merge(path, {"status": {"conditions": [condition("Ready")]}}, {"fieldManager": "op"})
    ready: dict[str, Any] = {f"f:{name}": {} for name in ("lastTransitionTime", "message", "reason", "status")}
    # The condition was there by default; what the operator changed is its own.
    assert owned_by(written.body)["op", "Update", "status"]["f:status"] == {
        "f:conditions": {'k:{"type":"Ready"}': ready}
    }
    own = await apply(space, path, status_of(condition("Mine")) | {"spec": {"partitions": 9}}, "me")
    assert (own.status, own.body["spec"]["partitions"]) == (200, 3)
    mine = {".": {}, **ready, "f:type": {}}
    assert owned_by(own.body)["me", "Apply", "status"] == {"f:status": {"f:conditions": {'k:{"type":"Mine"}': mine}}}
    assert [condition["type"] for condition in own.body["status"]["conditions"]] == ["Ready", "Mine"]
    refused = await apply(space, path, status_of(condition("Ready", "False")), "me")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "op" with subresource "status" using headrace.io/v1alpha1: '
        '.status.conditions[type="Ready"].status'
    )
    gone = await apply(space, path, status_of(), "me")
    assert [condition["type"] for condition in gone.body["status"]["conditions"]] == ["Ready"]
    other = space.path("topics", "nothing", "status")
    assert (await apply(space, other, status_of(), "me")).status == 404


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        (["CXA"], "BCXA"),
        (["CXA", "XYA"], "BCXYA"),
        (["ZB"], "AZBC"),
        (["C", "CA"], "BCA"),
    ],
)
async def test_should_order_elements_as_they_are_applied(space: Space, applied: list[str], expected: str) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights", "status")
    await space.api.merge(path, {"status": {"conditions": []}})
    await apply(space, path, status_of(*map(condition, "ABC")), "first")
    for types in applied:
        answer = await apply(space, path, status_of(*map(condition, types)), "second")
    found = "".join(condition["type"] for condition in answer.body["status"]["conditions"])
    assert found == expected


async def test_should_share_a_set(space: Space) -> None:
    def with_finalizers(*names: str) -> dict[str, Any]:
        obj = topic()
        obj["metadata"]["finalizers"] = list(names)
        return obj

    await applied(space, with_finalizers("a.io/x"), "a")
    both = await applied(space, with_finalizers("b.io/x"), "b")
    assert both["metadata"]["finalizers"] == ["a.io/x", "b.io/x"]
    assert owned_by(both)["b", "Apply", ""]["f:metadata"] == {"f:finalizers": {'v:"b.io/x"': {}}}
    assert (await applied(space, topic(), "a"))["metadata"]["finalizers"] == ["b.io/x"]
    assert "finalizers" not in (await applied(space, topic(), "b"))["metadata"]


async def test_should_take_null_for_a_value(space: Space) -> None:
    path = space.path("topics", "flights")
    answer = await apply(space, path, topic(minInsyncReplicas=None), "team")
    rule = 'Invalid value: "null": spec.minInsyncReplicas in body must be of type integer: "null"'
    assert ("spec.minInsyncReplicas", "FieldValueTypeInvalid", rule) in answer.causes
    obj = await applied(space, topic(retention=None), "team")
    assert (obj["spec"]["retention"]["time"], owned_by(obj)["team", "Apply", ""]["f:spec"]) == (
        "7d",
        {"f:partitions": {}, "f:retention": {}},
    )
