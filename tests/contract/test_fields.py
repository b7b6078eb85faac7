"""Defaults, unknown fields, duplicate fields."""

import pytest

from tests.support.api_objects import consumer_group, topic
from tests.support.api_server import Space

_DUPLICATE = (
    b'{"apiVersion":"headrace.io/v1alpha1","kind":"Topic","metadata":{"name":"flights","foo":1},'
    b'"spec":{"partitions":1,"partitions":2}}'
)


async def test_should_fill_in_the_defaults(space: Space) -> None:
    created = await space.create("topics", topic(partitions=6, retention={"time": "1h"}))
    assert created["spec"] == {
        "partitions": 6,
        "cluster": "headrace",
        "replicas": 3,
        "durability": "Fsync",
        "cleanupPolicy": "Delete",
        "retention": {"time": "1h", "bytes": "unlimited"},
        "segment": {"bytes": "256Mi", "time": "1d"},
        "compaction": {"minLag": "0s", "deleteRetention": "1d"},
        "maxMessageBytes": "8Mi",
        "timestampType": "CreateTime",
        "timestamps": {"beforeMax": "unlimited", "afterMax": "unlimited"},
        "uncleanLeaderElection": False,
        "deletionPolicy": "Delete",
    }


@pytest.mark.parametrize("spec", [{}, {"cluster": None, "assignor": None, "pausedUntil": None}, None])
async def test_should_take_null_for_absent(space: Space, spec: dict[str, object] | None) -> None:
    created = await space.create("consumergroups", consumer_group() | {"spec": spec})
    assert created["spec"] == {
        "cluster": "headrace",
        "type": "Consumer",
        "assignor": "Uniform",
        "sessionTimeout": "45s",
        "offsetsRetention": "7d",
    }


async def test_should_drop_unknown_fields_with_a_warning(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(bogus=1, retention={"tim": "7d"}))
    assert answer.status == 201
    assert "bogus" not in answer.body["spec"]
    assert answer.warnings == (
        '299 - "unknown field \\"spec.bogus\\""',
        '299 - "unknown field \\"spec.retention.tim\\""',
    )


async def test_should_drop_unknown_fields_silently_when_asked(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(bogus=1), query={"fieldValidation": "Ignore"})
    assert (answer.status, answer.warnings) == (201, ())


async def test_should_refuse_unknown_fields_when_asked(space: Space) -> None:
    answer = await space.api.request(
        "POST", space.path("topics"), topic(bogus=1, retention={"tim": "7d"}), query={"fieldValidation": "Strict"}
    )
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        'Topic in version "v1alpha1" cannot be handled as a Topic: strict decoding error: unknown field "spec.bogus", '
        'unknown field "spec.retention.tim"'
    )


async def test_should_refuse_duplicate_fields_when_asked(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), _DUPLICATE, query={"fieldValidation": "Strict"})
    assert answer.status == 400
    assert answer.message.endswith('duplicate field "spec.partitions", unknown field "metadata.foo"')

    answer = await space.api.request("POST", space.path("topics"), _DUPLICATE)
    assert (answer.status, answer.body["spec"]["partitions"]) == (201, 2)


async def test_should_blame_the_patch_for_unknown_fields(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.merge(
        space.path("topics", "flights"), {"x": 1, "spec": {"y": 1}}, {"fieldValidation": "Strict"}
    )
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert answer.message.endswith('": strict decoding error: unknown field "spec.y", unknown field "x"')
