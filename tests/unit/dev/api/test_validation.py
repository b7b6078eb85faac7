"""Validation beyond what our own CRDs use; what they do use is in the contract tests.

CEL rules: where they apply, what they see, how they fail.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.schemas import Schema
from headrace.dev.api.validation import check_object, validate, validate_object, validate_status


def _messages(value: Any, raw: dict[str, Any]) -> list[str]:
    return [str(cause) for cause in validate(value, Schema.parse(raw), "spec.x")]


@pytest.mark.parametrize(
    ("value", "raw", "messages"),
    [
        (5, {"type": "integer", "maximum": 5, "exclusiveMaximum": True}, ["be less than 5"]),
        (5, {"type": "integer", "minimum": 5, "exclusiveMinimum": True}, ["be greater than 5"]),
        (2.5, {"type": "number", "minimum": 3}, ["be greater than or equal to 3"]),
        ([1], {"type": "array", "minItems": 2, "items": {"type": "integer"}}, ["have at least 2 items"]),
        ("a\n", {"type": "string", "pattern": "^a$"}, ["match '^a$'"]),
    ],
)
def test_should_name_the_bound(value: Any, raw: dict[str, Any], messages: list[str]) -> None:
    found = _messages(value, raw)
    assert len(found) == len(messages)
    assert all(f"spec.x in body should {rule}" in said for said, rule in zip(found, messages, strict=True))


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ("5", {"x-kubernetes-int-or-string": True}),
        (5, {"x-kubernetes-int-or-string": True}),
        (None, {"type": "string", "nullable": True}),
        (5, {"type": "number"}),
        ({"any": 1}, {}),
        ("2026-11-21T09:00:00+01:00", {"type": "string", "format": "date-time"}),
        ({"a": "b"}, {"type": "object", "additionalProperties": {"type": "string"}}),
        ([{"k": 1}, {"k": 2}], {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
    ],
)
def test_should_accept_what_fits(value: Any, raw: dict[str, Any]) -> None:
    assert _messages(value, raw) == []


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (True, {"x-kubernetes-int-or-string": True}),
        (True, {"type": "number"}),
        (None, {"type": "string"}),
        (1 << 63, {"type": "integer"}),
        ({"a": 1}, {"type": "object", "additionalProperties": {"type": "string"}}),
        ("2026-11-21", {"type": "string", "format": "date-time"}),
    ],
)
def test_should_refuse_what_does_not(value: Any, raw: dict[str, Any]) -> None:
    assert len(_messages(value, raw)) == 1


def test_should_refuse_the_same_value_twice_in_a_set() -> None:
    assert _messages(["a", "b", "a"], {"type": "array", "x-kubernetes-list-type": "set"}) == [
        'spec.x[2]: Duplicate value: "a"'
    ]


_STRICT = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"type": "integer"}}}


def test_should_not_judge_again_what_has_not_changed() -> None:
    schema = Schema.parse(_STRICT)
    old = {"a": 9, "b": 1}
    assert validate_object({"a": 9, "b": 2}, schema, old, []) == []
    assert len(validate_object({"a": 8, "b": 1}, schema, old, [])) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "x"]), inner),
    )
)
def test_should_answer_any_value_without_failing(value: Any) -> None:
    raw = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "integer", "format": "int32"},
            "b": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
        },
    }
    schema = Schema.parse(raw)
    assert list(validate(value, schema, "")) == list(validate(value, schema, ""))


@pytest.mark.parametrize(
    ("value", "raw", "rules"),
    [
        (3, {"type": "string", "enum": ["a"]}, ["must be of type string", 'supported values: "a"']),
        (10**20, {"type": "integer", "maximum": 5}, ["must be of type integer", "Invalid value: 1e+20"]),
        (-0.5, {"type": "integer", "minimum": 1}, ["must be of type integer", "greater than or equal to 1"]),
        (False, {"type": "integer", "minimum": 1}, ["must be of type integer"]),
    ],
)
def test_should_name_every_rule_that_a_value_of_another_type_breaks(
    value: Any, raw: dict[str, Any], rules: list[str]
) -> None:
    found = _messages(value, raw)
    assert len(found) == len(rules)
    assert all(rule in said for said, rule in zip(found, rules, strict=True))


def test_should_count_from_the_status_where_it_is_written_alone() -> None:
    count = {"type": "integer", "format": "int64"}
    rules = [{"rule": "self.spec > 0", "message": "spec must be above 0"}]
    raw = {"type": "object", "properties": {"status": {"type": "object", "properties": {"count": count}}}}
    schema = Schema.parse(raw)
    assert validate_status({}, schema, {}) == []
    assert validate_status({"status": {"count": 1}}, Schema.parse({"type": "object"}), {}) == []
    (said,) = validate_status({"status": {"count": "x"}}, schema, {})
    assert str(said) == 'status.count: Invalid value: "string": count in body must be of type integer: "string"'
    (said,) = validate_status({"status": 5}, schema, {})
    assert str(said) == 'status: Invalid value: "integer":  in body must be of type object: "integer"'
    (said,) = validate_status({"status": {"count": 1}, "spec": 0}, Schema.parse(raw | _rules(rules)), {})
    assert str(said).endswith("spec must be above 0")
    said, unchecked = validate_status({"status": 5, "spec": 0}, Schema.parse(raw | _rules(rules)), {})
    assert "were not checked" in str(unchecked)


def _rules(rules: list[dict[str, str]]) -> dict[str, Any]:
    return {"x-kubernetes-validations": rules}


def _ruled(rule: str, type_: str = "integer", **more: Any) -> dict[str, Any]:
    return {"type": type_, "x-kubernetes-validations": [{"rule": rule, **more}]}


def _check(value: Any, raw: dict[str, Any], old: Any = None) -> list[str]:
    return [str(cause) for cause in check_object(value, Schema.parse(raw), old)]


def test_should_show_the_rule_where_it_has_no_message() -> None:
    raw = {"type": "object", "properties": {"a": _ruled("self > 3")}}
    assert _check({"a": 2}, raw) == ["a: Invalid value: 2: failed rule: self > 3"]


def test_should_put_the_error_at_the_field_that_the_rule_names() -> None:
    raw = _ruled("self.a < self.b", "object", message="a must be below b", fieldPath=".a")
    raw["properties"] = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert _check({"a": 2, "b": 1}, raw) == [".a: Invalid value: a must be below b"]


def test_should_compare_list_elements_by_their_keys() -> None:
    element = {"type": "object", "properties": {"k": {"type": "string"}, "v": _ruled("self >= oldSelf")}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": element}
    raw = {"type": "object", "properties": {"l": keyed}}
    old = {"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}

    assert _check({"l": [{"k": "b", "v": 2}, {"k": "a", "v": 4}, {"k": "c", "v": 0}]}, raw, old) == [
        "l[1].v: Invalid value: 4: failed rule: self >= oldSelf"
    ]


def test_should_know_no_old_elements_in_other_lists() -> None:
    raw = {"type": "object", "properties": {"l": {"type": "array", "items": _ruled("self >= oldSelf")}}}
    assert _check({"l": [1]}, raw, {"l": [5]}) == []


def test_should_not_judge_what_has_not_changed() -> None:
    raw = {"type": "object", "properties": {"a": _ruled("self > 3"), "b": {"type": "integer"}}}
    assert _check({"a": 2, "b": 2}, raw, {"a": 2, "b": 1}) == []


def test_should_report_a_rule_that_cannot_be_evaluated() -> None:
    raw = {"type": "object", "properties": {"a": {"type": "object", **_ruled("self.missing > 3", "object")}}}
    (said,) = _check({"a": {}}, raw)
    assert said.startswith("a: Invalid value: rule evaluation error: ")
