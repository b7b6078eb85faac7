"""Optimistic concurrency: whoever has not read the latest version must read again."""

import asyncio

import pytest

from tests.support.api_objects import lease, partition_set, topic
from tests.support.api_server import Space

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_should_refuse_a_replace_with_an_old_resource_version(space: Space) -> None:
    old = await space.create("topics", topic())
    await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 4}})

    answer = await space.api.request("PUT", space.path("topics", "flights"), old)

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == f'Operation cannot be fulfilled on topics.headrace.io "flights": {_MODIFIED}'
    assert answer.body["details"] == {"name": "flights", "group": "headrace.io", "kind": "topics"}


async def test_should_let_exactly_one_of_many_writers_win(space: Space) -> None:
    read = await space.create("partitionsets", partition_set())

    async def write(number: int) -> int:
        mine = read | {"spec": read["spec"] | {"topicUid": f"u{number}"}}
        return (await space.api.request("PUT", space.path("partitionsets", "flights-0"), mine)).status

    statuses = await asyncio.gather(*(write(number) for number in range(8)))

    assert sorted(statuses) == [200] + [409] * 7


@pytest.mark.parametrize(("plural", "obj"), [("topics", topic()), ("leases", lease("flights"))])
async def test_should_refuse_a_replace_without_a_resource_version(
    space: Space, plural: str, obj: dict[str, object]
) -> None:
    await space.create(plural, obj)
    answer = await space.api.request("PUT", space.path(plural, "flights"), obj)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer.message


async def test_should_check_the_resource_version_of_a_patch_when_it_names_one(space: Space) -> None:
    old = await space.create("topics", topic())
    await space.api.merge(space.path("topics", "flights"), {"spec": {"partitions": 4}})
    meta = {"resourceVersion": old["metadata"]["resourceVersion"]}

    answer = await space.api.merge(space.path("topics", "flights"), {"metadata": meta, "spec": {"partitions": 5}})

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message.endswith(_MODIFIED)


async def test_should_refuse_to_replace_an_object_by_another_of_the_same_name(space: Space) -> None:
    obj = await space.create("topics", topic())
    obj["metadata"]["uid"] = "another"
    answer = await space.api.request("PUT", space.path("topics", "flights"), obj)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: another, UID in object meta:" in answer.message

    answer = await space.api.merge(space.path("topics", "flights"), {"metadata": {"uid": "another"}})
    assert answer.causes == {("metadata.uid", "FieldValueInvalid", 'Invalid value: "another": field is immutable')}


async def test_should_delete_only_what_the_preconditions_name(space: Space) -> None:
    obj = await space.create("topics", topic())
    path = space.path("topics", "flights")

    answer = await space.api.request("DELETE", path, {"preconditions": {"uid": "another"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on Topic.headrace.io "flights": the UID in the precondition (another) does not '
        f"match the UID in record ({obj['metadata']['uid']}). The object might have been deleted and then recreated"
    )

    answer = await space.api.request("DELETE", path, {"preconditions": {"resourceVersion": "1"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match" in answer.message

    right = {"uid": obj["metadata"]["uid"], "resourceVersion": obj["metadata"]["resourceVersion"]}
    assert (await space.api.request("DELETE", path, {"preconditions": right})).status == 200


async def test_should_ignore_what_only_the_server_may_write(space: Space) -> None:
    obj = await space.create("topics", topic())
    meta = {"generation": 77, "creationTimestamp": None}
    answer = await space.api.merge(space.path("topics", "flights"), {"metadata": meta})
    assert answer.status == 200
    assert answer.body["metadata"]["generation"] == 1
    assert answer.body["metadata"]["creationTimestamp"] == obj["metadata"]["creationTimestamp"]


async def test_should_refuse_a_deletion_that_is_only_written_down(space: Space) -> None:
    await space.create("topics", topic())
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    answer = await space.api.merge(space.path("topics", "flights"), {"metadata": meta})
    assert answer.causes == {
        (
            "metadata.deletionTimestamp",
            "FieldValueInvalid",
            'Invalid value: "2026-01-01T00:00:00Z": field is immutable',
        )
    }
