"""Create, get, list, replace, patch, delete, and how each is refused."""

import pytest

from tests.support.api_objects import consumer_group, partition_set, topic
from tests.support.api_server import Space


async def test_should_return_what_was_created_with_its_metadata(space: Space) -> None:
    created = await space.create("topics", topic(labels={"team": "data"}))

    meta = created["metadata"]
    assert created["apiVersion"] == "headrace.io/v1alpha1"
    assert created["kind"] == "Topic"
    assert (meta["name"], meta["namespace"], meta["generation"]) == ("flights", space.name, 1)
    assert meta["labels"] == {"team": "data"}
    assert len(meta["uid"]) == 36
    assert meta["creationTimestamp"].endswith("Z")
    assert int(meta["resourceVersion"]) > 0
    assert await space.read("topics", "flights") == created


async def test_should_list_in_order_of_name_with_one_resource_version(space: Space) -> None:
    for name in ("b", "a", "c"):
        await space.create("topics", topic(name))

    listed = (await space.api.get(space.path("topics"))).body

    assert listed["kind"] == "TopicList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b", "c"]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= newest


async def test_should_list_in_pages_when_a_limit_is_given(space: Space) -> None:
    for name in ("a", "b", "c"):
        await space.create("topics", topic(name))

    first = (await space.api.get(space.path("topics"), {"limit": "2"})).body
    rest = (await space.api.get(space.path("topics"), {"limit": "2", "continue": first["metadata"]["continue"]})).body

    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    assert not rest["metadata"].get("continue")


async def test_should_replace_and_count_generations(space: Space) -> None:
    obj = await space.create("topics", topic())
    obj["spec"]["partitions"] = 5

    answer = await space.api.request("PUT", space.path("topics", "flights"), obj)

    assert answer.status == 200
    assert answer.body["spec"]["partitions"] == 5
    assert answer.body["metadata"]["generation"] == 2
    assert answer.body["metadata"]["uid"] == obj["metadata"]["uid"]
    assert int(answer.body["metadata"]["resourceVersion"]) > int(obj["metadata"]["resourceVersion"])


async def test_should_not_count_a_generation_when_only_metadata_changes(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.merge(space.path("topics", "flights"), {"metadata": {"labels": {"a": "b"}}})
    assert answer.body["metadata"]["labels"] == {"a": "b"}
    assert answer.body["metadata"]["generation"] == 1


async def test_should_count_generations_of_a_kind_without_status(space: Space) -> None:
    await space.create("partitionsets", partition_set())
    answer = await space.api.merge(space.path("partitionsets", "flights-0"), {"spec": {"deleting": True}})
    assert answer.body["spec"]["deleting"] is True
    assert answer.body["metadata"]["generation"] == 2


async def test_should_change_nothing_when_a_write_says_nothing_new(space: Space) -> None:
    await space.create("topics", topic())
    # The first write may store what was only filled in for readers until then.
    first = await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 3}})
    second = await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 3}})
    assert (second.status, second.body) == (200, first.body)


async def test_should_apply_json_patches(space: Space) -> None:
    await space.create("topics", topic())
    patch = [
        {"op": "test", "path": "/spec/partitions", "value": 3},
        {"op": "replace", "path": "/spec/partitions", "value": 4},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    answer = await space.api.request(
        "PATCH", space.path("topics", "flights"), patch, content_type="application/json-patch+json"
    )
    assert answer.status == 200
    assert answer.body["spec"]["partitions"] == 4
    assert answer.body["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/partitions", "value": 99},
        {"op": "replace", "path": "/spec/nothing/here", "value": 1},
        {"op": "remove", "path": "/metadata/labels/absent"},
    ],
)
async def test_should_refuse_a_json_patch_that_does_not_fit(space: Space, operation: dict[str, object]) -> None:
    await space.create("topics", topic())
    answer = await space.api.request(
        "PATCH", space.path("topics", "flights"), [operation], content_type="application/json-patch+json"
    )
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == "the server rejected our request due to an error in our request"


