"""Defaults and pruning, on schemas that our CRDs do not have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.schemas import Schema, drop_nulls, fill_defaults, has_rules, prune, prune_root

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner),
    max_leaves=20,
)
_NESTED = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 7}}},
        "c": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "x"}}}},
    },
}


def _defaulted(value: Any, raw: dict[str, Any]) -> Any:
    schema = Schema.parse(raw)
    drop_nulls(value, schema)
    fill_defaults(value, schema)
    return value


def test_should_fill_in_defaults_of_defaults() -> None:
    assert _defaulted({}, _NESTED) == {"a": {"b": 7}}
    assert _defaulted({"c": [{}, {"d": "y"}]}, _NESTED) == {"a": {"b": 7}, "c": [{"d": "x"}, {"d": "y"}]}


def test_should_never_share_a_default_between_objects() -> None:
    schema = Schema.parse({"type": "object", "properties": {"a": {"type": "array", "default": [[1], {"b": 1}]}}})
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    fill_defaults(first, schema)
    first["a"][0].append(2)
    fill_defaults(second, schema)
    assert second == {"a": [[1], {"b": 1}]}


@pytest.mark.parametrize(
    ("node", "left"),
    [
        ({"type": "string"}, {}),
        ({"type": "string", "default": "x"}, {"a": "x"}),
        ({"type": "string", "nullable": True}, {"a": None}),
        ({"type": "string", "nullable": True, "default": "x"}, {"a": None}),
    ],
)
def test_should_keep_null_only_where_it_may_be(node: dict[str, Any], left: dict[str, Any]) -> None:
    assert _defaulted({"a": None}, {"type": "object", "properties": {"a": node}}) == left


def test_should_keep_unknown_fields_where_the_schema_says_so() -> None:
    open_node = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = Schema.parse({"type": "object", "properties": {"a": open_node}})
    value = {"a": {"x": {"y": 1}}, "b": 1}
    assert prune(value, schema) == ["b"]
    assert value == {"a": {"x": {"y": 1}}}


def test_should_prune_inside_maps_and_lists() -> None:
    leaf = {"type": "object", "properties": {"k": {"type": "string"}}}
    schema = Schema.parse(
        {
            "type": "object",
            "properties": {
                "m": {"type": "object", "additionalProperties": leaf},
                "l": {"type": "array", "items": leaf},
            },
        }
    )
    value = {"m": {"one": {"k": "v", "z": 1}}, "l": [{}, {"z": 1}]}
    assert prune(value, schema) == ["l[1].z", "m.one.z"]
    assert value == {"m": {"one": {"k": "v"}}, "l": [{}, {}]}


def test_should_leave_what_belongs_to_kubernetes() -> None:
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "bogus": 1}
    assert prune_root(obj, Schema.parse({"type": "object"})) == ["bogus"]
    assert obj == {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}}


def test_should_find_rules_at_any_depth() -> None:
    ruled = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    assert has_rules(Schema.parse({"type": "array", "items": {"type": "object", "properties": {"a": ruled}}}))
    assert not has_rules(Schema.parse(_NESTED))


@given(_JSON)
def test_should_change_nothing_the_second_time(value: Any) -> None:
    schema = Schema.parse(_NESTED)
    fill_defaults(value, schema)
    prune(value, schema)
    once = repr(value)
    fill_defaults(value, schema)
    assert prune(value, schema) == []
    assert repr(value) == once
