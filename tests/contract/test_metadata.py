"""Metadata that breaks the rules which all kinds share."""

from typing import Any

import pytest

from tests.support.api_objects import partition_set
from tests.support.api_server import Space

_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (
            {"name": "a" * 254},
            {("metadata.name", f'Invalid value: "{"a" * 254}": must be no more than 253 characters')},
        ),
        (
            {"labels": {"a": "b" * 64}},
            {("metadata.labels", f'Invalid value: "{"b" * 64}": must be no more than 63 bytes')},
        ),
        (
            {"labels": {"a" * 64: "b"}},
            {("metadata.labels", f'Invalid value: "{"a" * 64}": name part must be no more than 63 bytes')},
        ),
        (
            {"labels": {"": "b"}},
            {
                ("metadata.labels", 'Invalid value: "": name part must be non-empty'),
                ("metadata.labels", f'Invalid value: "": {_NAME_PART}'),
            },
        ),
        ({"finalizers": ["a b"]}, {("metadata.finalizers", f'Invalid value: "a b": {_NAME_PART}')}),
        (
            {"annotations": {"a": "x" * 300_000}},
            {("metadata.annotations", "Too long: may not be more than 262144 bytes")},
        ),
        (
            {"ownerReferences": [_OWNER | {"uid": ""}]},
            {("metadata.ownerReferences.uid", 'Invalid value: "": must not be empty')},
        ),
    ],
)
async def test_should_name_the_rule_of_metadata(
    space: Space, change: dict[str, Any], causes: set[tuple[str, str]]
) -> None:
    obj = partition_set()
    obj["metadata"] |= change
    answer = await space.api.request("POST", space.path("partitionsets"), obj)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert {(field, message) for field, _, message in answer.causes} == causes


async def test_should_allow_one_controller_only(space: Space) -> None:
    obj = partition_set()
    obj["metadata"]["ownerReferences"] = [_OWNER | {"controller": True}, _OWNER | {"name": "b", "controller": True}]
    answer = await space.api.request("POST", space.path("partitionsets"), obj)
    assert answer.status == 422
    assert (
        'Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b'
        in answer.message
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"annotations": {"a": 5}},
            "cannot unmarshal number into Go struct field ObjectMeta.annotations of type string",
        ),
        (
            {"ownerReferences": "x"},
            "cannot unmarshal string into Go struct field ObjectMeta.ownerReferences of type []v1.OwnerReference",
        ),
        (
            {"ownerReferences": ["x"]},
            "cannot unmarshal string into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference",
        ),
        ({"finalizers": [5]}, "cannot unmarshal number into Go struct field ObjectMeta.finalizers of type string"),
        ({"name": 5}, "cannot unmarshal number into Go struct field ObjectMeta.name of type string"),
    ],
)
async def test_should_name_the_type_of_metadata(space: Space, change: dict[str, Any], complaint: str) -> None:
    obj = partition_set()
    obj["metadata"] |= change
    answer = await space.api.request("POST", space.path("partitionsets"), obj)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        f'PartitionSet in version "v1alpha1" cannot be handled as a PartitionSet: json: {complaint}'
    )