async def test_should_refuse_strategic_merge_of_custom_resources(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.request(
        "PATCH",
        space.path("topics", "flights"),
        {"spec": {"partitions": 4}},
        content_type="application/strategic-merge-patch+json",
    )
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in answer.message


async def test_should_remove_fields_that_a_merge_patch_sets_to_null(space: Space) -> None:
    await space.create("topics", topic(minInsyncReplicas=2, retention={"time": "1h"}))
    answer = await space.api.merge(
        space.path("topics", "flights"), {"spec": {"minInsyncReplicas": None, "retention": None}}
    )
    assert "minInsyncReplicas" not in answer.body["spec"]
    assert answer.body["spec"]["retention"] == {"time": "7d", "bytes": "unlimited"}


async def test_should_say_success_when_an_object_is_deleted(space: Space) -> None:
    obj = await space.create("topics", topic())
    answer = await space.api.request("DELETE", space.path("topics", "flights"))
    assert (answer.status, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {
        "name": "flights",
        "group": "headrace.io",
        "kind": "topics",
        "uid": obj["metadata"]["uid"],
    }
    assert (await space.api.get(space.path("topics", "flights"))).status == 404


async def test_should_give_another_uid_to_an_object_of_the_same_name(space: Space) -> None:
    first = await space.create("topics", topic())
    await space.api.request("DELETE", space.path("topics", "flights"))
    second = await space.create("topics", topic())
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_should_delete_what_a_selector_matches(space: Space) -> None:
    await space.create("topics", topic("a", labels={"gone": "yes"}))
    await space.create("topics", topic("b"))
    answer = await space.api.request("DELETE", space.path("topics"), query={"labelSelector": "gone=yes"})
    assert answer.status == 200
    left = (await space.api.get(space.path("topics"))).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]


async def test_should_make_up_a_name_when_asked(space: Space) -> None:
    obj = topic()
    obj["metadata"] = {"generateName": "gen-"}
    created = await space.create("topics", obj)
    assert created["metadata"]["name"].startswith("gen-")
    assert len(created["metadata"]["name"]) == len("gen-") + 5


async def test_should_store_nothing_on_a_dry_run(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(), query={"dryRun": "All"})
    assert (answer.status, answer.body["spec"]["replicas"]) == (201, 3)
    assert (await space.api.get(space.path("topics", "flights"))).status == 404


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH", "PUT"])
async def test_should_say_not_found_with_the_resource_and_the_name(space: Space, method: str) -> None:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = None if method in ("GET", "DELETE") else topic("absent")
    answer = await space.api.request(method, space.path("topics", "absent"), body, content_type=content_type)
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'topics.headrace.io "absent" not found'
    assert answer.body["details"] == {"name": "absent", "group": "headrace.io", "kind": "topics"}


async def test_should_refuse_a_second_object_of_the_same_name(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.request("POST", space.path("topics"), topic())
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'topics.headrace.io "flights" already exists'


async def test_should_refuse_an_object_in_a_namespace_that_does_not_exist(space: Space) -> None:
    path = "/apis/headrace.io/v1alpha1/namespaces/no-such-namespace/topics"
    answer = await space.api.request("POST", path, topic())
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'namespaces "no-such-namespace" not found'


async def test_should_refuse_an_object_that_names_another_place(space: Space) -> None:
    elsewhere = topic()
    elsewhere["metadata"]["namespace"] = "default"
    answer = await space.api.request("POST", space.path("topics"), elsewhere)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "does not match the namespace sent on the request" in answer.message

    obj = await space.create("topics", topic())
    obj["metadata"]["name"] = "other"
    answer = await space.api.request("PUT", space.path("topics", "flights"), obj)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the name of the object (other) does not match the name on the URL (flights)"


async def test_should_refuse_another_kind_or_version_than_the_path_says(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), consumer_group() | {"kind": "Nonsense"})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == 'Nonsense.headrace.io "billing" is invalid: kind: Invalid value: "Nonsense": must be Topic'

    answer = await space.api.request("POST", space.path("topics"), topic() | {"apiVersion": "headrace.io/v9"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        "the API version in the data (headrace.io/v9) does not match the expected API version (headrace.io/v1alpha1)"
    )


@pytest.mark.parametrize("body", [b"", b"{bad", b"[]", b"{}"])
async def test_should_refuse_a_body_that_is_no_object(space: Space, body: bytes) -> None:
    answer = await space.api.request("POST", space.path("topics"), body)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_should_refuse_a_resource_version_on_create(space: Space) -> None:
    obj = topic()
    obj["metadata"]["resourceVersion"] = "5"
    answer = await space.api.request("POST", space.path("topics"), obj)
    assert answer.status == 500
    assert answer.message == "resourceVersion should not be set on objects to be created"


@pytest.mark.parametrize("path", ["/apis/headrace.io/v1alpha1/nonsense", "/apis/nonsense/v1", "/nonsense"])
async def test_should_say_page_not_found_when_no_such_resource_is_served(space: Space, path: str) -> None:
    answer = await space.api.get(path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_should_refuse_methods_that_a_path_does_not_have(space: Space) -> None:
    assert (await space.api.request("PUT", space.path("topics"), topic())).message == "name must be provided"
    assert (await space.api.request("DELETE", "/apis/headrace.io/v1alpha1/topics")).text == "404 page not found\n"
    assert (await space.api.request("DELETE", "/api/v1/pods")).status == 405
