"""What the CRDs' schemas refuse, in the very words of a kube-apiserver."""

from typing import Any

import pytest

from tests.support.api_objects import consumer_group, partition_set, topic
from tests.support.api_server import Space

_MERGE = "application/merge-patch+json"
_UNCHECKED = (
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def _value(field: str, value: str, rule: str) -> tuple[str, str, str]:
    return field, "FieldValueInvalid", f"Invalid value: {value}: {field} in body should {rule}"


def _type(field: str, found: str, wanted: str) -> tuple[str, str, str]:
    return (
        field,
        "FieldValueTypeInvalid",
        f'Invalid value: "{found}": {field} in body must be of type {wanted}: "{found}"',
    )


def _missing(field: str) -> tuple[str, str, str]:
    return field, "FieldValueRequired", "Required value"


_TOPICS: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
    ({"partitions": 0}, {_value("spec.partitions", "0", "be greater than or equal to 1")}),
    ({"partitions": 1025}, {_value("spec.partitions", "1025", "be less than or equal to 1024")}),
    ({"partitions": "3"}, {_type("spec.partitions", "string", "integer"), _UNCHECKED}),
    (
        {"partitions": 1.5},
        {
            _type("spec.partitions", "float64", "int32"),
            (
                "<nil>",
                "FieldValueInvalid",
                'Invalid value: "": Checked value must be of type integer with format int32 in spec.partitions',
            ),
            _UNCHECKED,
        },
    ),
    ({"partitions": True}, {_type("spec.partitions", "", "int32"), _UNCHECKED}),
    ({"partitions": {"a": 1}}, {_type("spec.partitions", "", "int32"), _UNCHECKED}),
    ({"partitions": [1]}, {_type("spec.partitions", "array", "integer"), _UNCHECKED}),
    (
        {"durability": "fsync"},
        {
            (
                "spec.durability",
                "FieldValueNotSupported",
                'Unsupported value: "fsync": supported values: "Fsync", "Replicated"',
            ),
            _UNCHECKED,
        },
    ),
    (
        {"retention": {"time": "7 days"}},
        {_value("spec.retention.time", '"7 days"', "match '^([1-9][0-9]*(ms|s|m|h|d)|unlimited)$'")},
    ),
    ({"retention": "7d"}, {_type("spec.retention", "string", "object"), _UNCHECKED}),
    ({"uncleanLeaderElection": "yes"}, {_type("spec.uncleanLeaderElection", "string", "boolean"), _UNCHECKED}),
    (
        {"replicas": 2, "minInsyncReplicas": 3},
        {
            (
                "spec.minInsyncReplicas",
                "FieldValueInvalid",
                "Invalid value: minInsyncReplicas must not exceed replicas",
            )
        },
    ),
    (
        {"replicas": 9, "partitions": 0},
        {
            _value("spec.replicas", "9", "be less than or equal to 7"),
            _value("spec.partitions", "0", "be greater than or equal to 1"),
        },
    ),
]


@pytest.mark.parametrize(("spec", "causes"), _TOPICS)
async def test_should_name_field_value_and_rule_of_a_topic(
    space: Space, spec: dict[str, Any], causes: set[tuple[str, str, str]]
) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(**spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == causes
    assert answer.message.startswith('Topic.headrace.io "flights" is invalid: ')
    assert all(f"{field}: {message}" in answer.message for field, _, message in causes)
    assert answer.body["details"]["kind"] == "Topic"


async def test_should_name_one_broken_rule_without_brackets(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(partitions=0))
    assert answer.message == (
        'Topic.headrace.io "flights" is invalid: spec.partitions: Invalid value: 0: spec.partitions in body should be '
        "greater than or equal to 1"
    )


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({"spec": {}}, {_missing("spec.partitions"), _UNCHECKED}),
        ({"spec": None}, {_missing("spec"), _UNCHECKED}),
    ],
)
async def test_should_name_what_is_missing(
    space: Space, change: dict[str, Any], causes: set[tuple[str, str, str]]
) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic() | change)
    assert answer.causes == causes


async def test_should_explain_a_name_that_is_none(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic("my_topic"))
    assert answer.causes == {
        ("metadata.name", "FieldValueInvalid", f'Invalid value: "my_topic": {_SUBDOMAIN}'),
        (
            "metadata.name",
            "FieldValueInvalid",
            "Invalid value: \"my_topic\": metadata.name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
        ),
    }


async def test_should_want_a_name(space: Space) -> None:
    nameless = topic()
    del nameless["metadata"]["name"]
    answer = await space.api.request("POST", space.path("topics"), nameless)
    assert answer.causes == {
        ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required"),
        _UNCHECKED,
    }


