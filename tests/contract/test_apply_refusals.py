"""Server-side apply of what cannot be applied: the reason, word for word."""

import json
from typing import Any

import pytest

from tests.support.api_objects import topic
from tests.support.api_server import Space
from tests.support.applying import VERSION, applied, apply, condition, status_of


def _typed(rule: str) -> tuple[int, str]:
    return 500, f"failed to create typed patch object (/flights; {VERSION}, Kind=Topic): {rule}"


def _bad(**members: Any) -> dict[str, Any]:
    return topic() | members


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (topic(nonsense=1), _typed(".spec.nonsense: field not declared in schema")),
        (topic(partitions="x"), _typed(".spec.partitions: expected numeric (int or float), got string")),
        (
            topic(partitions={}),
            _typed(".spec.partitions: expected numeric (int or float), got map[string]interface {}"),
        ),
        (topic(retention=[1]), _typed(".spec.retention: expected map, got &{[1]}")),
        (topic(retention="x"), _typed(".spec.retention: expected map, got &{x}")),
        (topic(cluster=1), _typed(".spec.cluster: expected string, got &value.valueUnstructured{Value:1}")),
        (_bad(status={"conditions": {}}), _typed(".status.conditions: expected list, got &{map[]}")),
        (_bad(status={"nonsense": 1}), _typed(".status.nonsense: field not declared in schema")),
        (
            _bad(metadata={"name": "flights", "labels": {"a": 1}}),
            _typed(".metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}"),
        ),
        (
            _bad(metadata={"name": "flights", "finalizers": ["a.io/x", "a.io/x"]}),
            _typed('.metadata.finalizers: duplicate entries for key [="a.io/x"]'),
        ),
        (
            status_of(condition("A"), condition("A")),
            _typed('.status.conditions: duplicate entries for key [type="A"]'),
        ),
        (
            status_of({"status": "True"}),
            _typed(
                ".status.conditions: element 0: associative list with keys has an element that omits all key fields "
                '["type"] (and doesn\'t have default values for any key fields)'
            ),
        ),
        (_bad(kind="ConsumerGroup"), (400, f"invalid object type: {VERSION}, Kind=ConsumerGroup")),
        (_bad(apiVersion="v1"), (400, "invalid object type: /v1, Kind=Topic")),
        ({"metadata": {}}, (400, "invalid object type: /, Kind=")),
        (b"", (400, "invalid object type: /, Kind=")),
        (
            b"a: [",
            (
                400,
                "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content",
            ),
        ),
        (
            b"[1]",
            (
                400,
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
                "json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ),
        (
            _bad(metadata={"name": "flights", "managedFields": []}),
            (400, "metadata.managedFields must be nil"),
        ),
        (
            topic("other"),
            (400, "the name of the object (other) does not match the name on the URL (flights)"),
        ),
        (
            _bad(metadata={}),
            (400, "the name of the object (flights based on URL) was undeterminable: name must be provided"),
        ),
        (
            _bad(metadata={"name": "flights", "namespace": "elsewhere"}),
            (400, "the namespace of the provided object does not match the namespace sent on the request"),
        ),
        (
            _bad(metadata={"name": "flights", "uid": "u"}),
            (
                409,
                'Operation cannot be fulfilled on topics.headrace.io "flights": uid mismatch: the provided object '
                "specified uid u, and no existing object was found",
            ),
        ),
    ],
)
async def test_should_say_why_an_object_cannot_be_applied(
    space: Space, body: object, expected: tuple[int, str]
) -> None:
    answer = await apply(space, space.path("topics", "flights"), body, "team")
    assert (answer.status, answer.message) == expected


async def test_should_check_the_version_that_is_applied(space: Space) -> None:
    await applied(space, topic(), "team")
    obj = topic(partitions=4)
    obj["metadata"]["resourceVersion"] = "1"
    answer = await apply(space, space.path("topics", "flights"), obj, "team")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message


async def test_should_check_the_rules_of_what_is_applied(space: Space) -> None:
    await applied(space, topic(), "team")
    answer = await apply(space, space.path("topics", "flights"), topic(partitions=1), "team")
    assert (answer.status, answer.causes) == (
        422,
        {("spec.partitions", "FieldValueInvalid", "Invalid value: 1: partitions can grow, never shrink")},
    )


async def test_should_warn_of_names_that_come_twice(space: Space) -> None:
    body = json.dumps(topic()).encode()[:-1] + b', "kind": "Topic"}'
    path = space.path("topics", "flights")
    answer = await apply(space, path, body, "team")
    assert (answer.status, answer.warnings) == (201, ('299 - "line 1: key \\"kind\\" already set in map"',))
    answer = await apply(space, path, body, "team", fieldValidation="Strict")
    assert answer.message == (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 1: key "kind" already set in map'
    )
