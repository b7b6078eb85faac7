"""What a cluster's controllers do: garbage collection, the end of namespaces, the end of definitions."""

import asyncio
from typing import Any

import pytest

from tests.support.api_objects import partition_set, topic
from tests.support.api_server import Space
from tests.support.kubeconfig import ApiClient
from tests.support.patience import patient

pytestmark = pytest.mark.usefixtures("controllers")

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE_S = patient(60)


def _owned_by(owner: dict[str, Any], name: str = "flights-0") -> dict[str, Any]:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    obj = partition_set(name)
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


async def _gone(api: ApiClient, path: str) -> None:
    """Wait until the object at `path` is not there: its collection's watch tells of each change."""
    collection, _, name = path.rpartition("/")
    async with asyncio.timeout(_PATIENCE_S):
        async with api.watch(collection, fieldSelector=f"metadata.name={name}") as stream:
            while (await api.get(path)).status == 200:
                await stream.next()


async def test_should_delete_dependents_after_their_owner(space: Space) -> None:
    owner = await space.create("topics", topic())
    await space.create("partitionsets", _owned_by(owner))
    await space.api.request("DELETE", space.path("topics", "flights"))
    await _gone(space.api, space.path("partitionsets", "flights-0"))


async def test_should_delete_what_comes_after_its_owner_has_gone(space: Space) -> None:
    owner = await space.create("topics", topic())
    await space.api.request("DELETE", space.path("topics", "flights"))
    await space.create("partitionsets", _owned_by(owner))
    await _gone(space.api, space.path("partitionsets", "flights-0"))


async def test_should_delete_dependents_before_their_owner_when_asked(space: Space) -> None:
    owner = await space.create("topics", topic())
    dependent = _owned_by(owner)
    dependent["metadata"]["finalizers"] = ["headrace.io/x"]
    await space.create("partitionsets", dependent)
    await space.api.request("DELETE", space.path("topics", "flights"), query={"propagationPolicy": "Foreground"})

    path = space.path("partitionsets", "flights-0")
    async with asyncio.timeout(_PATIENCE_S):
        async with space.api.watch(space.path("partitionsets")) as stream:
            while "deletionTimestamp" not in (await space.api.get(path)).body["metadata"]:
                await stream.next()
    assert (await space.api.get(space.path("topics", "flights"))).status == 200
    await space.api.merge(path, {"metadata": {"finalizers": None}})
    await _gone(space.api, space.path("topics", "flights"))


async def test_should_leave_dependents_behind_when_asked(space: Space) -> None:
    owner = await space.create("topics", topic())
    await space.create("partitionsets", _owned_by(owner))
    await space.api.request("DELETE", space.path("topics", "flights"), query={"propagationPolicy": "Orphan"})
    await _gone(space.api, space.path("topics", "flights"))
    assert "ownerReferences" not in (await space.read("partitionsets", "flights-0"))["metadata"]


async def test_should_empty_a_namespace_and_remove_it(space: Space) -> None:
    await space.create("topics", topic())
    await space.create("partitionsets", partition_set())
    await space.api.request("DELETE", f"/api/v1/namespaces/{space.name}")
    await _gone(space.api, f"/api/v1/namespaces/{space.name}")
    assert (await space.api.get(space.path("topics"))).body["items"] == []


async def test_should_serve_a_definition_and_end_it_with_its_objects(space: Space) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    names = {"kind": "Weir", "plural": "weirs"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "weirs.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    assert (await space.api.request("POST", _DEFINITIONS, definition)).status == 201
    collection = f"/apis/example.org/v1/namespaces/{space.name}/weirs"
    weir = {"apiVersion": "example.org/v1", "kind": "Weir", "metadata": {"name": "one"}}
    assert (await space.api.request("POST", collection, weir)).status == 201

    await space.api.request("DELETE", f"{_DEFINITIONS}/weirs.example.org")
    await _gone(space.api, f"{_DEFINITIONS}/weirs.example.org")
    assert (await space.api.get(collection)).text == "404 page not found\n"


async def test_should_refuse_a_definition_that_cannot_work(space: Space) -> None:
    rule = {"rule": "self >"}
    schema = {"type": "object", "properties": {"spec": {"type": "integer", "x-kubernetes-validations": [rule]}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "misnamed.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Weir", "plural": "weirs"},
            "versions": [version],
        },
    }
    answer = await space.api.request("POST", _DEFINITIONS, definition)
    assert (answer.status, answer.reason) == (422, "Invalid")
    fields = {field for field, _, _ in answer.causes}
    assert "metadata.name" in fields
    assert any(field.endswith("x-kubernetes-validations[0].rule") for field in fields)
