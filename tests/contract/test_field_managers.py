"""Whose each field is: writes other than applies, their names, and `metadata.managedFields` itself."""

from typing import Any

import pytest

from tests.support.api_objects import topic
from tests.support.api_server import Space
from tests.support.applying import APPLY, JSON_PATCH, PARTITIONS, VERSION, owned_by


async def test_should_own_by_update_what_other_writes_change(space: Space) -> None:
    created = await space.api.request(
        "POST", space.path("topics"), topic(labels={"a": "b"}), query={"fieldManager": "c"}
    )
    owned = owned_by(created.body)["c", "Update", ""]
    assert owned["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    assert owned["f:spec"]["f:retention"] == {".": {}, "f:bytes": {}, "f:time": {}}
    path = space.path("topics", "flights")
    merged = await space.api.merge(path, {"spec": {"partitions": 4}}, {"fieldManager": "m"})
    assert owned_by(merged.body)["m", "Update", ""] == PARTITIONS
    assert "f:partitions" not in owned_by(merged.body)["c", "Update", ""]["f:spec"]
    changes = [
        {"op": "remove", "path": "/metadata/labels/a"},
        {"op": "add", "path": "/metadata/labels/x", "value": "y"},
    ]
    patched = await space.api.request("PATCH", path, changes, content_type=JSON_PATCH, query={"fieldManager": "j"})
    assert owned_by(patched.body)["j", "Update", ""] == {"f:metadata": {"f:labels": {"f:x": {}}}}
    assert owned_by(patched.body)["c", "Update", ""]["f:metadata"] == {"f:labels": {}}
    replaced = patched.body | {"spec": patched.body["spec"] | {"partitions": 5}}
    replaced["metadata"].pop("managedFields")
    put = await space.api.request("PUT", path, replaced, query={"fieldManager": "p"})
    assert owned_by(put.body)["p", "Update", ""] == PARTITIONS
    assert ("m", "Update", "") not in owned_by(put.body)


async def test_should_record_no_write_that_changes_nothing(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    changed = (await space.api.merge(path, {"spec": {"partitions": 4}}, {"fieldManager": "m"})).body
    assert (await space.api.merge(path, {"spec": {"partitions": 4}}, {"fieldManager": "other"})).body == changed
    assert (await space.api.request("PUT", path, changed, query={"fieldManager": "p"})).body == changed


async def test_should_name_writers_by_their_program(space: Space) -> None:
    created = await space.create("topics", topic())
    assert [manager for manager, _, _ in owned_by(created)] == ["Python"]


async def test_should_tell_ten_updaters_apart(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    for number in range(12):
        patch = {"metadata": {"labels": {f"l{number:02}": "x"}}}
        answer = await space.api.merge(path, patch, {"fieldManager": f"u{number:02}"})
    updaters = {manager for manager, _, _ in owned_by(answer.body)}
    assert len(updaters) == 10
    assert updaters >= {"ancient-changes", "u11"}


async def test_should_let_a_writer_rewrite_the_managers(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    entry: dict[str, Any] = {
        "manager": "x",
        "operation": "Apply",
        "apiVersion": VERSION,
        "time": "2026-01-01T00:00:00Z",
    }
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": PARTITIONS}
    replaced = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    answer = await space.api.request("PATCH", path, replaced, content_type=JSON_PATCH)
    assert answer.body["metadata"]["managedFields"] == [entry]
    nothing: list[Any] = []
    for nonsense in (nothing, [entry | {"operation": "Nonsense"}], [entry | {"fieldsV1": {"nonsense": {}}}]):
        answer = await space.api.merge(path, {"metadata": {"managedFields": nonsense}})
        assert answer.body["metadata"]["managedFields"] == [entry]
    on_create = topic("other")
    on_create["metadata"]["managedFields"] = [entry]
    created = await space.create("topics", on_create)
    assert [manager for manager, _, _ in owned_by(created)] == ["Python"]


@pytest.mark.parametrize(
    ("query", "field", "reason", "message"),
    [
        ({}, "fieldManager", "FieldValueRequired", "Required value: is required for apply patch"),
        ({"fieldManager": "x" * 129}, "fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes"),
        (
            {"fieldManager": "a\tb"},
            "fieldManager",
            "FieldValueInvalid",
            'Invalid value: "a\\tb": invalid character U+0009 (at position 1)',
        ),
    ],
)
async def test_should_want_a_manager(
    space: Space, query: dict[str, str], field: str, reason: str, message: str
) -> None:
    path = space.path("topics", "flights")
    answer = await space.api.request("PATCH", path, topic(), content_type=APPLY, query=query)
    assert (answer.status, answer.causes) == (422, {(field, reason, message)})
    assert answer.message == f'PatchOptions.meta.k8s.io "" is invalid: {field}: {message}'


async def test_should_refuse_force_and_long_names_of_other_writes(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    answer = await space.api.merge(path, {}, {"force": "true"})
    assert answer.message == (
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'
    )
    for method, place, kind in (("POST", space.path("topics"), "Create"), ("PUT", path, "Update")):
        answer = await space.api.request(method, place, topic(), query={"fieldManager": "x" * 129})
        assert answer.message.startswith(f'{kind}Options.meta.k8s.io "" is invalid: fieldManager: Too long')
