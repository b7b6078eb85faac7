"""The three patches, by the examples of their specifications and by what kubectl sends."""

from typing import Any

import pytest

from headrace.dev.api.patches import JSON_PATCH, MERGE, STRATEGIC, apply_patch
from headrace.dev.api.status import StatusError


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [  # RFC 7396, appendix A, where both are objects
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_should_merge_as_rfc_7396_says(target: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    before = repr(target)
    assert apply_patch(MERGE, target, patch) == merged
    assert repr(target) == before, "the stored object is not touched"


@pytest.mark.parametrize("patch", [[1], "x", 5, None, True])
def test_should_refuse_a_merge_patch_that_is_no_object(patch: Any) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(MERGE, {}, patch)
    assert refused.value.code == 400


def test_should_apply_json_patches_and_refuse_others() -> None:
    assert apply_patch(JSON_PATCH, {"a": 1}, [{"op": "add", "path": "/b", "value": 2}]) == {"a": 1, "b": 2}
    for patch, code in (
        ({"op": "add"}, 400),
        ([{"op": "nonsense", "path": "/a"}], 422),
        ([{"op": "remove", "path": "/b"}], 422),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "replace", "path": "", "value": []}], 422),
    ):
        with pytest.raises(StatusError) as refused:
            apply_patch(JSON_PATCH, {"a": 1}, patch)
        assert refused.value.code == code, patch


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        (
            {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
            {"containers": [{"name": "b", "image": "2"}, {"name": "c"}], "$setElementOrder/containers": []},
            {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"}]},
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
        ),
        (
            {"containers": [{"name": "a"}]},
            {"containers": [{"$patch": "replace"}, {"name": "z"}]},
            {"containers": [{"name": "z"}]},
        ),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c"], "c": 3}}, {"a": {"c": 3}}),
        ({"finalizers": ["x"]}, {"finalizers": ["y", "x"]}, {"finalizers": ["x", "y"]}),
        ({"finalizers": ["x", "y"]}, {"$deleteFromPrimitiveList/finalizers": ["x"]}, {"finalizers": ["y"]}),
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        ({"a": 1}, {"a": None, "b": {"c": 1}}, {"b": {"c": 1}}),
    ],
)
def test_should_merge_lists_by_their_keys(
    target: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]
) -> None:
    assert apply_patch(STRATEGIC, target, patch) == merged


def _names(containers: list[dict[str, Any]]) -> list[str]:
    return [container["name"] for container in containers]


@pytest.mark.parametrize(
    ("before", "changed", "order", "after"),
    [
        (["a"], ["b"], None, ["b", "a"]),
        (["a", "b", "c"], ["b"], None, ["a", "b", "c"]),
        (["a", "b", "c"], ["c", "a"], None, ["b", "c", "a"]),
        (["a", "b"], ["a"], ["b", "a"], ["b", "a"]),
        (["a", "b", "c"], ["d"], ["c", "d", "a"], ["b", "c", "d", "a"]),
        ([], ["b", "a"], None, ["b", "a"]),
    ],
)
def test_should_order_a_merged_list_as_kubernetes_does(
    before: list[str], changed: list[str], order: list[str] | None, after: list[str]
) -> None:
    patch: dict[str, Any] = {"containers": [{"name": name, "x": 1} for name in changed]}
    if order is not None:
        patch["$setElementOrder/containers"] = [{"name": name} for name in order]
    merged = apply_patch(STRATEGIC, {"containers": [{"name": name} for name in before]}, patch)
    assert _names(merged["containers"]) == after
    assert {c["name"] for c in merged["containers"] if "x" in c} == set(changed)


@pytest.mark.parametrize("patch", [{"$retainKeys": 5}, {"$deleteFromPrimitiveList/finalizers": "x"}])
def test_should_refuse_directives_that_are_no_lists(patch: dict[str, Any]) -> None:
    with pytest.raises(StatusError, match="must be a list") as refused:
        apply_patch(STRATEGIC, {"finalizers": ["x"]}, patch)
    assert refused.value.code == 400


def test_should_replace_a_list_that_cannot_be_a_union() -> None:
    assert apply_patch(STRATEGIC, {"finalizers": ["x"]}, {"finalizers": [{}]}) == {"finalizers": [{}]}
