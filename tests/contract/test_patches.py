"""Patches that are none, or do not fit, in the very words of a kube-apiserver."""

import pytest

from tests.support.api_objects import topic
from tests.support.api_server import Space

_MERGE = "application/merge-patch+json"
_JSON = "application/json-patch+json"
_WRONG_TYPE = "json: cannot unmarshal {} into Go value of type {}"


@pytest.mark.parametrize(
    ("content_type", "body", "complaint"),
    [
        (_MERGE, b'{"spec":', "unexpected end of JSON input"),
        (_MERGE, b'{"a":"b', "unexpected end of JSON input"),
        (_MERGE, b"", "unexpected end of JSON input"),
        (_MERGE, b'{"a":}', "invalid character '}' looking for beginning of value"),
        (_MERGE, b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (_MERGE, b'{"a" 1}', "invalid character '1' after object key"),
        (_MERGE, b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (_MERGE, b'{"a":1}}', "invalid character '}' after top-level value"),
        (_MERGE, b"[1]", _WRONG_TYPE.format("array", "map[string]interface {}")),
        (_MERGE, b'"x"', _WRONG_TYPE.format("string", "map[string]interface {}")),
        (_MERGE, b"5", _WRONG_TYPE.format("number", "map[string]interface {}")),
        (_JSON, b'{"spec":{}}', _WRONG_TYPE.format("object", "[]handlers.jsonPatchOp")),
        (_JSON, b'"x"', _WRONG_TYPE.format("string", "[]handlers.jsonPatchOp")),
        (_JSON, b"[1]", _WRONG_TYPE.format("number", "handlers.jsonPatchOp")),
        (_JSON, b'[{"op":', "unexpected end of JSON input"),
    ],
)
async def test_should_say_why_a_patch_is_none(space: Space, content_type: str, body: bytes, complaint: str) -> None:
    await space.create("topics", topic())
    answer = await space.api.request("PATCH", space.path("topics", "flights"), body, content_type=content_type)
    expected = (400, "BadRequest", f"error decoding patch: {complaint}")
    assert (answer.status, answer.reason, answer.message) == expected


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "nonsense", "path": "/spec"}],
        [{"op": "add"}],
        [{"path": "/spec", "value": 1}],
        [{"op": "add", "path": "spec", "value": 1}],
        [{"op": "remove", "path": "/spec/nonsense"}],
        [{"op": "replace", "path": "/spec/nonsense/deep", "value": 1}],
        [{"op": "replace", "path": "", "value": 5}],
        [{"op": "replace", "path": "/spec/replicas", "value": 5}, {"op": "test", "path": "/spec/replicas", "value": 6}],
    ],
)
async def test_should_refuse_operations_that_do_not_fit(space: Space, operations: list[dict[str, object]]) -> None:
    created = await space.create("topics", topic())
    answer = await space.api.request("PATCH", space.path("topics", "flights"), operations, content_type=_JSON)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == "the server rejected our request due to an error in our request"
    assert await space.read("topics", "flights") == created


async def test_should_refuse_to_merge_nothing(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.request("PATCH", space.path("topics", "flights"), b"null", content_type=_MERGE)
    assert (answer.status, answer.message) == (400, "Invalid JSON Patch")