_STATE = {"id": 0, "leaderEpoch": 1, "partitionEpoch": 1, "replicas": [0], "isr": []}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"topic": "t" * 64},
            {("spec.topic", "FieldValueTooLong", "Too long: may not be more than 63 bytes")},
        ),
        (
            {"partitions": [_STATE] * 101},
            {("spec.partitions", "FieldValueTooMany", "Too many: 101: must have at most 100 items")},
        ),
        (
            {"partitions": [_STATE | {"id": -1, "leader": {"broker": 0}}]},
            {
                _value("spec.partitions[0].id", "-1", "be greater than or equal to 0"),
                _missing("spec.partitions[0].leader.incarnation"),
            },
        ),
        (
            {"partitions": [_STATE | {"isr": [{"broker": "x", "incarnation": 1}]}]},
            {_type("spec.partitions[0].isr[0].broker", "string", "integer")},
        ),
        (
            {"partitions": [_STATE | {"leaderEpoch": 1 << 31}]},
            {
                (
                    "<nil>",
                    "FieldValueInvalid",
                    'Invalid value: "": Checked value must be of type integer with format int32 in '
                    "spec.partitions[0].leaderEpoch",
                )
            },
        ),
        ({"partitions": {"a": 1}}, {_type("spec.partitions", "object", "array")}),
        ({"topicUid": True}, {_type("spec.topicUid", "boolean", "string")}),
    ],
)
async def test_should_name_the_place_in_a_list(
    space: Space, spec: dict[str, Any], causes: set[tuple[str, str, str]]
) -> None:
    answer = await space.api.request("POST", space.path("partitionsets"), partition_set(**spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"pausedUntil": "tomorrow"},
            {
                (
                    "spec.pausedUntil",
                    "FieldValueTypeInvalid",
                    'Invalid value: "tomorrow": spec.pausedUntil in body must be of type date-time: "tomorrow"',
                ),
                _UNCHECKED,
            },
        ),
        (
            {"resetOffsets": {"id": "", "to": "Timestamp"}},
            {
                _value("spec.resetOffsets.id", '""', "be at least 1 chars long"),
                (
                    "spec.resetOffsets",
                    "FieldValueInvalid",
                    "Invalid value: timestamp belongs to to: Timestamp, and only to it",
                ),
            },
        ),
        (
            {"resetOffsets": {"id": "a", "to": "Latest", "timestamp": "2026-11-20T00:00:00Z"}},
            {
                (
                    "spec.resetOffsets",
                    "FieldValueInvalid",
                    "Invalid value: timestamp belongs to to: Timestamp, and only to it",
                )
            },
        ),
    ],
)
async def test_should_check_rules_across_fields(
    space: Space, spec: dict[str, Any], causes: set[tuple[str, str, str]]
) -> None:
    answer = await space.api.request("POST", space.path("consumergroups"), consumer_group(**spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == causes


async def test_should_refuse_a_reset_that_is_edited_under_its_id(space: Space) -> None:
    """It would pass for carried out."""
    reset = {"id": "a", "to": "Offsets", "offsets": [{"topic": "orders", "partition": 0, "offset": 7}]}
    answer = await space.api.request("POST", space.path("consumergroups"), consumer_group(resetOffsets=reset))
    path = f"{space.path('consumergroups')}/{answer.body['metadata']['name']}"
    reset["offsets"] = [{"topic": "orders", "partition": 0, "offset": 8}]
    refused = await space.api.request("PATCH", path, {"spec": {"resetOffsets": reset}}, content_type=_MERGE)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.causes == {
        (
            "spec.resetOffsets",
            "FieldValueInvalid",
            "Invalid value: a reset is carried out once for each id: give what you change another id",
        )
    }
    again = {**reset, "id": "b"}
    assert (
        await space.api.request("PATCH", path, {"spec": {"resetOffsets": again}}, content_type=_MERGE)
    ).status == 200
    assert (await space.api.request("PATCH", path, {"spec": {"pausedUntil": None}}, content_type=_MERGE)).status == 200


async def test_should_explain_labels_that_are_none(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(labels={"/x": "y", "a": "b c"}))
    messages = {message for _, _, message in answer.causes}
    assert 'Invalid value: "/x": prefix part must be non-empty' in messages
    assert any(m.startswith('Invalid value: "b c": a valid label must be an empty string or consist') for m in messages)

    obj = topic()
    obj["metadata"]["labels"] = {"a": 5}
    answer = await space.api.request("POST", space.path("topics"), obj)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string" in answer.message


async def test_should_refuse_unknown_options(space: Space) -> None:
    answer = await space.api.request("POST", space.path("topics"), topic(), query={"fieldValidation": "Maybe"})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (
        'fieldValidation: Unsupported value: "Maybe": supported values: "", "Ignore", "Strict", "Warn"'
        in answer.message
    )
